import LinuxSystem
import NATSStreams
import RelayStatus
import SQLiteFormat
import StoreReplication

/// The options of a follower.
package struct FollowerOptions: Sendable {
    package let relay: RelayOptions
    /// The follower's name, under which the home records its confirmations.
    package let follower: String

    /// Throws `RelayError.badName`.
    package init(_ relay: RelayOptions, follower: String) throws(RelayError) {
        guard RelayStream.isName(follower) else { throw .badName("follower", follower) }
        self.relay = relay
        self.follower = follower
    }
}

/// Keeps a replica of a store up to date. It holds the state that outlives a connection.
///
/// The spine: `SessionLoop` connects, again and again; `FollowerSession` searches the stream, applies batches, and
/// takes a snapshot where they don't fit.
package final class StoreFollower: SessionOwner {
    let context: RelayContext
    let connection: ConnectionOptions
    /// The follower's name.
    let name: String
    let held: HeldReplica
    private var reachBefore: HeldReplica.Reach

    /// Follows until `stop` is requested. Waits for an unavailable broker or home.
    ///
    /// Throws `ReplicationError`, with `diverged` if another program wrote to the replica and `inUse` if another one
    /// follows it, and `NATSError` if waiting wouldn't help.
    ///
    /// - Parameter location: The replica's place, in a group container. It need not exist.
    package static func follow(
        _ location: StoreLocation, _ options: FollowerOptions, until stop: RelayStop,
        report: @escaping @Sendable (RelayEvent) -> Void
    ) throws {
        let relay = options.relay
        // Before the status is written, which may be that of the program that has the lock.
        let lock = try ReplicaLock(location)
        let record = RelayRecord(
            .follow, store: location.path, stream: relay.stream.streamName, follower: options.follower)
        let context = RelayContext(
            location: location, options: relay, status: StatusWriter(record, in: relay.status),
            reporter: RelayReporter(report), stop: stop)
        try SessionLoop.run(context) { try StoreFollower(context, options.follower, lock) }
    }

    private init(_ context: RelayContext, _ name: String, _ lock: ReplicaLock) throws {
        self.context = context
        self.name = name
        let stream = context.stream
        var connection = context.options.connection
        connection.inboxPrefix = stream.inbox(of: name)
        connection.streamAPI = (stream.api, stream.streamName)
        self.connection = connection
        let held = HeldReplica(context.location, stream: stream.streamName, lock)
        try context.stop.retryingBusy { try held.open() }
        self.held = held
        reachBefore = held.reach
    }

    var hasAdvanced: Bool { held.reach.isBeyond(reachBefore) }

    func prepare() { reachBefore = held.reach }

    func runSession(over connection: NATSConnection, begun: () -> Void) throws {
        try FollowerSession(self, over: connection).run(begun: begun)
    }

    func recover(from error: any ActionableError) {}
}
