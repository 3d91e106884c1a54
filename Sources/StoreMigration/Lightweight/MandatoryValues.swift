import CoreDataStore
import ManagedObjectModel
import PersistentStore

/// The check that Core Data makes of a migration in place: mandatory attributes and to-one relationships that are new, or
/// were optional, have a value in each object.
struct MandatoryValues {
    private let store: StoreWriter
    private let succession: ModelSuccession
    private let tables: [TableMigration]

    init(_ store: StoreWriter, _ succession: ModelSuccession, _ tables: [TableMigration]) {
        self.store = store
        self.succession = succession
        self.tables = tables
    }

    /// Throws `MigrationError` with every property that has no value somewhere.
    func check() throws {
        var findings: [MigrationFinding] = []
        for table in tables where table.isTransformed && !table.numbers.isEmpty {
            for column in table.columns { findings += try self.findings(column.column, in: table.destination) }
        }
        guard let first = findings.first else { return }
        throw MigrationError(
            CoreDataError.migration, "Cannot migrate store in-place: \(first.message)",
            remedy: first.remedy, findings: findings)
    }

    private func findings(_ column: ColumnLayout, in table: TableLayout) throws -> [MigrationFinding] {
        let (entity, name): (String, String)
        switch column.content {
        case .attribute(let owner, let path), .reference(let owner, let path): (entity, name) = (owner, path)
        case .referencedEntity, .order: return []
        }
        guard let declaring = succession.destination.model.entity(named: entity),
            let property = succession.destination.model.property(named: name, of: declaring)
        else { return [] }
        let members = try succession.destination.numbers.family(of: entity).filter { member in
            try isAtRisk(property, of: member)
        }
        guard !members.isEmpty else { return [] }
        let numbers = members.map(succession.destination.numbers.number)
        let count = try store.integer(
            "SELECT count(*) FROM \(table.name.sqlName) NOT INDEXED WHERE \(column.name.sqlName) IS NULL "
                + "AND Z_ENT IN (\(numbers.list))")
        guard let count, count > 0 else { return [] }
        let kind = if case .attribute = property { "attribute" } else { "relationship" }
        return [
            MigrationFinding(
                .error, code: CoreDataError.migration, entity: entity, property: name,
                "Validation error missing \(kind) values on mandatory destination \(kind): \(entity).\(name), in "
                    + "\(count) objects",
                remedy: "give \(entity).\(name) a default, make it optional, or set the values before")
        ]
    }

    private func isAtRisk(_ property: PropertyDescription, of entity: String) throws -> Bool {
        guard succession.predecessors[entity] != nil else { return false }
        switch property {
        case .attribute(let attribute):
            // Where there was no value, the default is one.
            guard !attribute.isOptional, attribute.derivation == nil, attribute.defaultLiteral == nil else {
                return false
            }
            return succession.attribute(attribute.name, of: entity)?.attribute.isOptional ?? true
        case .relationship(let relationship):
            guard !relationship.isOptional, !relationship.isToMany else { return false }
            // A new one begins without objects: Core Data lets that pass, and checks when the object is saved.
            return succession.relationship(relationship.name, of: entity)?.relationship.isOptional ?? false
        case .fetched: return false
        }
    }
}
