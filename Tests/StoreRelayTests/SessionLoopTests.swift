import LinuxSystem
import NATSStreams
import RelayStatus
import SQLiteFormat
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelay

@Suite(.ownThreads) struct SessionLoopTests {
    /// An owner whose attempts fail as a test says. Once none is left to fail, it requests the end.
    private final class Owner: SessionOwner {
        enum Attempt {
            /// The attempt fails before the broker is contacted.
            case unprepared(any ActionableError)
            /// The session fails.
            case failing(any ActionableError, isBegun: Bool)
        }

        let connection: ConnectionOptions
        let hasAdvanced = false
        private let stop: RelayStop
        private var attempts: [Attempt]
        private(set) var sessions = 0
        private(set) var recoveries: [String] = []

        init(_ attempts: [Attempt], _ context: RelayContext) {
            (self.attempts, stop, connection) = (attempts, context.stop, context.options.connection)
        }

        func prepare() throws {
            if attempts.isEmpty { return stop.request() }
            guard case .unprepared(let error) = attempts[0] else { return }
            attempts.removeFirst()
            throw error
        }

        func runSession(over connection: NATSConnection, begun: () -> Void) throws {
            sessions += 1
            guard !attempts.isEmpty, case .failing(let error, let isBegun) = attempts.removeFirst() else { return }
            if isBegun { begun() }
            throw error
        }

        func recover(from error: any ActionableError) { recoveries.append(error.errorCode) }
    }

    private let directory: TemporaryDirectory
    private let location: StoreLocation
    private let events = Events()

    private final class Events: Sendable {
        let types = Mutex<[String]>([])
    }

    init() throws {
        directory = try TemporaryDirectory()
        location = StoreLocation(
            directory: try Directory(directory.path), name: try #require(StoreName("Notes.sqlite")))
    }

    private func context(_ url: String) throws -> RelayContext {
        let stream = try RelayStream("Notes")
        var options = RelayOptions(stream, ConnectionOptions(servers: [try ServerAddress(url)], name: "test"))
        options.status = directory.path
        let record = RelayRecord(.publish, store: location.path, stream: stream.streamName)
        let events = events
        let reporter = RelayReporter { event in
            events.types.withLock { $0.append(event.object.string("code") ?? "") }
        }
        return RelayContext(
            location: location, options: options, status: StatusWriter(record, in: options.status),
            reporter: reporter, stop: RelayStop())
    }

    /// Runs attempts. Returns their owner, and the error with which the loop ended.
    private func run(_ attempts: [Owner.Attempt], url: String) throws -> (owner: Owner, error: String?) {
        let context = try context(url)
        let owner = Owner(attempts, context)
        do {
            try SessionLoop.run(context) { owner }
            return (owner, nil)
        } catch let error as any ActionableError {
            return (owner, error.errorCode)
        }
    }

    private let full = SystemError("pwrite", .noSpace, path: "/home.sqlite")
    private let forbidden = SystemError("open", .permissionDenied, path: "/home.sqlite")

    @Test func goesOnAfterAnErrorWhoseCauseMayPass() throws {
        let (owner, error) = try run([.unprepared(full), .unprepared(full)], url: "nats://127.0.0.1:9")
        #expect(error == nil && owner.sessions == 0)
        #expect(owner.recoveries == [full.errorCode, full.errorCode])
        #expect(events.types.withLock { $0 } == [full.errorCode], "an error that lasts is reported once")
        #expect(try RelayRecord.all(in: directory.path).isEmpty, "a stopped program leaves no record")
    }

    @Test func endsWithAnErrorThatOnlyAPersonCanMendAndLeavesItInTheRecord() throws {
        let (owner, error) = try run([.unprepared(forbidden), .unprepared(full)], url: "nats://127.0.0.1:9")
        #expect(error == forbidden.errorCode && owner.recoveries.isEmpty)
        let record = try #require(try RelayRecord.all(in: directory.path).first)
        #expect(record.state == forbidden.errorCode && record.failure?.code == forbidden.errorCode)
    }

    @Test func createsNoOwnerWithoutTheBrokersFiles() throws {
        let context = try context("nats://127.0.0.1:9")
        var options = context.options
        options.connection.authorities = directory.path.appending("missing.pem")
        let lacking = RelayContext(
            location: location, options: options, status: context.status, reporter: context.reporter,
            stop: context.stop)
        let error = #expect(throws: NATSError.self) {
            try SessionLoop.run(lacking) { () throws -> Owner in
                Issue.record("the owner is created")
                return Owner([], lacking)
            }
        }
        #expect(error?.code == .badFile)
    }

    /// A broker that has served the program and refuses it now is being changed: the program waits.
    @Test(.enabled(if: !NATSServer.programs.isEmpty, "there is no nats-server"), arguments: [true, false])
    func aRefusalEndsOnlyAProgramThatWasNeverServed(isBegun: Bool) throws {
        let server = try NATSServer(NATSServer.programs[0])
        let refusal = NATSError(.refused, "the credentials are unknown")
        let (owner, error) = try run([.failing(refusal, isBegun: isBegun)], url: server.url)
        #expect(owner.sessions == 1 && error == (isBegun ? nil : "broker_refused"))
    }
}
