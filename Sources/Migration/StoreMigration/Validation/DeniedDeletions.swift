import CoreDataStore
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// The objects that a migration step drops although a delete rule of the older model would deny their deletion: they
/// have a relationship with the rule Deny to an object that stays.
struct DeniedDeletions {
    private let store: SQLiteConnection
    private let layout: StoreLayout
    /// The name of the older store in the connection.
    private let schema: String
    /// The name of the version that the step leads to.
    private let version: String
    /// Returns an SQL condition under which a row of an entity's table stays; nil if none does.
    private let staying: (_ entity: String, _ alias: String) throws -> String?

    /// The deletions by an inferred step: all objects of an entity without a successor. The store is still of the older
    /// version. Throws `StoreError`.
    init?(_ store: SQLiteConnection, _ step: MigrationStep) throws {
        guard case .inferred(let mapping) = step.method else { return nil }
        let layout = StoreLayout(step.source).usingJoinTableNames(of: try DatabaseSchema(store))
        let matching = EntityMatching(from: layout, to: layout.layout(for: step.destination), mapping: mapping)
        self.store = store
        self.layout = layout
        schema = "main"
        version = step.destinationName
        staying = { entity, _ in matching.successors[entity] == nil ? nil : "1" }
    }

    /// The deletions by a mapping model whose objects are made: those that no entity mapping has taken.
    init(_ store: SQLiteConnection, _ plan: MappingPlan, to version: String) {
        self.store = store
        layout = plan.source
        schema = "source"
        self.version = version
        staying = { entity, alias in
            let taken = try plan.entityMappings.filter { $0.source?.name == entity && $0.destination != nil }.map {
                switch $0.association {
                case .identity: try plan.conditions($0, alias: alias).joined(separator: " AND ")
                case .table(let name):
                    "EXISTS (SELECT 1 FROM temp.\(name) AS a WHERE a.source = \(alias).Z_PK "
                        + "AND a.source_entity = \(alias).Z_ENT)"
                }
            }
            return taken.isEmpty ? nil : "(" + taken.map { "(\($0))" }.joined(separator: " OR ") + ")"
        }
    }

    /// Returns a fault for each relationship. Throws `StoreError`, `MappingFault`.
    func faults() throws -> [InvalidContent.Fault] {
        try layout.numbers.entities.filter { !$0.isAbstract }.sorted { $0.name < $1.name }.flatMap { entity in
            let denying = layout.model.properties(of: entity).compactMap { property -> RelationshipDescription? in
                guard case .relationship(let relationship) = property, relationship.deleteRule == .deny else {
                    return nil
                }
                return relationship
            }
            return try denying.compactMap { try fault($0, of: entity) }
        }
    }

    private func fault(
        _ relationship: RelationshipDescription, of entity: EntityDescription
    ) throws -> InvalidContent.Fault? {
        guard let table = layout.table(of: entity.name)?.name,
            let targets = layout.table(of: relationship.destinationEntityName)?.name,
            let link = LinkStorage(of: relationship, declaredFor: entity.name, in: layout)
        else { return nil }
        let stays = try staying(entity.name, "t")
        guard stays != "1" else { return nil }
        let survivors = try layout.numbers.family(of: relationship.destinationEntityName).compactMap { member in
            try staying(member, "d").map { "(d.Z_ENT = \(layout.numbers.number(of: member)) AND \($0))" }
        }
        guard !survivors.isEmpty else { return nil }
        let rows = try store.prepare(
            "SELECT t.Z_PK FROM \(schema).\(table.sqlName) AS t NOT INDEXED WHERE t.Z_ENT = ? "
                + "AND NOT \(stays ?? "0") AND EXISTS (SELECT 1 FROM \(schema).\(link.table.sqlName) AS l "
                + "JOIN \(schema).\(targets.sqlName) AS d ON d.Z_PK = l.\(link.target.sqlName) "
                + "WHERE l.\(link.owner.sqlName) = t.Z_PK AND (\(survivors.joined(separator: " OR ")))) ORDER BY 1",
            [.integer(layout.numbers.number(of: entity.name))])
        var keys: [Int64] = []
        while try rows.step() { keys.append(rows.integer(0)) }
        guard !keys.isEmpty else { return nil }
        return InvalidContent.Fault(
            entity: entity.name, property: relationship.name, code: CoreDataError.deniedDelete,
            "its delete rule is Deny and it has objects that stay, but the migration to \(version) drops it",
            keys: keys)
    }
}
