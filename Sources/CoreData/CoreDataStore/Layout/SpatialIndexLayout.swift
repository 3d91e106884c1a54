import ManagedObjectModels

/// A fetch index of type R-tree: a virtual table of SQLite's R*Tree module (https://sqlite.org/rtree.html) with each
/// object's values as bounds, and triggers that keep it up to date. (Reported; no such store was seen.)
package struct SpatialIndexLayout: Equatable, Sendable {
    package struct Trigger: Equatable, Sendable {
        package let name: String
        package let creation: String
    }

    /// The name of the virtual table: `Z_Entity_index`.
    package let name: String
    /// The table of the indexed objects.
    package let table: String
    package let columns: [String]

    /// The tables in which the R*Tree module stores its content.
    package var shadowTables: [String] { ["_node", "_parent", "_rowid"].map { name + $0 } }

    /// The `CREATE VIRTUAL TABLE` statement, character for character.
    package var creation: String { "CREATE VIRTUAL TABLE \(name) USING RTREE (Z_PK INTEGER PRIMARY KEY, \(bounds))" }

    /// The triggers that keep the index up to date.
    package var triggers: [Trigger] {
        let values = columns.map { "NEW.\($0), NEW.\($0)" }.joined(separator: ", ")
        let insertion = "INTO \(name) (Z_PK, \(bounds)) VALUES (NEW.Z_PK, \(values)) ; END"
        return [
            trigger("INSERT", "BEGIN INSERT OR REPLACE " + insertion),
            trigger("UPDATE", "BEGIN DELETE FROM \(name) WHERE Z_PK = NEW.Z_PK ; INSERT " + insertion),
            trigger("DELETE", "BEGIN DELETE FROM \(name) WHERE Z_PK = OLD.Z_PK ; END"),
        ]
    }

    private func trigger(_ event: String, _ body: String) -> Trigger {
        let name = "\(name)_\(event)"
        return Trigger(name: name, creation: "CREATE TRIGGER \(name) AFTER \(event) ON \(table) FOR EACH ROW \(body)")
    }

    /// The statement that adds all existing objects.
    package var populateStatement: String {
        let values = columns.map { "\($0), \($0)" }.joined(separator: ", ")
        let condition = columns.map { $0 + " NOT NULL" }.joined(separator: " AND ")
        return
            "INSERT OR REPLACE INTO \(name) (Z_PK, \(bounds)) SELECT Z_PK, \(values) FROM \(table) WHERE \(condition)"
    }

    private var bounds: String { columns.map { "\($0)_MIN, \($0)_MAX" }.joined(separator: ", ") }
}

extension StoreLayout {
    /// The spatial indexes that the model requests, by entity number.
    package var spatialIndexes: [SpatialIndexLayout] {
        var names: Set<String> = []
        return numbers.entities.flatMap { entity in entity.indexes.compactMap { spatialIndex($0, of: entity) } }
            .filter { names.insert($0.name.lowercased()).inserted }
    }

    private func spatialIndex(_ index: FetchIndexDescription, of entity: EntityDescription) -> SpatialIndexLayout? {
        guard index.elements.first?.kind == .rTree, index.partialIndexPredicate == nil,
            let table = table(of: entity.name)
        else { return nil }
        let columns = index.elements.compactMap { column(of: $0.property, of: entity.name) }.filter(\.isAttribute)
        // SQLite supports one to five dimensions.
        guard columns.count == index.elements.count, (1...5).contains(columns.count) else { return nil }
        return SpatialIndexLayout(
            name: "Z_\(entity.name)_\(index.name)", table: table.name, columns: columns.map(\.name))
    }
}

extension ColumnLayout {
    fileprivate var isAttribute: Bool { if case .attribute = content { true } else { false } }
}
