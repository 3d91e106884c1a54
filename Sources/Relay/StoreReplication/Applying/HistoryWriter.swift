import PersistentHistory
import SQLiteStore

/// Writes the rows of a home's `GS_CHANGE`, and proves with them that the batch continues this replica's own history:
/// the replica's position, number and nonce, must be `from` or among the rows, and each row that the replica already
/// has must have the same nonce. A home that was restored from a backup assigns the same numbers again, but with other
/// nonces.
final class HistoryWriter {
    private let database: ReplicaConnection
    private let state: ReplicaState
    private let from: HistoryToken
    private let encoding: TextEncoding
    private let texts: BoundValueTable
    private let insertion: SQLiteStatement
    private let nonce: SQLiteStatement
    /// The number of rows that were read.
    private(set) var count: Int64 = 0
    private var lastNumber: Int64
    /// The last row that is a change.
    private var lastChange: (number: Int64, nonce: Int64)?
    /// True if the replica's position is in the history that the batch continues.
    private var isContinuation: Bool

    /// The lowest operation of rows that aren't changes.
    private static let assignment: Int64 = 4

    init(_ database: ReplicaConnection, _ state: ReplicaState, from: HistoryToken, encoding: TextEncoding) throws {
        (self.database, self.state, self.from, self.encoding) = (database, state, from, encoding)
        texts = BoundValueTable(database)
        insertion = try database.prepare(Self.insertion())
        nonce = try database.prepare("SELECT nonce FROM main.GS_CHANGE WHERE number = ?1")
        lastNumber = from.number
        isContinuation = from.number == state.position.number && from.nonce == state.position.nonce
    }

    /// Reads a line with rows. Throws `MalformedLine`, `BatchRefusal`, `StoreError`.
    func apply(_ line: inout LineScanner) throws {
        try line.expect("{\"type\":\"history\",\"rows\":[")
        repeat { try applyRow(&line) } while line.take(",")
        try line.expect("]}")
        try line.end()
    }

    private static func insertion(kept: [Int: BoundValueTable.Kind] = [:]) -> String {
        let values = (1...8).map { BoundValueTable.value(ofParameter: $0, kept[$0 - 1]) }
        return "INSERT INTO main.GS_CHANGE (number, table_id, operation, key, columns, nonce, time, author) "
            + "VALUES (\(values.joined(separator: ", ")))"
    }

    private func applyRow(_ line: inout LineScanner) throws {
        let start = line.position
        do {
            var sink = BindingSink(insertion, convertsText: encoding != .utf8)
            let change = try readRow(&line, into: &sink)
            try add(change, by: insertion)
        } catch is UnbindableValue {
            line.rewind(to: start)
            var sink = CollectingSink(encoding: encoding)
            let change = try readRow(&line, into: &sink)
            let values = try texts.keep(sink)
            let statement = try database.prepare(Self.insertion(kept: sink.kept))
            try statement.bind(stored: values)
            try add(change, by: statement)
        }
    }

    private struct Change {
        let number: Int64
        let nonce: Int64
        let isChange: Bool
    }

    private func readRow(_ line: inout LineScanner, into sink: inout some ValueSink) throws -> Change {
        try line.expect("[")
        let number = try line.integer()
        try line.expect(",")
        let table = try line.integer()
        try line.expect(",")
        let operation = try line.integer()
        guard number > lastNumber, 0...5 ~= operation else { throw line.malformed("a change is out of order") }
        try sink.integer(number)
        try sink.integer(table)
        try sink.integer(operation)
        for _ in ["key", "columns"] {
            try line.expect(",")
            try line.value(into: &sink)
        }
        try line.expect(",")
        let nonce = try line.anyInteger()
        try sink.integer(nonce)
        for _ in ["time", "author"] {
            try line.expect(",")
            try line.value(into: &sink)
        }
        try line.expect("]")
        return Change(number: number, nonce: nonce, isChange: operation < Self.assignment)
    }

    private func add(_ change: Change, by insertion: SQLiteStatement) throws {
        let (number, nonce) = (change.number, change.nonce)
        count += 1
        lastNumber = number
        if change.isChange { lastChange = (number, nonce) }
        if number == state.position.number {
            guard nonce == state.position.nonce else { throw BatchRefusal(outcome: .otherHistory) }
            isContinuation = true
        }
        if number <= state.lastRow {
            // The replica has this row, unless its own purge has removed it.
            defer { self.nonce.reset() }
            try self.nonce.bind(number, at: 1)
            if try self.nonce.step(), self.nonce.integer(0) != nonce { throw BatchRefusal(outcome: .otherHistory) }
            return
        }
        defer { insertion.reset() }
        _ = try insertion.step()
    }

    /// Checks, after the last row, that the history continues the replica's own, and ends at `upto`.
    func finish(upto: HistoryToken) throws {
        guard isContinuation else { throw BatchRefusal(outcome: .otherHistory) }
        guard lastChange?.number ?? from.number == upto.number, lastChange?.nonce ?? from.nonce == upto.nonce else {
            throw MalformedLine(what: "the changes don't end with upto", position: 0)
        }
    }

    /// Purges the changes that the home has purged, as far as the replica's own subscribers have acknowledged them.
    func purge(upTo trimmed: Int64, nonce: Int64) throws {
        let former = try RecordedPosition(database).trimmed
        guard trimmed > former else { return }
        let slowest = try database.prepare(
            "SELECT number FROM main.GS_SUBSCRIBER WHERE number < ? ORDER BY number LIMIT 1", [.integer(trimmed)])
        guard try slowest.step() else { return try record(trimmed, nonce) }
        let number = slowest.integer(0)
        let own = try database.integer("SELECT nonce FROM main.GS_CHANGE WHERE number = ?", [.integer(number)])
        if let own, number > former { try record(number, own) }
    }

    private func record(_ number: Int64, _ nonce: Int64) throws {
        try database.execute(
            "UPDATE main.GS_HISTORY SET trimmed = ?, trimmed_nonce = ?", [.integer(number), .integer(nonce)])
        try database.execute("DELETE FROM main.GS_CHANGE WHERE number <= ?", [.integer(number)])
    }
}
