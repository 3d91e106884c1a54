import CoreDataStore

/// Names for tables that are being made while the old ones are there. Core Data's own migration uses `_T_` and the table's
/// name: one that was interrupted may have left such a table behind.
struct TemporaryNames {
    private let taken: Set<String>

    init(_ schema: StoreSchema) { taken = Set(schema.objects.map { $0.name.lowercased() }) }

    func name(for table: String) -> String {
        var prefix = "_T_"
        while taken.contains((prefix + table).lowercased()) { prefix += "T_" }
        return prefix + table
    }
}
