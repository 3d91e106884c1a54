import SQLiteStore

/// Binds texts that are not valid in the store's encoding. They go through a temporary table: SQLite takes BLOBs that
/// it reads from a table for the store's encoding when it casts them to TEXT, and those of a parameter for UTF-8.
final class TextTable {
    private let database: ReplicaConnection
    private var insertion: SQLiteStatement?

    init(_ database: ReplicaConnection) { self.database = database }

    /// Returns SQL of the text that is kept under the number which a parameter has.
    static func text(ofParameter number: Int) -> String {
        "(SELECT CAST(content AS TEXT) FROM temp.GS_TEXT WHERE number = ?\(number))"
    }

    /// Keeps the malformed texts until the next call. Returns the parameters, with numbers in their places.
    func keep(_ sink: CollectingSink) throws -> [StoredValue] {
        guard !sink.malformed.isEmpty else { return sink.values }
        if insertion == nil {
            try database.execute(
                "CREATE TEMP TABLE IF NOT EXISTS GS_TEXT (number INTEGER PRIMARY KEY, content BLOB)")
        }
        try database.execute("DELETE FROM temp.GS_TEXT")
        let insertion = try insertion ?? database.prepare("INSERT INTO temp.GS_TEXT (number, content) VALUES (?1, ?2)")
        self.insertion = insertion
        var values = sink.values
        for index in sink.malformed {
            let number = StoredValue.integer(Int64(index + 1))
            defer { insertion.reset() }
            try insertion.bind(stored: [number, values[index]])
            _ = try insertion.step()
            values[index] = number
        }
        return values
    }
}
