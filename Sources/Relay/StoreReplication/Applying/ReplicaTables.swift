import PersistentHistory
import SQLiteStore

/// The tables of a replica, and the statements that write their rows.
final class ReplicaTables {
    let encoding: TextEncoding
    private let database: ReplicaConnection
    /// The tables by the bytes of their names: Swift compares by canonical equivalence, so some names are equal to it
    /// that differ in SQLite.
    private let tables: [[UInt8]: ReplicatedTable]
    private let virtualTables: [ReplicatedVirtualTable]
    private var writers: [[UInt8]: RowWriter] = [:]

    init(_ database: ReplicaConnection) throws {
        self.database = database
        encoding = try TextEncoding(database)
        let schema = try DatabaseSchema(database)
        virtualTables = try ReplicatedVirtualTable.all(schema, database)
        let found = try ReplicatedTable.survey(schema).tables
        tables = Dictionary(found.map { (Array($0.name.utf8), $0) }, uniquingKeysWith: { first, _ in first })
    }

    /// Returns the reader of a virtual table with rows of its own; nil if the replica has no table that the line
    /// describes.
    func contents(of line: BatchTableLine) -> ContentsReading? {
        for table in virtualTables {
            guard case .own(let content)? = table.content, line.describes(content) else { continue }
            return ContentsReading(content, database, encoding: encoding)
        }
        return nil
    }

    /// Empties a virtual table, and returns its writer.
    func emptied(_ content: ContentsReading) throws -> RowWriter {
        try database.execute("DELETE FROM main.\(content.table.name.sqlName)")
        return try RowWriter(content.table, database, encoding: encoding)
    }

    /// The digests of the virtual tables' contents, as far as this object has written or read them, by the bytes of
    /// their names.
    var digests: [[UInt8]: String] = [:]

    /// Rebuilds the full-text indexes of written tables, and those of views.
    func rebuildIndexes(ofTables written: Set<[UInt8]>) throws {
        func folded(_ name: [UInt8]) -> [UInt8] { name.map { 0x41...0x5A ~= $0 ? $0 + 0x20 : $0 } }
        let written = Set(written.map(folded))
        let all = Set(tables.keys.map(folded))
        for table in virtualTables {
            guard case .external(let source)? = table.content else { continue }
            let name = folded(Array(source.utf8))
            guard written.contains(name) || !written.isEmpty && !all.contains(name) else { continue }
            let quoted = table.name.sqlName
            try database.execute("INSERT INTO main.\(quoted) (\(quoted)) VALUES ('rebuild')")
        }
    }

    /// Returns the writer of a table; nil if the replica has no table that the line describes.
    func writer(of line: BatchTableLine) throws -> RowWriter? {
        let name = Array(line.table.utf8)
        guard let table = tables[name], line.describes(table) else { return nil }
        if let known = writers[name] { return known }
        let writer = try RowWriter(table, database, encoding: encoding)
        writers[name] = writer
        return writer
    }
}
