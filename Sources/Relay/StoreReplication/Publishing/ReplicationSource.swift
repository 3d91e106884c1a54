import PersistentHistory
import SQLiteFormat
import SQLiteStore
import Synchronization
import SystemPackage

/// The home of a store whose changes are sent to replicas, or the mirror of a home that keeps no history. It reads
/// without leaving a trace. Between batches that soon follow each other it holds a connection, which `closeIfIdle`
/// ends. Confined to one thread.
///
/// While it reads or holds a connection, this process must have no connection of its own to the store (`StoreReader`).
package final class ReplicationSource {
    /// The store with the history: the home, or its mirror.
    package let location: StoreLocation
    private let mirror: StoreMirror?
    /// The identifiers of the histories of the home's former mirror.
    private let formerHistories: [String]
    /// The state that the last batch carried beside its changes; nil before the first.
    private var knownExtras: BatchContent.Known?
    private var known: ReplicableStore
    /// The number of snapshots that were made before the last batch.
    private var knownSnapshots = 0
    private let batches: ReusableReader

    /// Checks that the store can be replicated: it keeps groupstore's own history, and every table can be recorded and
    /// written without the app. Throws `ReplicationError`, `HistoryError`, `StoreError`, `SystemError`.
    ///
    /// - Parameter formerHistories: The histories of the mirror that was published before the store kept a history.
    package convenience init(_ location: StoreLocation, formerHistories: [String] = []) throws {
        try self.init(location, mirror: nil, formerHistories: formerHistories)
    }

    /// Brings the mirror to the home's present state, and checks that it can be replicated. Throws like the other
    /// initializer.
    package convenience init(_ mirror: StoreMirror) throws {
        try mirror.advance()
        try self.init(mirror.location, mirror: mirror, formerHistories: [])
    }

    private init(_ location: StoreLocation, mirror: StoreMirror?, formerHistories: [String]) throws {
        (self.location, self.mirror, self.formerHistories) = (location, mirror, formerHistories)
        batches = ReusableReader(location)
        known = try StoreReader.read(location) { try ReplicableStore($0, home: mirror?.homePath) }
    }

    /// The path of the home, which errors name.
    package var path: FilePath { mirror?.homePath ?? location.path }

    /// True if a mirror of the home has assigned the tokens of this history, now or before it was made anew. The
    /// changes after the tokens of a former history are unknown.
    package func hasAssigned(tokensOf history: String) -> Bool {
        mirror?.has(history: history) ?? formerHistories.contains(history)
    }

    /// The reason for which the mirror was last made; nil if there is none, or it was there.
    package var renewal: StoreMirror.Renewal? { mirror?.renewal }

    /// Brings the mirror to the home's present state, if there is one. Throws as `StoreMirror.advance`.
    private func advance() throws {
        guard let mirror else { return }
        close()
        try mirror.advance()
    }

    /// Proves that a mirror is what its home is, before a snapshot is made of it. Throws as `StoreMirror.prove`.
    package func prove() throws {
        guard let mirror else { return }
        close()
        try mirror.prove()
    }

    /// Records that something other than known transactions may have written the home.
    package func recordOtherWrites() { mirror?.recordOtherWrites() }

    /// Removes old changes of a mirror's history. Call it when all of them are published. Throws as
    /// `StoreMirror.purge`.
    package func purge() throws {
        guard let mirror else { return }
        close()
        try mirror.purge()
    }

    /// True if it has a connection.
    package var isOpen: Bool { batches.isOpen }
    /// Closes its connection if it wasn't used for `ReusableReader.idleTimeout`.
    package func closeIfIdle() { batches.closeIfIdle() }
    /// Closes its connection.
    package func close() { batches.close() }

    private func read<Success>(_ body: (StoreReader) throws -> Success) throws -> Success {
        close()
        return try StoreReader.read(location, body)
    }

    /// Returns the token of the store's last change.
    package func current() throws -> HistoryToken {
        try read { try StoreHistory($0).current() }
    }

    /// Returns what the store's own history shows now.
    package func look() throws -> HistoryLook {
        try read { try HistoryLook($0) }
    }

    /// Returns the oldest token after which a batch can be read: the changes after it are all there, none of them is a
    /// gap, and all are of tables whose triggers were not made again since.
    package func oldest() throws -> HistoryToken {
        try read { reader in
            let history = try StoreHistory(reader)
            let start = try history.start()
            guard let last = try RecordedPosition.lastBreak(after: start.number, reader) else { return start }
            return history.position(last.number, last.nonce, start.history)
        }
    }

    /// Throws `StoreHistory.Discontinuity` if no batch can be read after the token: `epoch` if another history or a
    /// restored store assigned it, `trimmed` or `gap` if `oldest` is later.
    package func check(_ token: HistoryToken) throws {
        try read { reader in
            try StoreHistory(reader).check(token)
            if try RecordedPosition.lastBreak(after: token.number, reader) != nil {
                throw StoreHistory.Discontinuity.gap
            }
        }
    }

    /// Reads one batch in one read transaction. Returns nil if nothing has changed since the token; the first batch of
    /// this object, and the first after a snapshot, is read even then, because what history doesn't record
    /// (`user_version`, `sqlite_sequence`) may have changed before.
    ///
    /// Throws `StoreHistory.Discontinuity` as `check` does, `ReplicationError` if the store can't be replicated any
    /// more, `HistoryError.outdated`, `StoreError`, `SystemError`.
    package func read(after token: HistoryToken) throws -> UnsentBatch? {
        try advance()
        let snapshots = Snapshot.made.withLock { $0[location.path] ?? 0 }
        if snapshots != knownSnapshots { knownExtras = nil }
        // If the store's files changed meanwhile, the body runs again.
        let batch = try batches.read { reader in
            known = try ReplicableStore(reader, known: known, home: mirror?.homePath)
            return try BatchContent(
                reader, of: known, StoreHistory(reader), after: token, known: knownExtras)
        }
        return batch.map { UnsentBatch(from: token, content: $0, snapshots: snapshots) }
    }

    /// Notes that all of a batch was sent, so that the next one carries only differences.
    package func note(sent batch: UnsentBatch) {
        (knownExtras, knownSnapshots) = (batch.content.extras, batch.snapshots)
    }

    /// Reads one batch, and then passes its parts on, in order. Returns the batch's `upto`, or nil like `read`.
    ///
    /// `send` runs after the store was released, so a slow broker delays no writer and no checkpoint. Throws as `read`
    /// and `send` do.
    package func batch(
        after token: HistoryToken, maxPartSize: Int = BatchPart.maxBodySize, send: (BatchPart) throws -> Void
    ) throws -> HistoryToken? {
        guard let batch = try read(after: token) else { return nil }
        try batch.forEachPart(maxSize: maxPartSize, send)
        note(sent: batch)
        return batch.upto
    }

    /// Records that a follower has all changes up to the token, under the subscriber `relay:NAME:FOLLOWER`.
    package func acknowledge(_ token: HistoryToken, by subscriber: String) throws {
        close()
        try HistoryMaintenance(location).acknowledge(token, by: subscriber)
    }
}
