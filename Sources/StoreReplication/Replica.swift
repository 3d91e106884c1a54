import PersistentHistory
import SQLiteFormat
import SQLiteStore

/// A copy of a store that follows its home by change batches. It holds a connection to the copy. Confined to one
/// thread.
///
/// Each batch is one transaction, and with it the replica's position, its row in `GS_REPLICA`. Readers may have the
/// replica open. It is in WAL mode, so that they don't wait.
package final class Replica {
    /// What has become of a part.
    package enum Outcome: Sendable, Equatable {
        /// The batch is committed; this is the position now.
        case applied(HistoryToken)
        /// The part is taken, and the next one of its batch is awaited. Nothing is committed yet.
        case partial
        /// The replica has these changes already, or the part belongs to a batch that isn't awaited.
        case skipped
        /// The batch begins after the position: a snapshot is needed.
        case gap
        /// The batch is of another history, or of another life of this one: a snapshot is needed.
        case otherHistory
        /// The batch is of another schema, or of other triggers: a snapshot is needed.
        case schemaChanged
    }

    package let location: StoreLocation
    /// The last change that the replica has.
    package private(set) var position: HistoryToken
    /// The digest of its schema.
    package private(set) var schema: String

    /// Opens a replica. Throws `ReplicationError.notAReplica`, `.otherStream`, and `.diverged` if somebody else has
    /// written to it.
    package init(opening location: StoreLocation, stream: String) throws {
        throw ReplicationError.notAReplica(location.path)
    }

    /// Places a snapshot as a new replica. The file is moved, after its hash, its structure and what it says of itself
    /// were checked. Throws `ReplicationError.exists` if there is a store at `location`, `.malformedSnapshot`.
    package static func create(_ location: StoreLocation, from snapshot: Snapshot, stream: String) throws -> Replica {
        throw ReplicationError.exists(location.path)
    }

    /// Takes the next part. A batch is committed with its last part, if it is whole and true; before, nothing of it
    /// shows. After an error or another outcome than `partial`, nothing of the batch remains.
    ///
    /// Throws `ReplicationError.diverged`, `.malformedBatch`, `StoreError`, of which `.busy` may be tried again with the
    /// batch's first part.
    package func apply(_ part: BatchPart) throws -> Outcome { throw ReplicationError.notAReplica(location.path) }

    /// Gives up the batch that is being taken, if there is one.
    package func abandonBatch() {}

    /// Throws `ReplicationError.diverged` if somebody else has written to the replica.
    package func check() throws { throw ReplicationError.notAReplica(location.path) }

    /// Replaces the whole content by a snapshot's, in one transaction; readers keep their connections. The replica's
    /// own named subscribers stay. The snapshot's file is changed, and is the caller's to remove.
    ///
    /// - Parameter discardingOwnWrites: True to go on although somebody else has written to the replica.
    package func replace(with snapshot: Snapshot, discardingOwnWrites: Bool = false) throws {
        throw ReplicationError.notAReplica(location.path)
    }

    /// Makes a replica a home: a new history begins with its content, and the old tokens are void. Returns the new
    /// history's token. No `Replica` may be open. Throws `ReplicationError.notAReplica`.
    package static func promote(_ location: StoreLocation) throws -> HistoryToken {
        throw ReplicationError.notAReplica(location.path)
    }
}
