import LinuxSystem
import NATSStreams
import SQLiteStore

/// A publisher or a follower, with the state that outlives its connections.
protocol SessionOwner: AnyObject {
    /// The options of its connections.
    var connection: ConnectionOptions { get }
    /// True if the last attempt got further than those before it.
    var hasAdvanced: Bool { get }

    /// Prepares an attempt, before the broker is contacted. Throws what makes a connection useless.
    func prepare() throws
    /// Works over a connection until the end is requested or something fails. Calls `begun` once the broker serves it.
    func runSession(over connection: NATSConnection, begun: () -> Void) throws
    /// True if nothing is wrong after a session's error: the next one goes on elsewhere in the store's history.
    func continues(after error: any ActionableError) -> Bool
    /// Adapts to the error of a session, before the next attempt.
    func recover(from error: any ActionableError)
}

extension SessionOwner {
    func continues(after error: any ActionableError) -> Bool { false }
}

/// Runs a publisher's or a follower's sessions, one connection after another, until the end is requested.
///
/// A session never continues over another connection: messages sent over the lost one may be in the stream or not, so
/// the next session begins by reading the stream's end.
struct SessionLoop {
    private let context: RelayContext
    private var backoff = Backoff(first: .milliseconds(200), longest: .seconds(10), isRandomized: true)
    private var hasConnected = false
    /// The number of sessions in succession after which the owner continued, and which hadn't begun to work.
    private var continuations = 0

    /// The number of them after which the error is one.
    private static let maxContinuations = 5
    /// The time after which a session counts as successful.
    private static let steadyTime = Duration.seconds(5)

    private init(_ context: RelayContext) { self.context = context }

    /// Creates the owner and runs its sessions. Returns once the end is requested, and throws an error that waiting
    /// doesn't help. An error stays in the status record.
    static func run(_ context: RelayContext, _ makeOwner: () throws -> some SessionOwner) throws {
        do {
            try context.options.connection.checkFiles()
            var loop = SessionLoop(context)
            try loop.runSessions(of: makeOwner())
            context.status.end(with: nil)
        } catch let error as StoreError where error.isInterruption && context.stop.isRequested {
            context.status.end(with: nil)
        } catch {
            context.status.end(with: error as? any ActionableError)
            throw error
        }
    }

    private mutating func runSessions(of owner: some SessionOwner) throws {
        var options = owner.connection
        while !context.stop.isRequested {
            var server: ServerAddress?
            var begun: ContinuousClock.Instant?
            do {
                try owner.prepare()
                if context.stop.isRequested { return }
                context.status.record.state = "connecting"
                context.status.write()
                let connection = try NATSConnection(options)
                server = connection.server
                context.stop.use(connection)
                defer {
                    context.stop.use(nil)
                    connection.close()
                    context.status.record.server = nil
                }
                try owner.runSession(over: connection) {
                    hasConnected = true
                    begun = context.now()
                    continuations = 0
                }
            } catch let error as any ActionableError {
                if context.stop.isRequested { return }
                if owner.continues(after: error), continuations < Self.maxContinuations {
                    continuations += 1
                    if begun != nil { backoff.reset() }
                    owner.recover(from: error)
                    context.stop.wait(backoff.next())
                    continue
                }
                guard SessionFailure(error, hasConnected: hasConnected) != .end else { throw error }
                let wasSteady = begun.map { $0.duration(to: context.now()) >= Self.steadyTime } ?? false
                let worked = wasSteady || owner.hasAdvanced
                if let server { options.note(error, of: server, worked: worked) }
                waitForNextAttempt(of: owner, after: error, worked: worked)
            }
        }
    }

    /// - Parameter worked: True if the session was of use: then its error is a new one, and the next attempt is made
    ///   soon.
    private mutating func waitForNextAttempt(
        of owner: some SessionOwner, after error: any ActionableError, worked: Bool
    ) {
        if worked {
            backoff.reset()
            context.reporter.clearErrors()
        }
        context.status.setFailure(error)
        context.reporter.report(error)
        context.status.record.state = "connecting"
        owner.recover(from: error)
        context.status.write(force: true)
        context.stop.wait(backoff.next())
    }
}
