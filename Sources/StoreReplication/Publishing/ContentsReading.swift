import LinuxSystem
import PersistentHistory
import SQLiteStore

/// Reads the whole content of a virtual table, and writes its lines.
struct ContentsReading {
    let table: ReplicatedTable
    private let encoding: TextEncoding
    private let reader: StoreReader

    init(_ table: ReplicatedTable, _ reader: StoreReader, encoding: TextEncoding) {
        (self.table, self.reader, self.encoding) = (table, reader, encoding)
    }

    /// Returns a digest of the content.
    func digest() throws -> String {
        let hash = SHA256Stream()
        _ = try forEachPiece { hash.add($0) }
        return hash.finish()
    }

    /// Appends the lines. Returns the number of rows.
    func append(to spool: SpooledOutput) throws -> Int { try forEachPiece { try spool.append($0) } }

    private func forEachPiece(_ body: ([UInt8]) throws -> Void) throws -> Int {
        var lines = RowReading.opening(table, type: "contents")
        let columns = table.columns.map { "r.\(StoreTable.quote($0))" }.joined(separator: ", ")
        let row = try reader.prepare("SELECT r.rowid, \(columns) FROM main.\(StoreTable.quote(table.name)) AS r")
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
