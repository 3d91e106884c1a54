import CoreDataStore
import SQLiteStore

/// Names for new tables while the old ones exist. Core Data's own migration uses `_T_` and the table's name, and leaves
/// such a table behind if it is interrupted.
struct TemporaryNames {
    private let taken: Set<String>

    init(_ schema: DatabaseSchema) { taken = Set(schema.objects.map { $0.name.lowercased() }) }

    func name(for table: String) -> String {
        var prefix = "_T_"
        while taken.contains((prefix + table).lowercased()) { prefix += "T_" }
        return prefix + table
    }
}
