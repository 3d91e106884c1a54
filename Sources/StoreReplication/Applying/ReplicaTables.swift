import PersistentHistory
import SQLiteStore

/// The tables of a replica, and the statements that write their rows.
final class ReplicaTables {
    let encoding: TextEncoding
    private let database: ReplicaConnection
    /// By the bytes of their names, because Swift takes some names for equal that SQLite keeps apart.
    private let tables: [[UInt8]: ReplicatedTable]
    private var writers: [[UInt8]: RowWriter] = [:]

    init(_ database: ReplicaConnection) throws {
        self.database = database
        encoding = try TextEncoding(database)
        let found = try ReplicatedTable.survey(database).tables
        tables = Dictionary(found.map { (Array($0.name.utf8), $0) }, uniquingKeysWith: { first, _ in first })
    }

    /// Returns the writer of a table; nil if the replica has no such table, or it isn't what the line says.
    func writer(of line: BatchTableLine) throws -> RowWriter? {
        let name = Array(line.table.utf8)
        guard let table = tables[name], line.describes(table) else { return nil }
        if let known = writers[name] { return known }
        let writer = try RowWriter(table, database, encoding: encoding)
        writers[name] = writer
        return writer
    }
}
