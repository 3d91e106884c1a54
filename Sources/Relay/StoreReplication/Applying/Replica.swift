import LinuxSystem
import PersistentHistory
import SQLiteFormat
import SQLiteStore

/// A copy of a store that follows its home by change batches. It holds a connection to the copy. Confined to one
/// thread.
///
/// Each batch is one transaction, and with it the replica's position, its row in `GS_REPLICA`. Readers may have the
/// replica open. It is in WAL mode, so that they don't wait.
package final class Replica {
    /// The result of taking a part.
    package enum Outcome: Sendable, Equatable {
        /// The batch is committed; this is the position now.
        case applied(HistoryToken)
        /// The part is taken, and the next one of its batch is awaited. Nothing is committed yet.
        case partial
        /// The replica has these changes already, or the part belongs to a batch that isn't awaited.
        case skipped
        /// The batch ends at a change that the replica has purged. If nothing follows it in the stream, the home may be
        /// on another line than the replica, and must be asked.
        case purged
        /// The batch begins after the position, or has a row that SQLite doesn't accept again, such as one with a NULL
        /// that a foreign key's action let into a key, or one whose full-text index another version of SQLite has
        /// written: a snapshot is needed.
        case gap
        /// The batch is of another history, or of another life of this one: a snapshot is needed.
        case otherHistory
        /// The batch is of another schema, or of other triggers: a snapshot is needed.
        case schemaChanged
    }

    package let location: StoreLocation
    var state: ReplicaState
    let database: ReplicaConnection
    let busyTimeout: Duration
    private var incoming: IncomingBatch?
    /// The file that is open.
    private let file: FileIdentity?
    /// SQLite's count of what other connections have committed, when `state` was last compared with the store.
    private var checkedVersion: Int64?
    /// The statements of earlier batches; nil if the schema may be another one now.
    var tables: ReplicaTables?

    /// The last change that the replica has.
    package var position: HistoryToken { state.position }
    /// The state of its home's schema.
    package var schema: String { state.schema }
    package var stream: String { state.stream }

    /// The log is written back when it is longer than this, in bytes.
    private static let maxLogSize: Int64 = 4 << 20

    /// Opens a replica. Throws `ReplicationError.notAReplica`, `.otherStream`, `.hardLinked`, and `.diverged` if
    /// another program has written to it.
    package init(opening location: StoreLocation, stream: String, busyTimeout: Duration = .seconds(10)) throws {
        (self.location, self.busyTimeout) = (location, busyTimeout)
        try Self.checkLinks(location)
        let database = try ReplicaConnection(location, busyTimeout: busyTimeout)
        self.database = database
        file = try location.directory.status(location.name.database)?.identity
        state = try database.transaction(.deferred) { try ReplicaState(database, ignoringWrites: true) }
        guard state.stream == stream else { throw ReplicationError.otherStream(state.stream, location.path) }
        // Readers would wait for each batch, and batches for readers.
        if try database.text("PRAGMA journal_mode") != "wal" { try database.execute("PRAGMA journal_mode = WAL") }
        try check()
    }

    /// Throws `ReplicationError.hardLinked` if the file has another name: each has a lock and a log of its own, so that
    /// two programs would write one file without knowing of each other.
    static func checkLinks(_ location: StoreLocation) throws {
        let links = try location.directory.status(location.name.database)?.links ?? 1
        if links > 1 { throw ReplicationError.hardLinked(links: links, location.path) }
    }

    /// Takes the next part. The last part commits the batch if it is whole and its hash is right; before, nothing of it
    /// is written. After an error or another outcome than `partial`, nothing of the batch remains.
    ///
    /// Begin with the first batch of the stream whose `upto` is the position or later, else with the last one: it may
    /// carry content that no change records, and that a snapshot with the same position lacks.
    ///
    /// Throws `ReplicationError.diverged`, `.malformedBatch`, `SystemError`, and `StoreError`, of which `.busy` may be
    /// tried again with the batch's first part.
    package func apply(_ part: BatchPart) throws -> Outcome {
        if part.number == 1 {
            incoming = nil
            try check()
            if let outcome = try refusal(of: part) { return outcome }
            incoming = IncomingBatch(part)
        }
        guard let batch = incoming, batch.isFollowed(by: part) else {
            incoming = nil
            return .skipped
        }
        do {
            try batch.add(part)
            guard part.isLast else { return .partial }
            incoming = nil
            // Another batch up to the same change may carry content that no change records.
            if batch.upto == position, batch.ending?.sha256 == state.batch { return .skipped }
            return try commit(batch)
        } catch let refusal as BatchRefusal {
            return refusal.outcome
        } catch let error as StoreError where error.isConstraint || error.isOfVirtualTable {
            return .gap
        } catch let error as MalformedLine {
            incoming = nil
            throw ReplicationError.malformedBatch("\(error.what) (byte \(error.position))", location.path)
        } catch {
            incoming = nil
            throw error
        }
    }

    /// Discards the incomplete batch, if there is one.
    package func abandonBatch() { incoming = nil }

    /// Returns the outcome of a batch that can't be applied by its headers alone; nil if it may be applied. Numbers
    /// order the changes of one line of the history; an equal number with another nonce belongs to another line.
    private func refusal(of part: BatchPart) throws -> Outcome? {
        guard part.from.history == position.history, part.upto.history == position.history else {
            return .otherHistory
        }
        if part.upto.number < position.number { return try comparison(with: part.upto) }
        if part.upto.number == position.number, part.upto.nonce != position.nonce { return .otherHistory }
        if part.from.number > position.number { return .gap }
        if part.from.number == position.number, part.from.nonce != position.nonce { return .otherHistory }
        return part.schema == schema ? nil : .schemaChanged
    }

    /// Compares an earlier change with the replica's own history. A home that was restored from a backup assigns
    /// numbers again that the replica has, too.
    private func comparison(with token: HistoryToken) throws -> Outcome {
        do {
            try database.transaction(.deferred) { try RecordedPosition(database).check(token, database) }
            return .skipped
        } catch StoreHistory.Discontinuity.trimmed {
            return .purged
        } catch is StoreHistory.Discontinuity {
            return .otherHistory
        }
    }

    private func commit(_ batch: IncomingBatch) throws -> Outcome {
        do {
            state = try database.transaction(.immediate) {
                // Others may have written since the first part.
                let now = try currentState()
                guard now == state else { throw BatchRefusal(outcome: .skipped) }
                let tables = try self.tables ?? ReplicaTables(database)
                self.tables = tables
                let next = try BatchApplier(batch, to: database, in: now, tables).run()
                try next.write(database)
                return next
            }
        } catch {
            tables = nil
            if let error = error as? ReplicationError { noteDivergence(error) }
            throw error
        }
        try database.checkpoint(above: Self.maxLogSize, busyTimeout: busyTimeout)
        return .applied(position)
    }

    /// Throws `ReplicationError.diverged` if another program has written to the replica, and `.gone` if another file,
    /// or none, has its name: nobody would read what is applied.
    package func check() throws {
        guard let file, let found = try location.directory.status(location.name.database), found.identity == file
        else { throw ReplicationError.gone(location.path) }
        do {
            let found = try database.transaction(.deferred) { try currentState() }
            guard found.stream == state.stream else { throw ReplicationError.otherStream(found.stream, location.path) }
            state = found
        } catch let error as ReplicationError {
            noteDivergence(error)
            throw error
        }
    }

    /// Returns the state in this transaction, which is the known one if nobody else has committed since. Throws
    /// `ReplicationError.diverged`.
    private func currentState() throws -> ReplicaState {
        let version = try database.dataVersion()
        if version == checkedVersion { return state }
        checkedVersion = nil
        let found = try ReplicaState(database)
        // A state that the caller may reject is read again at the next call.
        if found == state { checkedVersion = version }
        return found
    }

    /// Records a divergence in the replica: the rows that show it may be purged.
    private func noteDivergence(_ error: ReplicationError) {
        guard case .diverged(let tables, _) = error else { return }
        try? database.execute(
            "UPDATE main.GS_REPLICA SET diverged = ? WHERE diverged IS NULL", [.text(tables.joined(separator: ", "))])
    }
}
