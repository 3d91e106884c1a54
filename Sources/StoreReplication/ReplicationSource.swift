import PersistentHistory
import SQLiteFormat
import SQLiteStore

/// The home of a store whose changes are sent to replicas. It reads without leaving a trace, and holds no connection
/// between its calls. Confined to one thread.
///
/// While it reads, this process must have no connection of its own to the store (`StoreReader`).
package final class ReplicationSource {
    package let location: StoreLocation

    /// Checks that replicas of the store can be kept: it keeps groupstore's own history, and every table can be
    /// recorded and written without the app. Throws `ReplicationError`, `HistoryError`, `StoreError`, `SystemError`.
    package init(_ location: StoreLocation) throws {
        self.location = location
    }

    /// Returns the token of the store's last change.
    package func current() throws -> HistoryToken { throw ReplicationError.notAReplica(location.path) }

    /// Returns the oldest token after which a batch can be read: the changes after it are all there, none of them is a
    /// gap, and all are of tables that are still recorded.
    package func oldest() throws -> HistoryToken { throw ReplicationError.notAReplica(location.path) }

    /// Throws `StoreHistory.Discontinuity` if no batch can be read after the token: `epoch` if another history or a
    /// restored store assigned it.
    package func check(_ token: HistoryToken) throws { throw ReplicationError.notAReplica(location.path) }

    /// Reads one batch in one read transaction, and then passes its parts on, in order. Returns the batch's `upto`, or
    /// nil if nothing has changed since the token; the first batch of this object is sent even then, because what
    /// history doesn't record (`user_version`, `sqlite_sequence`) may have changed before.
    ///
    /// `send` runs after the store was let go: a slow broker holds up no writer and no checkpoint. What it throws ends
    /// the call. The batch waits in memory, or if it is long in a file without a name.
    ///
    /// Throws `StoreHistory.Discontinuity` as `check` does, `ReplicationError` if the store can't be replicated any
    /// more, `HistoryError.outdated`, `StoreError`, `SystemError`.
    package func batch(
        after token: HistoryToken, maxPartSize: Int = BatchPart.maxBodySize, send: (BatchPart) throws -> Void
    ) throws -> HistoryToken? { throw ReplicationError.notAReplica(location.path) }

    /// Records that a follower has all changes up to the token, under the subscriber `relay:NAME:FOLLOWER`.
    package func acknowledge(_ token: HistoryToken, by subscriber: String) throws {
        try HistoryMaintenance(location).acknowledge(token, by: subscriber)
    }
}
