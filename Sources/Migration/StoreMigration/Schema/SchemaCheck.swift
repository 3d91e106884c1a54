import CoreDataStore
import MappingModels
import SQLiteStore

extension DatabaseSchema {
    /// Throws `MigrationError` if the store doesn't match its model, or if a foreign table or index has a name that
    /// Core Data needs. `source` has the join table names of the store.
    func check(_ source: StoreLayout, becoming destination: StoreLayout) throws(MigrationError) {
        let missing = missingParts(of: source)
        guard missing.isEmpty else {
            throw MigrationError(
                CoreDataError.incompatibleSchema,
                "the store lacks tables or columns of its model: " + missing.prefix(5).joined(separator: ", "),
                remedy: "restore a backup: the store was edited by hand, or its metadata belongs to another version")
        }
        let known = Set(source.tables.map(\.name) + source.joinTables.map(\.name))
        let wanted = destination.tables.map(\.name) + destination.joinTables.map(\.name)
        let ownIndexes = source.indexNames
        let foreign = objects.filter { object in
            object.kind == .table && !known.contains(object.name)
                || object.kind == .index && !ownIndexes.contains(object.name.lowercased())
        }
        let names = Dictionary(foreign.map { ($0.name.lowercased(), $0) }, uniquingKeysWith: { first, _ in first })
        guard let conflicting = wanted.lazy.compactMap({ names[$0.lowercased()] }).first else { return }
        throw MigrationError(
            CoreDataError.migration,
            conflicting.kind == .table
                ? "the store has a table \(conflicting.name) that isn't Core Data's, but the new model needs that name"
                : "the store has an index \(conflicting.name), but the new model needs a table of that name",
            remedy: "rename the \(conflicting.kind.rawValue), or drop it")
    }
}

extension StoreLayout {
    /// The names of the indexes that Core Data creates for the model, in lower case. They include the names that it
    /// used until 2017, since the store may be that old.
    var indexNames: Set<String> {
        Set([0, StoreProperties.frameworkVersion].flatMap { indexes(ofFramework: $0) }.map { $0.name.lowercased() })
    }
}
