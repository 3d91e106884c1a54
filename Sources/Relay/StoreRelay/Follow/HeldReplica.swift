import PersistentHistory
import SQLiteFormat
import StoreReplication

/// The replica while it is open, none before its first snapshot, and its lock.
final class HeldReplica {
    private let location: StoreLocation
    private let stream: String
    private let lock: ReplicaLock
    private(set) var replica: Replica?
    /// The last received part of an incomplete batch. It outlives a connection, so that a long batch gets through even
    /// if no connection lasts for long.
    var unfinished: BatchMessage?

    init(_ location: StoreLocation, stream: String, _ lock: ReplicaLock) {
        self.location = location
        self.stream = stream
        self.lock = lock
    }

    /// Opens the replica, if there is a file of its name.
    func open() throws {
        guard replica == nil, try location.directory.status(location.name.database) != nil else { return }
        replica = try Replica(opening: location, stream: stream)
    }

    /// Closes a replica that is no longer in its place, and opens the file that is.
    func openAgain() throws {
        abandonBatch()
        replica = nil
        try open()
    }

    /// The replica's position, and the received part of its next batch.
    struct Reach {
        let position: HistoryToken?
        let unfinished: BatchPart?

        /// Returns true if this is further than that: then the next attempt is made soon.
        func isBeyond(_ former: Reach) -> Bool {
            if position != former.position { return true }
            guard let unfinished else { return false }
            return unfinished.number > former.unfinished?.number ?? 0
        }
    }

    var reach: Reach { Reach(position: replica?.position, unfinished: unfinished?.part) }

    /// Discards the incomplete batch.
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
