import CoreDataStore
import ManagedObjectModels
import MappingModels

/// The form in which older objects are associated with the new ones.
enum Association: Equatable {
    /// Each object keeps its key.
    case identity
    /// A temporary table with the columns `source`, `source_entity`, `destination`, `destination_entity`.
    case table(String)
}

/// The plan for one entity mapping.
struct EntityMappingPlan {
    let number: Int
    let mapping: EntityMapping
    /// The source entity; nil for an added entity.
    let source: EntityDescription?
    /// The destination entity; nil for a removed entity.
    let destination: EntityDescription?
    let association: Association
    /// True if a new object may keep the older object's key, because no other object of its new table gets that key.
    let keepsKeys: Bool

    var usesPolicy: Bool { mapping.entityMigrationPolicyClassName != nil }
    /// True if the mapping turns objects of one entity into objects of another.
    var mapsObjects: Bool { source != nil && destination != nil }
    /// True if the statement that creates the objects counts the older ones that its condition excludes.
    var countsExcludedObjects: Bool { mapsObjects && mapping.filter != nil && !usesPolicy && association == .identity }
    static let rowAlias = "s"
    static let ownerAlias = "o"
}

/// A mapping model planned for two layouts: which objects keep their keys, and where associations are recorded.
package struct MappingPlan {
    let mapping: MappingModel
    let source: StoreLayout
    let destination: StoreLayout
    let entityMappings: [EntityMappingPlan]

    /// - Parameter mapping: A resolved mapping model.
    init(_ mapping: MappingModel, from source: StoreLayout, to destination: StoreLayout) {
        self.mapping = mapping
        self.source = source
        self.destination = destination
        let numbered = mapping.entityMappings.enumerated()
        entityMappings = numbered.map { number, entityMapping in
            let new = entityMapping.destinationEntityName.flatMap(destination.model.entity(named:))
            let keepsKeys = new.map { Self.keepsKeys(mapping, from: source, to: destination, entity: $0) } ?? false
            let hasPolicy = entityMapping.entityMigrationPolicyClassName != nil
            return EntityMappingPlan(
                number: number, mapping: entityMapping,
                source: entityMapping.sourceEntityName.flatMap(source.model.entity(named:)),
                destination: new,
                association: keepsKeys && !hasPolicy ? .identity : .table("association_\(number)"),
                keepsKeys: keepsKeys)
        }
    }

    /// True if the entity's table is filled from one source table only, and each source entity is mapped to it only
    /// once.
    private static func keepsKeys(
        _ mapping: MappingModel, from source: StoreLayout, to destination: StoreLayout, entity: EntityDescription
    ) -> Bool {
        let table = destination.table(of: entity.name)?.name
        let filling = mapping.entityMappings.filter { candidate in
            candidate.sourceEntityName != nil
                && candidate.destinationEntityName.flatMap { destination.table(of: $0)?.name } == table
        }
        let sources = filling.compactMap(\.sourceEntityName)
        return Set(sources).count == sources.count && Set(sources.map { source.table(of: $0)?.name }).count <= 1
    }

    func plan(named name: String) -> EntityMappingPlan? { entityMappings.first { $0.mapping.name == name } }

    /// Returns the plans that create objects of `destination` or its subentities from those of `source` or its
    /// subentities.
    func plans(from source: String, to destination: String) -> [EntityMappingPlan] {
        let (old, new) = (self.source.model.family(of: source), self.destination.model.family(of: destination))
        return entityMappings.filter { plan in
            plan.source.map { old.contains($0.name) } ?? false
                && plan.destination.map { new.contains($0.name) } ?? false
        }
    }

    var compiler: ExpressionCompiler { ExpressionCompiler(source, schema: "source") }

    // MARK: Conditions

    /// Returns the SQL conditions of the source rows that the mapping applies to.
    func conditions(_ plan: EntityMappingPlan, alias: String) throws(MappingFault) -> [String] {
        guard let entity = plan.source else { return ["0"] }
        var found = ["\(alias).Z_ENT = \(source.numbers.number(of: entity.name))"]
        if let filter = plan.mapping.filter {
            var compiler = compiler.scoped(to: entity.name, as: alias, mapping: plan.mapping)
            do { found.append(try compiler.condition(filter)) } catch {
                throw error.within(plan.mapping.name + " where")
            }
        }
        return found
    }

    /// Returns the source rows that the mapping applies to, joined with the association table if their keys change.
    func rows(_ plan: EntityMappingPlan) throws(MappingFault) -> MappedRows {
        let alias = EntityMappingPlan.rowAlias
        let table = plan.source.flatMap { source.table(of: $0.name)?.name } ?? ""
        var rows = MappedRows(
            sources: ["source.\(table.sqlName) AS \(alias)"], conditions: try conditions(plan, alias: alias),
            key: alias + ".Z_PK",
            entityNumber: String(destination.numbers.number(of: plan.destination?.name ?? "")))
        if case .table(let name) = plan.association {
            let owner = EntityMappingPlan.ownerAlias
            rows.sources.append("temp.\(name) AS \(owner)")
            rows.conditions += ["\(owner).source = \(alias).Z_PK", "\(owner).source_entity = \(alias).Z_ENT"]
            (rows.key, rows.entityNumber) = (owner + ".destination", owner + ".destination_entity")
        }
        return rows
    }
}

/// Source rows and the new objects that they become, as the parts of a query.
struct MappedRows {
    var sources: [String]
    var conditions: [String]
    /// The SQL expression of the new key.
    var key: String
    /// The SQL expression of the new entity number.
    var entityNumber: String

    func query(_ columns: [String], suffix: String = "") -> String {
        "SELECT \(columns.joined(separator: ", ")) FROM \(sources.joined(separator: ", ")) WHERE "
            + conditions.joined(separator: " AND ") + suffix
    }
}

extension MappingFault {
    /// Returns the fault with its location, unless it already has one.
    func within(_ element: String) -> MappingFault {
        var fault = self
        fault.element = self.element ?? element
        return fault
    }
}
