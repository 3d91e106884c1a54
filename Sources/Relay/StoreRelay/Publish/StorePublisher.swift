import GroupContainers
import LinuxSystem
import NATSStreams
import PersistentHistory
import RelayStatus
import RowShadow
import SQLiteFormat
import SQLiteStore
import StoreReplication
import SystemPackage

/// The options of a publisher.
package struct PublisherOptions: Sendable {
    package let relay: RelayOptions
    /// The limits of the stream.
    package var maxAge: Duration?
    package var maxBytes: Int64?
    package var replicas: Int?
    /// The last token of a stream that another home, or this one before a restored backup, has filled, and which this
    /// store takes over.
    package var takeOver: HistoryToken?
    /// The directory of snapshots that are being sent.
    package let snapshots: FilePath
    /// The directory of mirrors, each of which outlives the process.
    package let mirrors: FilePath

    package init(_ relay: RelayOptions, snapshots: FilePath, mirrors: FilePath) {
        self.relay = relay
        (self.snapshots, self.mirrors) = (snapshots, mirrors)
    }

    /// The stream as it is created, or checked if it exists.
    var configuration: StreamConfiguration {
        var configuration = StreamConfiguration(name: relay.stream.streamName, subject: relay.stream.changes)
        configuration.maxAge = maxAge
        configuration.maxBytes = maxBytes
        configuration.replicas = replicas
        return configuration
    }
}

/// Publishes a store's changes to a stream. It holds the state that outlives a connection.
///
/// The spine: `SessionLoop` connects, again and again; `PublisherSession` reads the stream's end, publishes all that is
/// missing there through `BatchPublisher`, and then waits for the store, for followers and for the broker.
package final class StorePublisher: SessionOwner {
    let context: RelayContext
    let options: PublisherOptions
    let connection: ConnectionOptions
    let snapshots: SnapshotServer
    let mailbox = PublisherMailbox()
    let held = HeldBatch()
    /// The option's token, until a session has begun.
    private var chosenTakeOver: HistoryToken?
    /// The end of the history that this process has published and that has ended, until a session has begun.
    private var inherited: HistoryToken?
    /// The messages that may be sent ahead of the broker's confirmations.
    private(set) var maxAhead = StorePublisher.usualAhead
    /// The number of the last session.
    private(set) var session = 0
    private var positionBefore: String?
    /// The mirror of a store that keeps no history.
    private(set) var mirror: StoreMirror?
    /// The number of the mirror's copy with which the last session began to work.
    private var usedCopy = 0
    /// The last look at the store's own history, and the file that has it.
    private var known: (look: HistoryLook, file: HomeFile)?

    /// A file, and no other that has its path or its inode number later.
    private struct HomeFile: Equatable {
        let identity: FileIdentity
        let birth: Int64?

        init(_ path: FilePath) throws {
            guard let name = path.lastComponent, let status = FileStatus(following: path) else {
                throw StoreError.missing(path)
            }
            (identity, birth) = (status.identity, try Directory(path.removingLastComponent()).birth(name))
        }
    }

    private static let usualAhead = 256

    /// Publishes until `stop` is requested. Waits for an unavailable broker, and for a store that is being replaced.
    ///
    /// Throws `RelayError.superseded`, `ReplicationError`, `HistoryError`, and `NATSError` if waiting wouldn't help.
    package static func publish(
        _ location: StoreLocation, _ options: PublisherOptions, until stop: RelayStop,
        report: @escaping @Sendable (RelayEvent) -> Void
    ) throws {
        let record = RelayRecord(.publish, store: location.path, stream: options.relay.stream.streamName)
        let context = RelayContext(
            location: location, options: options.relay, status: StatusWriter(record, in: options.relay.status),
            reporter: RelayReporter(report), stop: stop)
        try SessionLoop.run(context) { try StorePublisher(context, options) }
    }

    private init(_ context: RelayContext, _ options: PublisherOptions) throws {
        self.context = context
        self.options = options
        chosenTakeOver = options.takeOver
        var connection = context.options.connection
        connection.inboxPrefix = context.stream.homeInbox
        self.connection = connection
        // The kernel's threads end a writer's syncs. They don't wait for a long batch to be read.
        shortenTimeSlices()
        snapshots = try SnapshotServer(context.stream, in: options.snapshots, key: context.key)
        // A store that can't be replicated, or isn't there, is refused before anything is published.
        do { _ = try source() } catch HistoryError.outdated {
        } catch let error as any ActionableError where continues(after: error) {
            // A history begins or ends just now.
            recover(from: error)
        }
    }

    /// Opens the store, or its mirror, once no other program keeps it busy. Throws if it can't be replicated.
    func source() throws -> ReplicationSource {
        try context.stop.retryingBusy {
            let file = try HomeFile(context.location.path)
            guard try StoreMirror.isNeeded(for: context.location) else {
                // Followers of its former mirror go on with its history.
                mirror = nil
                let histories = try mirrorPlace(creating: false).map {
                    try StoreMirror.histories(in: $0, of: context.location)
                }
                let found = try ReplicationSource(context.location, formerHistories: histories ?? [])
                try adopt(found.look(), in: file)
                return found
            }
            try adopt(nil, in: file)
            if mirror == nil {
                guard let place = try mirrorPlace(creating: true) else {
                    throw SystemError("open", .noSuchFileOrDirectory, path: options.mirrors)
                }
                let found = try StoreMirror(of: context.location, in: place) { [stop = context.stop] in
                    stop.isRequested
                }
                (mirror, usedCopy) = (found, found.copies)
                context.reporter.report(
                    RelayEvent(
                        "mirror", ["path": .string(found.path.string), "bytes": .integer(found.size)],
                        "publishing a store that keeps no history from a copy in \(PrintablePath(found.path))"))
            }
            guard let mirror else { throw StoreError.busy(context.location.path) }
            return try ReplicationSource(mirror)
        }
    }

    /// Takes the stream over from the store's former history: the stream ends where this process has left it. Another
    /// file may be another store, or a backup, and so may what was written over the same one.
    ///
    /// - Parameters:
    ///   - look: A look at the store's own history; nil if it keeps none.
    ///   - file: The store's file before that.
    private func adopt(_ look: HistoryLook?, in file: HomeFile) throws {
        guard try HomeFile(context.location.path) == file else { throw StoreError.busy(context.location.path) }
        let isOther = look.flatMap { known?.look.isContradicted(by: $0) } ?? false
        if known?.file != file || isOther {
            inherited = nil
        } else if known?.look.token.history != look?.token.history {
            inherited = inherited ?? published
        }
        if let look { known = (look, file) }
    }

    /// The stream's last token, if it isn't in the store's history and this store takes the stream over.
    var takeOver: HistoryToken? { chosenTakeOver ?? inherited }

    /// The token up to which this process has published, or what the stream may end with if it has just started.
    private var published: HistoryToken? {
        context.status.record.position.flatMap(HistoryToken.init) ?? known?.look.token
    }

    /// Returns true if the history of a store was disabled and enabled since it was published.
    func hasBegunAnew(_ source: ReplicationSource) -> Bool {
        guard let known, (try? HomeFile(source.location.path)) == known.file else { return false }
        return (try? source.current()).map { $0.history != known.look.token.history } ?? false
    }

    /// Returns the place of the stream's mirror of this store; nil if there is none, and it isn't to be created. Throws
    /// `SystemError`.
    private func mirrorPlace(creating: Bool) throws -> FilePath? {
        let name = "\(context.stream.name).mirror"
        if creating {
            try GroupContainer.create(options.mirrors)
        } else if FileStatus(following: options.mirrors.appending(name)) == nil {
            return nil
        }
        let own = try SnapshotServer.ownDirectory(name, in: Directory(options.mirrors))
        return own.path.appending(ShadowPlace.name(of: context.location.path))
    }

    func continues(after error: any ActionableError) -> Bool {
        switch error {
        // The mirror was made anew, or the next session looks for another place in the history.
        case is StoreHistory.Discontinuity: true
        // The next session publishes a mirror, unless the store is absent, or is being replaced.
        case HistoryError.disabled where mirror == nil: true
        // The next session makes another mirror.
        default: isDamage(error)
        }
    }

    /// Returns true if an error may come of damage in the mirror. If another copy has the same error, its cause is the
    /// home.
    private func isDamage(_ error: any ActionableError) -> Bool {
        guard let mirror, mirror.copies == usedCopy else { return false }
        return mirror.mayBeDamaged(after: error)
    }

    var hasAdvanced: Bool { context.status.record.position != positionBefore || held.hasAdvanced }

    /// Waits until the store can be published, before the broker is contacted.
    func prepare() throws {
        positionBefore = context.status.record.position
        var outdated = OutdatedHistory()
        repeat {
            context.stop.wait(outdated.remaining ?? .zero)
            try outdated.waiting(context) { _ = try source() }
        } while outdated.isWaiting && !context.stop.isRequested
    }

    func runSession(over connection: NATSConnection, begun: () -> Void) throws {
        session += 1
        try PublisherSession(self, over: connection).run {
            (chosenTakeOver, inherited) = (nil, nil)
            // The stream goes on with the store's own history.
            if mirror == nil, let place = try mirrorPlace(creating: false) { try StoreMirror.retire(in: place) }
            usedCopy = mirror?.copies ?? 0
            begun()
        }
    }

    /// Keeps the lag in the status up to date while there is no connection.
    func recover(from error: any ActionableError) {
        if isDamage(error) { mirror?.recordDamage() }
        // Beside another publisher, each message waits until the one before is confirmed.
        maxAhead = (error as? NATSError)?.code == .streamMoved ? 1 : Self.usualAhead
        let record = context.status.record
        if mirror == nil, let position = record.position.flatMap(HistoryToken.init),
            mailbox.take(within: .zero).storeChanged,
            let current = try? ReplicationSource(context.location).current(), current.history == position.history
        {
            context.status.setLag(current.number - position.number)
        }
        mailbox.post { $0.storeChanged = true }
    }
}
