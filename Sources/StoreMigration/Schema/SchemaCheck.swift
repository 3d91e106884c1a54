import CoreDataStore
import MappingModels

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
        let ownIndexes = source.indexNames
        let others = objects.filter { object in
            object.kind == .table && !known.contains(object.name)
                || object.kind == .index && !ownIndexes.contains(object.name.lowercased())
        }
        let names = Dictionary(others.map { ($0.name.lowercased(), $0) }, uniquingKeysWith: { first, _ in first })
        guard let taken = wanted.lazy.compactMap({ names[$0.lowercased()] }).first else { return }
        throw MigrationError(
            CoreDataError.migration,
            taken.kind == .table
                ? "the store has a table \(taken.name) that isn't Core Data's, and the new model needs one"
                : "the store has an index \(taken.name), and the new model needs a table of the name",
            remedy: "rename the \(taken.kind.rawValue), or drop it")
    }
}

extension StoreLayout {
    /// The indexes that Core Data has made for the model, in lower case. It named them otherwise until 2017, and a store may
    /// have been made then.
    var indexNames: Set<String> {
        Set([0, StoreProperties.frameworkVersion].flatMap { indexes(ofFramework: $0) }.map { $0.name.lowercased() })
    }
}
