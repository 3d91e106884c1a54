import CoreDataStore
import ManagedObjectModels
import MappingModels

/// What became of which object.
enum Association: Equatable {
    /// Each object has the key that it had.
    case identity
    /// A temporary table holds it: `source`, `source_entity`, `destination`, `destination_entity`.
    case table(String)
}

/// How one entity mapping is run.
struct EntityMappingPlan {
    let number: Int
    let mapping: EntityMapping
    /// Nil when the entity is added.
    let source: EntityDescription?
    /// Nil when it is removed.
    let destination: EntityDescription?
    let association: Association
    /// Whether an object that is made of one may take its key over: no other one of its new table has it.
    let keepsKeys: Bool

    var usesPolicy: Bool { mapping.entityMigrationPolicyClassName != nil }
    var isRun: Bool { source != nil && destination != nil }
    static let rowAlias = "s"
    static let ownerAlias = "o"
}

/// A mapping model made ready for two layouts: which objects keep their keys, and where what became of which is noted.
package struct MappingPlan {
    let mapping: MappingModel
    let source: StoreLayout
    let destination: StoreLayout
    let entityMappings: [EntityMappingPlan]

    /// `mapping` is resolved. Throws `MappingFault` for an expression that can't be run.
    init(_ mapping: MappingModel, from source: StoreLayout, to destination: StoreLayout) {
        self.mapping = mapping
        self.source = source
        self.destination = destination
        let numbered = mapping.entityMappings.enumerated()
        entityMappings = numbered.map { number, one in
            let new = one.destinationEntityName.flatMap(destination.model.entity(named:))
            let keepsKeys = new.map { Self.keepsKeys(mapping, source, destination, $0) } ?? false
            let hasPolicy = one.entityMigrationPolicyClassName != nil
            return EntityMappingPlan(
                number: number, mapping: one, source: one.sourceEntityName.flatMap(source.model.entity(named:)),
                destination: new,
                association: keepsKeys && !hasPolicy ? .identity : .table("association_\(number)"),
                keepsKeys: keepsKeys)
        }
    }

    /// Whether all that comes into the entity's table comes from one table, and from each entity of that once only.
    private static func keepsKeys(
        _ mapping: MappingModel, _ source: StoreLayout, _ destination: StoreLayout, _ entity: EntityDescription
    ) -> Bool {
        let table = destination.table(of: entity.name)?.name
        let coming = mapping.entityMappings.filter { one in
            one.sourceEntityName != nil
                && one.destinationEntityName.flatMap { destination.table(of: $0)?.name } == table
        }
        let from = coming.compactMap(\.sourceEntityName)
        return Set(from).count == from.count && Set(from.map { source.table(of: $0)?.name }).count <= 1
    }

    func plan(named name: String) -> EntityMappingPlan? { entityMappings.first { $0.mapping.name == name } }

    /// Those that make objects of `destination`, or of what inherits from it, out of those of `source`.
    func plans(from source: String, to destination: String) -> [EntityMappingPlan] {
        let (old, new) = (self.source.model.family(of: source), self.destination.model.family(of: destination))
        return entityMappings.filter { plan in
            plan.source.map { old.contains($0.name) } ?? false
                && plan.destination.map { new.contains($0.name) } ?? false
        }
    }

    var compiler: ExpressionCompiler { ExpressionCompiler(source, schema: "source") }

    // MARK: Conditions

    /// What holds for those rows of the source's table that the mapping is about.
    func conditions(_ plan: EntityMappingPlan, alias: String) throws(MappingFault) -> [String] {
        guard let entity = plan.source else { return ["0"] }
        var found = ["\(alias).Z_ENT = \(source.numbers.number(of: entity.name))"]
        if let filter = plan.mapping.filter {
            var compiler = compiler.about(entity.name, as: alias, plan.mapping)
            do { found.append(try compiler.condition(filter)) } catch {
                throw error.within(plan.mapping.name + " where")
            }
        }
        return found
    }

    /// The source's rows that the mapping is about, and, where their keys change, what they became: a `FROM` and a
    /// `WHERE`, the new key and its entity's number.
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

/// Rows of the source and what they became, as parts of a query.
struct MappedRows {
    var sources: [String]
    var conditions: [String]
    /// The new key.
    var key: String
    /// The new entity's number.
    var entityNumber: String

    func query(_ columns: [String], suffix: String = "") -> String {
        "SELECT \(columns.joined(separator: ", ")) FROM \(sources.joined(separator: ", ")) WHERE "
            + conditions.joined(separator: " AND ") + suffix
    }
}

extension MappingFault {
    /// The same, saying where it was.
    func within(_ element: String) -> MappingFault {
        var fault = self
        fault.element = self.element ?? element
        return fault
    }
}
