import PersistentHistory
import SQLiteFormat
import StoreReplication

/// The replica while it is open; none before its first snapshot.
final class HeldReplica {
    private let location: StoreLocation
    private let stream: String
    private(set) var replica: Replica?
    /// The last part that the replica has taken of a batch whose last part it hasn't. It outlives a connection, so that
    /// a long batch gets through a link that never lasts for long.
    var unfinished: BatchMessage?

    init(_ location: StoreLocation, stream: String) {
        self.location = location
        self.stream = stream
    }

    /// Opens the replica, if there is a file of its name.
    func open() throws {
        guard replica == nil, try location.directory.status(location.name.database) != nil else { return }
        replica = try Replica(opening: location, stream: stream)
    }

    /// Lets go of a replica that isn't in its place any more, and opens what is.
    func openAgain() throws {
        abandonBatch()
        replica = nil
        try open()
    }

    /// The replica's position, and the batch that it is taking.
    struct Reach {
        let position: HistoryToken?
        let unfinished: BatchPart?

        /// True if it is further than that: the next attempt is worth making soon.
        func isBeyond(_ former: Reach) -> Bool {
            if position != former.position { return true }
            guard let unfinished else { return false }
            return unfinished.number > former.unfinished?.number ?? 0
        }
    }

    var reach: Reach { Reach(position: replica?.position, unfinished: unfinished?.part) }

    /// Gives up the batch that the replica is taking.
    func abandonBatch() {
        replica?.abandonBatch()
        unfinished = nil
    }

    /// Gives the replica a snapshot's content, or creates it.
    func take(_ snapshot: Snapshot) throws {
        if let replica {
            try replica.replace(with: snapshot)
        } else {
            replica = try Replica.create(location, from: snapshot, stream: stream, movingFile: true)
        }
    }
}
