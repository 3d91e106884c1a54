import SQLiteStore

/// Binds texts that are not valid in the store's encoding, and the BLOBs of a UTF-16 store. They go through a temporary
/// table: where a BLOB is read as text, by a cast, an index on an expression or a generated column, SQLite takes one
/// from a table for the store's encoding, and one of a parameter for UTF-8.
final class BoundValueTable {
    private let database: ReplicaConnection
    private var insertion: SQLiteStatement?

    init(_ database: ReplicaConnection) { self.database = database }

    /// The kind of value that a parameter with bytes stands for.
    enum Kind {
        case text, blob
    }

    /// Returns SQL of a parameter's value: the parameter itself, or the value kept under its number.
    static func value(ofParameter number: Int, _ kind: Kind?) -> String {
        guard let kind else { return "?\(number)" }
        let content = kind == .text ? "CAST(content AS TEXT)" : "content"
        return "(SELECT \(content) FROM temp.GS_TEXT WHERE number = ?\(number))"
    }

    /// Keeps the unbindable values until the next call. Returns the parameters, with numbers in their places.
    func keep(_ sink: CollectingSink) throws -> [StoredValue] {
        guard !sink.kept.isEmpty else { return sink.values }
        if insertion == nil {
            try database.execute(
                "CREATE TEMP TABLE IF NOT EXISTS GS_TEXT (number INTEGER PRIMARY KEY, content BLOB)")
        }
        try database.execute("DELETE FROM temp.GS_TEXT")
        let insertion = try insertion ?? database.prepare("INSERT INTO temp.GS_TEXT (number, content) VALUES (?1, ?2)")
        self.insertion = insertion
        var values = sink.values
        for index in sink.kept.keys {
            let number = StoredValue.integer(Int64(index + 1))
            defer { insertion.reset() }
            try insertion.bind(stored: [number, values[index]])
            _ = try insertion.step()
            values[index] = number
        }
        return values
    }
}
