import CoreDataStore

extension StoreSchema {
    /// Throws `MigrationError` where a store isn't what its model says, or where a table of somebody else's has a name that
    /// Core Data needs. `source` has its join tables' names as the store has them.
    func check(_ source: StoreLayout, becoming destination: StoreLayout) throws(MigrationError) {
        let missing = missing(of: source)
        guard missing.isEmpty else {
            throw MigrationError(
                CoreDataError.incompatibleSchema,
                "the store lacks what its model says: " + missing.prefix(5).joined(separator: ", "),
                remedy: "restore a backup: the store was changed by hand, or its metadata is of another version")
        }
        let known = Set(source.tables.map(\.name) + source.joinTables.map(\.name))
        let wanted = destination.tables.map(\.name) + destination.joinTables.map(\.name)
        guard let taken = wanted.first(where: { has(table: $0) && !known.contains($0) }) else { return }
        throw MigrationError(
            CoreDataError.migration,
            "the store has a table \(taken) that isn't Core Data's, and the new model needs one",
            remedy: "rename that table")
    }
}
