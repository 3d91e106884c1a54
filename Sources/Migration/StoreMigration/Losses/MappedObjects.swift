import CoreDataStore
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// Counts the objects that a mapping model leaves out by its own conditions: those that its first steps drop, and those
/// that no entity mapping's condition matches. It reads the store before the step and doesn't change it.
struct MappedObjects {
    private let store: SQLiteConnection
    private let layout: StoreLayout
    private let mapping: MappingModel
    private let plan: MappingPlan

    /// Returns nil for an inferred step, and for a store that lacks its model's tables. Throws `StoreError`,
    /// `MappingModelError`.
    init?(_ store: SQLiteConnection, _ step: MigrationStep) throws {
        guard case .custom(let mapping) = step.method else { return nil }
        let schema = try DatabaseSchema(store)
        layout = StoreLayout(step.source).usingJoinTableNames(of: schema)
        // Such a store can't be migrated; the migration reports that.
        guard schema.missingParts(of: layout).isEmpty else { return nil }
        self.store = store
        self.mapping = mapping
        plan = MappingPlan(
            try mapping.resolved(from: step.source, to: step.destination), from: layout,
            to: layout.layout(for: step.destination))
    }

    /// The objects that are left out, except those of entities that the step's own statement counts.
    func counted() throws -> ExcludedContent {
        let deferred = try entitiesCountedByMapping()
        var found = ExcludedContent(deferred: deferred)
        // An entity without a mapping loses all objects, for that reason.
        for entity in layout.numbers.entities where mapsObjects(of: entity.name) {
            let dropped = try dropConditions(of: entity.name)
            let notDropped = dropped.map { "NOT (\($0))" }.joined(separator: " AND ")
            if !dropped.isEmpty {
                try found.add(
                    entity, "is dropped by the mapping model",
                    count(entity, dropped.joined(separator: " OR ")))
            }
            guard !deferred.contains(entity.name), let filter = try filter(of: entity.name) else { continue }
            let remaining = notDropped.isEmpty ? "" : notDropped + " AND "
            try found.add(entity, ExcludedContent.reason, count(entity, "\(remaining)NOT (\(filter))"))
        }
        for table in layout.tables { try addUnknown(in: table, &found) }
        return found
    }

    /// Adds the rows of no entity. A mapping model makes a new store of the objects, and those are none.
    private func addUnknown(in table: TableLayout, _ found: inout ExcludedContent) throws {
        guard let root = layout.model.entity(named: table.rootEntity) else { return }
        let known = layout.numbers.family(of: root.name).map(layout.numbers.number).sorted()
        let count = try store.integer(
            "SELECT count(*) FROM \(table.name.sqlName) NOT INDEXED WHERE Z_ENT IS NULL OR Z_ENT NOT IN (\(known.list))"
        )
        found.add(root, "has rows whose entity number the model doesn't have", count ?? 0)
    }

    private func mapsObjects(of entity: String) -> Bool {
        plan.entityMappings.contains { $0.source?.name == entity && ($0.destination != nil || $0.usesPolicy) }
    }

    private func count(_ entity: EntityDescription, _ condition: String) throws -> Int64 {
        guard let table = layout.table(of: entity.name) else { return 0 }
        let number = layout.numbers.number(of: entity.name)
        return try store.integer(
            "SELECT count(*) FROM \(table.name.sqlName) AS s NOT INDEXED WHERE s.Z_ENT = \(number) AND (\(condition))")
            ?? 0
    }

    /// Returns the SQL conditions of the entity's objects that the mapping model's own steps drop.
    private func dropConditions(of entity: String) throws -> [String] {
        try mapping.preparations.compactMap { step in
            guard case .drop(let name, let condition) = step, layout.numbers.family(of: name).contains(entity) else {
                return nil
            }
            return try condition.map { try sql($0, about: name, nil) } ?? "1"
        }
    }

    /// Returns the SQL condition of the entity's objects that the entity mappings select; nil if they select all, or if
    /// that can't be determined.
    private func filter(of entity: String) throws -> String? {
        let candidates = mapping.entityMappings.filter { $0.sourceEntityName == entity }
        guard !candidates.isEmpty,
            candidates.allSatisfy({ $0.filter != nil && $0.entityMigrationPolicyClassName == nil })
        else { return nil }
        return try candidates.filter { $0.destinationEntityName != nil }.compactMap { candidate in
            try candidate.filter.map { "ifnull(\(try sql($0, about: entity, candidate)), 0)" }
        }.joined(separator: " OR ")
    }

    private func sql(
        _ condition: MappingPredicate, about entity: String, _ mapping: EntityMapping?
    ) throws -> String {
        try SQLFunction.register(store)
        var compiler = ExpressionCompiler(layout, schema: "main").scoped(to: entity, as: "s", mapping: mapping)
        do { return try compiler.condition(condition) } catch {
            throw MappingModelError(error, code: .invalid, at: nil)
        }
    }

    /// The entities whose excluded objects a mapping model's statement counts: those with one mapping, which has a
    /// condition and keeps keys, in a store that nothing changes before.
    private func entitiesCountedByMapping() throws -> Set<String> {
        guard mapping.preparations.isEmpty else { return [] }
        let counting = plan.entityMappings.filter(\.countsExcludedObjects).compactMap { $0.source?.name }
        return Set(
            counting.filter { entity in plan.entityMappings.filter { $0.source?.name == entity }.count == 1 })
    }
}

/// The objects that one step's conditions leave out.
struct ExcludedContent {
    /// The reason for an object that is removed because it has no new one.
    static let reason = "matches no entity mapping's condition"

    private(set) var losses: [RemovedContent.Loss] = []
    /// The entities whose objects the step counts while it reads them anyway.
    private let deferred: Set<String>

    init(deferred: Set<String> = []) { self.deferred = deferred }

    fileprivate mutating func add(_ entity: EntityDescription, _ reason: String, _ count: Int64) {
        guard count > 0 else { return }
        losses.append(RemovedContent.Loss(entity: entity.name, .objects, count: count, reason: reason))
    }

    /// Returns all losses.
    ///
    /// - Parameter counts: The number of objects that match no condition, by entity.
    /// - Throws: `MigrationError` if one is missing.
    func completed(with counts: [String: Int64]) throws -> [RemovedContent.Loss] {
        try losses
            + deferred.sorted().compactMap { entity in
                guard let count = counts[entity] else {
                    throw MigrationError(
                        CoreDataError.migration, "the removed objects of \(entity) were not counted",
                        remedy: "report this with both models and the mapping model")
                }
                guard count > 0 else { return nil }
                return RemovedContent.Loss(entity: entity, .objects, count: count, reason: Self.reason)
            }
    }
}

extension RemovedContent {
    /// The losses of a migration from `model`, in the order of its entities, each entity's own before its properties'.
    init(_ losses: [Loss], from model: ManagedObjectModel) {
        let places = Dictionary(
            EntityNumbers(model).entities.enumerated().map { ($1.name, $0) }, uniquingKeysWith: { first, _ in first })
        func key(_ loss: Loss) -> (Int, String, String, String) {
            (places[loss.entity] ?? .max, loss.entity, loss.property ?? "", loss.reason)
        }
        self.init(
            losses.sorted { first, second in
                let (one, other) = (key(first), key(second))
                if one.0 != other.0 { return one.0 < other.0 }
                if one.1 != other.1 { return one.1.precedes(other.1) }
                if one.2 != other.2 { return one.2.precedes(other.2) }
                return one.3.precedes(other.3) || one.3 == other.3 && first.unit.rawValue < second.unit.rawValue
            })
    }
}
