import PersistentHistory
import SQLiteStore

/// Records changes of one table's rows in a history, as the history's triggers would (`HistoryTriggers`).
final class ChangeRecord {
    /// The number of bits in `GS_CHANGE.columns`.
    static let maxColumns = ReplicatedTable.maxRecordedColumns

    private let table: ReplicatedTable
    private let database: ReplicaConnection
    private let encoding: TextEncoding
    private let texts: BoundValueTable
    private var insertions: [String: SQLiteStatement] = [:]
    /// The parameters before those of the key: the table's number, the operation, the columns and the time.
    private static let others = 4

    init(_ table: ReplicatedTable, _ database: ReplicaConnection, encoding: TextEncoding) {
        (self.table, self.database, self.encoding) = (table, database, encoding)
        texts = BoundValueTable(database)
    }

    /// Records a change of the row with this key.
    ///
    /// - Parameters:
    ///   - columns: The bits of the columns that an update assigned; nil for another operation.
    ///   - time: The Julian day.
    func add(_ operation: HistoryChange.Operation, _ key: [StoredValue], columns: Int64?, time: Double) throws {
        var sink = CollectingSink(encoding: encoding)
        sink.integer(table.number)
        sink.integer(operation.rawValue)
        if let columns { sink.integer(columns) } else { sink.null() }
        sink.real(time)
        for value in key { try value.pass(to: &sink) }
        let values = try texts.keep(sink)
        let sql = insertion(sink.kept)
        let statement = try insertions[sql] ?? database.prepare(sql)
        // As many as there are combinations of columns in a key, in the worst case.
        if insertions.count > 64 { insertions = [:] }
        insertions[sql] = statement
        defer { statement.reset() }
        try statement.bind(stored: values)
        _ = try statement.step()
    }

    private func insertion(_ kept: [Int: BoundValueTable.Kind]) -> String {
        let first = Self.others + 1
        let key =
            table.rowid != nil
            ? "?\(first)"
            : ReplicatedTable.quotedKey(
                table.key.indices.map { BoundValueTable.value(ofParameter: first + $0, kept[Self.others + $0]) })
        return "INSERT INTO main.GS_CHANGE (table_id, operation, columns, time, key, nonce) "
            + "VALUES (?1, ?2, ?3, ?4, \(key), random())"
    }
}
