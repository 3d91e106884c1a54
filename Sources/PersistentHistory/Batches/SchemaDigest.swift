import ManagedObjectModels
import SQLiteStore

/// A digest of a store's schema (Documentation/Formats.md, "Change batches"): a batch fits a copy whose schema has the
/// same.
enum SchemaDigest {
    /// Returns 64 hexadecimal digits: the SHA-256 of type, name, table and statement, each followed by a zero, of the
    /// objects that are neither SQLite's nor history's own, sorted by type and name.
    static func read(_ database: SQLiteConnection) throws -> String {
        let row = try database.prepare("SELECT type, name, tbl_name, sql FROM main.sqlite_schema")
        var objects: [[[UInt8]]] = []
        while try row.step() {
            let parts = (0..<4).map { row.textBytes($0) ?? [] }
            if !isLeftOut(name: String(decoding: parts[1], as: UTF8.self)) { objects.append(parts) }
        }
        objects.sort { left, right in
            let part = left[0] == right[0] ? 1 : 0
            return left[part].lexicographicallyPrecedes(right[part])
        }
        let digits = SHA2.sha256(objects.flatMap { $0.flatMap { $0 + [0] } })
        return digits.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    private static func isLeftOut(name: String) -> Bool {
        name.lowercased().hasPrefix("sqlite_") || HistorySchema.isOwn(name)
            || HistorySchema.tableNumber(ofTrigger: name) != nil
    }
}
