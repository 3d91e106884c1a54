import CoreDataStore
import SQLiteStore

/// The objects of Core Data's own history. It records an object whose many-to-many relationship changed, not the rows
/// that keep the relationship: they come with the object.
final class CoreDataBatchSource: BatchSource {
    private let history: CoreDataHistory
    private let reader: StoreReader
    private let encoding: TextEncoding
    private let model: PropertyColumns?
    /// The tables and their lookups by entity number.
    private var known: [Int64: (table: BatchTable, lookup: RowLookup)] = [:]
    private var statements: [String: SQLiteStatement] = [:]

    init(_ history: CoreDataHistory, _ reader: StoreReader, encoding: TextEncoding) throws {
        self.history = history
        self.reader = reader
        self.encoding = encoding
        model = try PropertyColumns(reader)
    }

    func values(_ image: [UInt8], of key: RecordedKey) -> [StoredValue]? { nil }

    func forEachChange(
        after number: Int64, image: @escaping (RecordedKey, [UInt8]) -> Void,
        _ body: (HistoryChange, RecordedKey) throws -> Bool
    ) throws {
        try history.forEachChange(after: number) { change in
            guard case .integer(let key)? = change.key.first else { throw StoreHistory.Discontinuity.gap }
            return try body(change, RecordedKey(table: change.entityNumber ?? 0, content: .row(key)))
        }
    }

    func find(_ change: HistoryChange, _ key: RecordedKey) throws -> (
        table: BatchTable, key: [StoredValue], row: FoundRow?
    ) {
        guard case .row(let number) = key.content, !change.table.isEmpty else { throw StoreHistory.Discontinuity.gap }
        let (table, lookup) = try known(key.table, change)
        var row = try lookup.row(number)
        // Core Data gives no number twice. A program that did so has changed the object's entity without a record.
        if let found = row, let index = table.columns.firstIndex(of: "Z_ENT"),
            found.values[index] != .integer(key.table)
        {
            throw StoreHistory.Discontinuity.gap
        }
        if row != nil { row?.toMany = try table.toMany.map { try related($0, to: number) } }
        return (table, [.integer(number)], row)
    }

    private func known(_ number: Int64, _ change: HistoryChange) throws -> (table: BatchTable, lookup: RowLookup) {
        if let found = known[number] { return found }
        guard let recorded = try RecordedTable.read(change.table, in: reader), recorded.alias != nil else {
            throw StoreHistory.Discontinuity.gap
        }
        var table = BatchTable(
            name: change.table, rowid: "rowid", key: [recorded.alias].compactMap(\.self), columns: recorded.columns)
        if let model { table = model.describing(table, entity: number) }
        table = table.with(
            entity: change.entity ?? table.entity, properties: table.properties,
            toMany: change.entity.flatMap { model?.toMany(of: $0) } ?? [])
        let found = (table, RowLookup(recorded, reader, encoding: encoding))
        known[number] = found
        return found
    }

    private func related(_ relationship: BatchTable.ToMany, to number: Int64) throws -> [[StoredValue]] {
        let names = relationship.columns.map(\.sqlName)
        let values = names.dropFirst().map { "r.\($0)" }.joined(separator: ", ")
        let sql = """
            SELECT \(values) FROM main.\(relationship.table.sqlName) AS r NOT INDEXED \
            WHERE r.\(names[0]) = ?1 ORDER BY \(names.dropFirst(2).map { "r.\($0), " }.joined())r.\(names[1])
            """
        let statement = try statements[sql] ?? reader.prepare(sql)
        statements[sql] = statement
        defer { statement.reset() }
        try statement.bind([.integer(number)])
        var rows: [[StoredValue]] = []
        while try statement.step() {
            rows.append((0..<statement.columnCount).map { statement.storedValue($0, encoding: encoding) })
        }
        return rows
    }

    /// Each change names its transaction.
    func addTransactions(_ rows: inout [ChangedRow]) {}

    func unrecordedTables() throws -> [String] {
        var covered = Set(history.entities.values.map { $0.table })
        covered.formUnion(model?.layout.joinTables.map(\.name) ?? [])
        return try DatabaseSchema.tableNames(in: reader).filter {
            !covered.contains($0) && !Self.bookkeeping.contains($0)
        }
    }

    /// Core Data's own tables, which follow from the others or are its own affair.
    private static let bookkeeping: Set<String> = [
        "ACHANGE", "ATRANSACTION", "ATRANSACTIONSTRING", "Z_METADATA", "Z_MODELCACHE", "Z_PRIMARYKEY",
    ]
}
