import LinuxSystem
import PersistentHistory
import SQLiteStore

/// Reads the whole content of a virtual table as lines: at home, to send it; in a replica, to compare it.
struct ContentsReading {
    let table: ReplicatedTable
    private let encoding: TextEncoding
    private let database: SQLiteConnection

    /// The digest of the table's rows, and their number.
    struct Digest: Equatable {
        /// The SHA-256 of the lines of its rows.
        let sha256: String
        let rows: Int
    }

    init(_ table: ReplicatedTable, _ database: SQLiteConnection, encoding: TextEncoding) {
        (self.table, self.database, self.encoding) = (table, database, encoding)
    }

    func digest() throws -> Digest {
        let hash = SHA256Stream()
        let rows = try forEachPiece { hash.add($0) }
        return Digest(sha256: hash.finish(), rows: rows)
    }

    /// Appends the table's line, and those of its rows if they are wanted.
    func append(_ digest: Digest, withRows: Bool, to spool: SpooledOutput) throws {
        var line = RowReading.opening(table, type: "contents")
        line.removeLast(2)
        line += ",\"sha256\":\"\(digest.sha256)\",\"rows\":\(withRows ? "\(digest.rows)" : "null")}\n".utf8
        try spool.append(line)
        if withRows { _ = try forEachPiece { try spool.append($0) } }
    }

    private func forEachPiece(_ body: ([UInt8]) throws -> Void) throws -> Int {
        let columns = table.columns.map { "r.\($0.sqlName)" }.joined(separator: ", ")
        let row = try database.prepare(
            "SELECT r.rowid, \(columns) FROM main.\(table.name.sqlName) AS r ORDER BY r.rowid")
        var lines: [UInt8] = []
        var count = 0
        while try row.step() {
            count += 1
            lines += "{\"type\":\"row\",\"key\":".utf8
            row.appendJSON(0, encoding: encoding, to: &lines)
            lines += ",\"values\":[".utf8
            for column in 1...Int32(table.columns.count) {
                if column > 1 { lines.append(UInt8(ascii: ",")) }
                row.appendJSON(column, encoding: encoding, to: &lines)
            }
            lines += "]}\n".utf8
            if lines.count > 1 << 17 {
                try body(lines)
                lines.removeAll(keepingCapacity: true)
            }
        }
        try body(lines)
        return count
    }
}
