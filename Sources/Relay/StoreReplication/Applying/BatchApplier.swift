import PersistentHistory
import SQLiteStore

/// The reason why a valid batch can't be applied to the replica's present state.
struct BatchRefusal: Error {
    let outcome: Replica.Outcome
}

/// Applies the lines of one batch, inside one transaction of the replica.
///
/// The lines come in this order: the opening; the history; `history_tables`; per table its line and its rows, deleted
/// keys of all tables first; whole contents of virtual tables; `sequence`; the ending.
final class BatchApplier {
    private enum Stage: Int {
        case opening, history, rows, sequence, ended
    }

    private let database: ReplicaConnection
    private let batch: IncomingBatch
    private let state: ReplicaState
    private let found: RecordedPosition
    private let encoding: TextEncoding
    private let history: HistoryWriter
    private let tables: ReplicaTables
    private var writer: RowWriter?
    /// The names of the tables whose rows were written.
    private var written: Set<[UInt8]> = []
    /// The virtual table whose rows are being written, and the digest that its content must have.
    private var awaited: (content: ContentsReading, sha256: String)?
    private var stage = Stage.opening
    private var opening: BatchOpening?
    private var rows: Int64 = 0
    private var scanner = LineScanner()

    init(
        _ batch: IncomingBatch, to database: ReplicaConnection, in state: ReplicaState, _ tables: ReplicaTables
    ) throws {
        (self.batch, self.database, self.state, self.tables) = (batch, database, state, tables)
        found = try RecordedPosition(database)
        encoding = tables.encoding
        history = try HistoryWriter(database, state, from: batch.from, encoding: encoding)
    }

    /// Applies everything, and returns the replica's state after it; the caller writes that and commits. Throws
    /// `BatchRefusal`, `MalformedLine`, `StoreError`, after which the transaction must be rolled back.
    func run() throws -> ReplicaState {
        try batch.forEachLine { bytes in
            scanner.begin(bytes)
            try apply(&scanner)
        }
        guard let opening, let ending = batch.ending, stage == .ended else {
            throw MalformedLine(what: "the batch has no ending", position: 0)
        }
        try tables.rebuildIndexes(ofTables: written)
        try history.purge(upTo: opening.trimmed, nonce: opening.trimmedNonce)
        try setNumber("user_version", opening.userVersion)
        try setNumber("application_id", opening.applicationID)
        guard rows == ending.rows, history.count == ending.changes else {
            throw MalformedLine(
                what: "\(rows) rows and \(history.count) changes are not what the ending says", position: 0)
        }
        // A second proof: the position as the database now has it, not as it was passed to it.
        let now = try RecordedPosition(database)
        guard now.number == batch.upto.number, now.nonce == batch.upto.nonce, now.identifier == batch.upto.history
        else { throw MalformedLine(what: "the last change isn't that of upto", position: 0) }
        return ReplicaState(
            stream: state.stream, position: batch.upto, schema: state.schema, lastRow: max(now.lastRow, state.lastRow),
            batch: ending.sha256)
    }

    private func apply(_ line: inout LineScanner) throws {
        if stage == .rows, line.take("{\"type\":\"row\"") {
            guard let writer else { throw line.malformed("a table was expected") }
            rows += 1
            return try writer.apply(&line)
        }
        switch stage {
        case .opening: try open(&line)
        case .history where line.begins(with: "{\"type\":\"history\""): try history.apply(&line)
        case .history:
            try history.finish(upto: batch.upto)
            try HistoryTablesLine(&line).write(database)
            stage = .rows
        case .rows where line.begins(with: "{\"type\":\"table\""): try begin(BatchTableLine(&line), line)
        case .rows where line.begins(with: "{\"type\":\"contents\""):
            try begin(BatchContentsLine(&line), line)
        case .rows where line.begins(with: "{\"type\":\"sequence\""):
            try checkContents()
            try SequenceLine(&line).write(database)
            stage = .sequence
        case .rows, .sequence:
            try checkContents()
            _ = try BatchEnding(&line)
            stage = .ended
        case .ended: throw line.malformed("the batch goes on after its ending")
        }
    }

    private func open(_ line: inout LineScanner) throws {
        let opening = try BatchOpening(&line)
        guard opening.from == batch.from, opening.upto == batch.upto, opening.schema == batch.schema,
            opening.encoding == encoding.rawValue
        else { throw line.malformed("the opening says something else than the message") }
        guard opening.trimmed <= opening.upto.number, opening.trimmed >= 0 else {
            throw line.malformed("more is purged than there is")
        }
        guard opening.version == found.version else { throw BatchRefusal(outcome: .schemaChanged) }
        self.opening = opening
        stage = .history
    }

    private func begin(_ table: BatchTableLine, _ line: LineScanner) throws {
        guard let writer = try tables.writer(of: table) else {
            throw line.malformed("the replica has no such table \(table.table)")
        }
        written.insert(Array(table.table.utf8))
        self.writer = writer
    }

    /// Begins the rows of a virtual table; or if there are none, compares what the replica has.
    private func begin(_ line: BatchContentsLine, _ scanner: LineScanner) throws {
        try checkContents()
        guard let content = tables.contents(of: line.table) else {
            throw scanner.malformed("the replica has no such virtual table \(line.table.table)")
        }
        writer = nil
        let name = Array(line.table.table.utf8)
        guard line.rows == nil else {
            writer = try tables.emptied(content)
            awaited = (content, line.sha256)
            return
        }
        let known = try tables.digests[name] ?? content.digest().sha256
        guard known == line.sha256 else {
            // An earlier batch with these rows was lost; or this is an older one that leads here.
            throw BatchRefusal(outcome: batch.upto == state.position ? .skipped : .gap)
        }
        tables.digests[name] = known
    }

    /// Compares the digest of the written virtual table with that in its line.
    private func checkContents() throws {
        guard let (content, sha256) = awaited else { return }
        awaited = nil
        guard try content.digest().sha256 == sha256 else {
            throw MalformedLine(what: "the content of \(content.table.name) isn't what its line says", position: 0)
        }
        tables.digests[Array(content.table.name.utf8)] = sha256
    }

    private func setNumber(_ pragma: String, _ value: Int64) throws {
        if try database.integer("PRAGMA main.\(pragma)") != value {
            try database.execute("PRAGMA main.\(pragma) = \(value)")
        }
    }
}
