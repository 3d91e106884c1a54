import PersistentHistory
import RowShadow
import SQLiteFormat
import SQLiteStore

/// Writes the rows of a shadow's steps into a mirror, and records them in its history, inside one transaction.
final class MirrorWriter {
    /// The rows of a step aren't known, can't be written again as they are, or are of tables that the mirror doesn't
    /// have.
    struct UnknownRows: Error {}

    /// The mirror has another row than the home had before the step: somebody or the disk has changed it.
    struct ForeignRow: Error {}

    private let database: ReplicaConnection
    private let encoding: TextEncoding
    private let schema: DatabaseSchema
    private let tables: [[UInt8]: ReplicatedTable]
    /// The names of the tables in which some rows may not be written again as they are.
    private let unrepeatable: Set<[UInt8]>
    private var writers: [[UInt8]: (table: StoredTable?, rows: MirrorTableWriter)] = [:]

    init(_ database: ReplicaConnection, _ schema: DatabaseSchema) throws {
        (self.database, self.schema) = (database, schema)
        encoding = try TextEncoding(database)
        unrepeatable = Set(schema.tablesByName.filter(UnrepeatableRows.isConcerned).map { Array($0.name.utf8) })
        tables = Dictionary(
            ReplicatedTable.stored(schema).map { (Array($0.name.utf8), $0) }, uniquingKeysWith: { first, _ in first })
    }

    /// The number of the last change that was recorded; 0 if there is none.
    private(set) var lastChange: Int64 = 0

    /// Writes the rows of a step. Throws `UnknownRows`, `ForeignRow`, `StoreError`, `RowShadowError`, `SystemError`,
    /// after which the transaction must be rolled back.
    func apply(_ reader: StepReader) throws {
        guard reader.step.kind != .gap, TextEncoding(reader.step.encoding) == encoding else { throw UnknownRows() }
        // Before any is written: a row may replace another one that has its unique value.
        try forEachRow(reader) { writer, before, after in
            guard try writer.has(before, insteadOf: after) else { throw ForeignRow() }
        }
        // SQLite's time of day, as the triggers of a history record it (https://sqlite.org/lang_datefunc.html).
        let time = reader.step.time / 86_400 + 2_440_587.5
        try forEachRow(reader) { writer, before, after in
            writer.time = time
            try writer.add(before, after)
        }
        for writer in writers.values { lastChange = max(lastChange, writer.rows.lastChange) }
    }

    /// Calls `body` with each row of a step.
    private func forEachRow(
        _ reader: StepReader, _ body: (MirrorTableWriter, _ before: MirrorRow?, _ after: MirrorRow?) throws -> Void
    ) throws {
        var current: (table: StoredTable, rows: MirrorTableWriter)?
        try reader.forEach { logged in
            guard let definition = logged.after, logged.before == definition else { throw UnknownRows() }
            current = try self.writer(definition, hasRowids: logged.hasRowids)
        } row: { row in
            guard let (table, writer) = current else { throw UnknownRows() }
            func decoded(_ record: [UInt8]) throws -> MirrorRow {
                guard let values = table.values(rowid: row.rowid, record) else { throw UnknownRows() }
                return MirrorRow(key: table.key(rowid: row.rowid, values), values: values)
            }
            try body(writer, row.before.map(decoded), row.after.map(decoded))
        }
    }

    /// Makes the rows those of the home, which is attached and has the mirror's schema, and records those that differ.
    /// Throws `MirrorComparison.TooManyDifferences`, and as `apply`.
    func adoptHome() throws {
        let time = try database.prepare("SELECT julianday('now')")
        guard try time.step() else { throw UnknownRows() }
        for (name, table) in tables {
            let differences = try MirrorComparison(table, schema).differences(database, encoding: encoding)
            if differences.isEmpty { continue }
            let writer = try rows(of: table)
            writers[name] = (nil, writer)
            writer.time = time.real(0)
            for difference in differences where !difference.hasOneKey { try writer.add(difference.mirror, nil) }
            for difference in differences where difference.home != nil {
                try writer.add(difference.hasOneKey ? difference.mirror : nil, difference.home)
            }
            writer.isDoubtful = true
            lastChange = max(lastChange, writer.lastChange)
        }
    }

    /// Compares rows that SQLite may have written otherwise with those of the home, which is attached. Throws
    /// `UnknownRows` if they differ.
    func check() throws {
        for writer in writers.values where writer.rows.isDoubtful {
            guard try MirrorComparison(writer.rows.table, schema).areEqual(database) else { throw UnknownRows() }
        }
    }

    private func writer(
        _ definition: LoggedTable.Definition, hasRowids: Bool
    ) throws -> (table: StoredTable, rows: MirrorTableWriter) {
        let name = Array(definition.name.utf8)
        if let known = writers[name], let table = known.table { return (table, known.rows) }
        guard let table = tables[name], (table.rowid != nil) == hasRowids else { throw UnknownRows() }
        let stored = try StoredTable(name: definition.name, creation: definition.sql, encoding: encoding)
        guard stored.columns.elementsEqual(table.columns, by: { $0.utf8.elementsEqual($1.utf8) }) else {
            throw UnknownRows()
        }
        let writer = try rows(of: table)
        writers[name] = (stored, writer)
        return (stored, writer)
    }

    private func rows(of table: ReplicatedTable) throws -> MirrorTableWriter {
        try MirrorTableWriter(
            table, database, encoding: encoding, computes: unrepeatable.contains(Array(table.name.utf8)))
    }
}

/// Writes the rows of one table.
private final class MirrorTableWriter {
    let table: ReplicatedTable
    var time = 0.0
    private(set) var lastChange: Int64 = 0
    /// True if SQLite may have computed something else than at home.
    var isDoubtful = false
    private let database: ReplicaConnection
    private let rows: RowWriter
    private let record: ChangeRecord?
    private let encoding: TextEncoding
    /// True if SQLite computes something from the values that are written.
    private let computes: Bool
    private var selections: [Set<Int>: SQLiteStatement] = [:]

    init(_ table: ReplicatedTable, _ database: ReplicaConnection, encoding: TextEncoding, computes: Bool) throws {
        (self.table, self.database, self.encoding, self.computes) = (table, database, encoding, computes)
        rows = try RowWriter(table, database, encoding: encoding)
        // A history records no change of a shadow table: the content of its virtual table is compared.
        record = table.number == 0 ? nil : ChangeRecord(table, database, encoding: encoding)
    }

    /// Returns true if the mirror has a row as it was before a change, or none if there was none.
    func has(_ before: MirrorRow?, insteadOf after: MirrorRow?) throws -> Bool {
        guard let key = (before ?? after)?.key else { return true }
        // One that came may have the key of one that went. A key that can't be bound is compared with the snapshot.
        if table.rowid == nil, before == nil || encoding != .utf8 && key.contains(where: \.hasBytes) { return true }
        let reals = table.rowid == nil ? Set(key.indices.filter { key[$0].isReal }) : []
        let selection = try selections[reals] ?? database.prepare(RowStatements.selection(table, reals: reals))
        selections[reals] = selection
        defer { selection.reset() }
        try selection.bind(key: key, quoted: [], reals: reals)
        guard try selection.step() else { return before == nil }
        guard let before else { return false }
        return before.values.indices.allSatisfy {
            before.values[$0].isIdentical(to: selection.storedValue(Int32($0), encoding: encoding))
        }
    }

    /// Writes a row, which is none afterwards if `after` is nil. Both have the same key. In a table WITHOUT ROWID, add
    /// the rows that are gone first: under a column's collation a row that came may have the key of one that went.
    func add(_ before: MirrorRow?, _ after: MirrorRow?) throws {
        guard let key = (after ?? before)?.key else { return }
        let (before, after) = (before?.values, after?.values)
        var columns: Int64 = 0
        if let before, let after {
            // Equal values may be stored otherwise.
            let differing = zip(before, after).enumerated().filter { !$1.0.isIdentical(to: $1.1) }.map(\.offset)
            if differing.isEmpty { return }
            columns = differing.reduce(0) { $1 < ChangeRecord.maxColumns ? $0 | 1 << Int64($1) : $0 }
        }
        if computes, let after {
            if encoding != .utf8, after.contains(where: \.hasBytes) { throw MirrorWriter.UnknownRows() }
            isDoubtful = isDoubtful || after.contains { $0.isReal || $0.hasBytes }
        }
        if let after { try rows.write(key, after) } else { try rows.delete(key) }
        guard let record else { return }
        let operation: HistoryChange.Operation = after == nil ? .delete : before == nil ? .insert : .update
        try record.add(operation, key, columns: operation == .update ? columns : nil, time: time)
        lastChange = database.lastInsertedRow
    }
}

extension StoredValue {
    /// True for a BLOB, and for a text that SQLite may convert.
    fileprivate var hasBytes: Bool {
        switch self {
        case .null, .integer, .real: false
        case .blob, .malformedText: true
        case .text(let text): text.utf8.contains { $0 == 0 || $0 > 0x7F }
        }
    }
}
