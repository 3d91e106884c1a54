import PersistentHistory
import RowShadow
import SQLiteFormat
import SQLiteStore

/// Writes the rows of a shadow's steps into a mirror, and records them in its history, inside one transaction.
final class MirrorWriter {
    /// The rows of a step aren't known, can't be written again as they are, or are of tables that the mirror doesn't
    /// have.
    struct UnknownRows: Error {}

    private let database: ReplicaConnection
    private let encoding: TextEncoding
    private let tables: [[UInt8]: ReplicatedTable]
    /// The names of the tables in which some rows may not be written again as they are.
    private let unrepeatable: Set<[UInt8]>
    private var writers: [[UInt8]: MirrorTableWriter] = [:]

    init(_ database: ReplicaConnection, _ schema: DatabaseSchema) throws {
        self.database = database
        encoding = try TextEncoding(database)
        unrepeatable = Set(schema.tablesByName.filter(UnrepeatableRows.isConcerned).map { Array($0.name.utf8) })
        tables = Dictionary(
            ReplicatedTable.stored(schema).map { (Array($0.name.utf8), $0) }, uniquingKeysWith: { first, _ in first })
    }

    /// The number of the last change that was recorded; 0 if there is none.
    private(set) var lastChange: Int64 = 0

    /// Writes the rows of a step. Throws `UnknownRows`, `StoreError`, `RowShadowError`, `SystemError`, after which the
    /// transaction must be rolled back.
    func apply(_ reader: StepReader) throws {
        guard reader.step.kind != .gap, TextEncoding(reader.step.encoding) == encoding else { throw UnknownRows() }
        // SQLite's time of day, as the triggers of a history record it (https://sqlite.org/lang_datefunc.html).
        let time = reader.step.time / 86_400 + 2_440_587.5
        var writer: MirrorTableWriter?
        try reader.forEach { logged in
            try writer?.finish()
            guard let definition = logged.after, logged.before == definition else { throw UnknownRows() }
            writer = try self.writer(definition, hasRowids: logged.hasRowids)
            writer?.time = time
        } row: { row in
            try writer?.add(row)
        }
        try writer?.finish()
        for writer in writers.values { lastChange = max(lastChange, writer.lastChange) }
    }

    /// Compares rows that SQLite may have written otherwise with those of the home, which is attached. Throws
    /// `UnknownRows` if they differ.
    func check() throws {
        for writer in writers.values { try writer.check() }
    }

    private func writer(_ definition: LoggedTable.Definition, hasRowids: Bool) throws -> MirrorTableWriter {
        let name = Array(definition.name.utf8)
        if let known = writers[name] { return known }
        guard let table = tables[name], (table.rowid != nil) == hasRowids else { throw UnknownRows() }
        let stored = try StoredTable(name: definition.name, creation: definition.sql, encoding: encoding)
        guard stored.columns.elementsEqual(table.columns, by: { $0.utf8.elementsEqual($1.utf8) }) else {
            throw UnknownRows()
        }
        let writer = try MirrorTableWriter(
            table, stored, database, encoding: encoding, computes: unrepeatable.contains(name))
        writers[name] = writer
        return writer
    }
}

/// Writes the rows of one table.
private final class MirrorTableWriter {
    var time = 0.0
    private(set) var lastChange: Int64 = 0
    private let table: ReplicatedTable
    private let stored: StoredTable
    private let database: ReplicaConnection
    private let rows: RowWriter
    private let record: ChangeRecord?
    private let encoding: TextEncoding
    /// True if SQLite computes something from the values that are written.
    private let computes: Bool
    /// True if it may have computed something else than at home.
    private var isDoubtful = false
    /// The rows of a table WITHOUT ROWID, which are paired by their keys once all are known: a changed row is one that
    /// went and one that came.
    private var gone: [(key: [StoredValue], values: [StoredValue])] = []
    private var came: [(key: [StoredValue], values: [StoredValue])] = []

    init(
        _ table: ReplicatedTable, _ stored: StoredTable, _ database: ReplicaConnection, encoding: TextEncoding,
        computes: Bool
    ) throws {
        (self.table, self.stored, self.database, self.encoding) = (table, stored, database, encoding)
        self.computes = computes
        rows = try RowWriter(table, database, encoding: encoding)
        // A history records no change of a shadow table: the content of its virtual table is compared.
        record = table.number == 0 ? nil : ChangeRecord(table, database, encoding: encoding)
    }

    func add(_ row: LoggedRow) throws {
        let before = try row.before.map { try values(row.rowid, $0) }
        let after = try row.after.map { try values(row.rowid, $0) }
        guard table.rowid == nil else { return try write([.integer(row.rowid)], before, after) }
        if let before { gone.append((stored.key(rowid: 0, before), before)) }
        if let after { came.append((stored.key(rowid: 0, after), after)) }
    }

    func finish() throws {
        guard !gone.isEmpty || !came.isEmpty else { return }
        var former = Dictionary(gone.map { (KeyBytes($0.key), $0) }, uniquingKeysWith: { first, _ in first })
        let latter = came.map { ($0, former.removeValue(forKey: KeyBytes($0.key))?.values) }
        // Under a column's collation a row that came may have the key of one that went.
        for row in former.values { try write(row.key, row.values, nil) }
        for (row, before) in latter { try write(row.key, before, row.values) }
        (gone, came) = ([], [])
    }

    func check() throws {
        guard isDoubtful else { return }
        let name = table.name.sqlName
        let differing = try database.integer(
            """
            SELECT (SELECT count(*) FROM home.\(name)) <> (SELECT count(*) FROM main.\(name))
            OR EXISTS (SELECT * FROM home.\(name) EXCEPT SELECT * FROM main.\(name))
            """)
        if differing != 0 { throw MirrorWriter.UnknownRows() }
    }

    private func values(_ rowid: Int64, _ record: [UInt8]) throws -> [StoredValue] {
        guard let values = stored.values(rowid: rowid, record) else { throw MirrorWriter.UnknownRows() }
        return values
    }

    private func write(_ key: [StoredValue], _ before: [StoredValue]?, _ after: [StoredValue]?) throws {
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

/// A key as a dictionary's key: Swift takes some different texts for equal.
private struct KeyBytes: Hashable {
    private let bytes: [UInt8]

    init(_ key: [StoredValue]) {
        bytes = key.reduce(into: []) {
            ValueJSON.append($1, to: &$0)
            $0.append(UInt8(ascii: ","))
        }
    }
}
