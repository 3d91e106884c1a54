import CoreDataStore
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// Counts what a migration removes from a store: objects, values and links that are there, and that the way has no place
/// for. Nothing of the store changes.
struct LossCount {
    private let store: SQLiteConnection
    private let layout: StoreLayout
    private let way: MigrationSteps
    private let first: MigrationStep
    /// Nil where the first step isn't inferred.
    private let succession: EntityMatching?
    /// Entities of which all objects are removed.
    private let removed: [String: MigrationSteps.End]

    /// A column that some entities' objects lose.
    private struct Candidate {
        let loss: (Int64) -> RemovedContent.Loss
        /// Where it has a value, as SQL says it.
        let condition: String
    }

    /// Nil where there are no steps. Throws `StoreError`, `MappingModelError`.
    init?(_ store: SQLiteConnection, _ steps: [MigrationStep]) throws {
        guard let first = steps.first else { return nil }
        let schema = try StoreSchema(store)
        self.store = store
        self.first = first
        let layout = StoreLayout(first.source).named(as: schema)
        self.layout = layout
        if case .inferred(let mapping) = first.method {
            succession = EntityMatching(layout, StoreLayout(first.destination), mapping)
        } else {
            succession = nil
        }
        way = try MigrationSteps(steps)
        var removed: [String: MigrationSteps.End] = [:]
        for entity in first.source.entities { removed[entity.name] = way.end(of: entity.name) }
        self.removed = removed
    }

    func losses() throws -> RemovedContent {
        // A store that lacks them can't be migrated; what is missing is told elsewhere.
        guard try StoreSchema(store).missing(of: layout).isEmpty else { return .none }
        var values: [RemovedContent.Loss] = []
        for table in layout.tables { values += try count(candidates(of: table), in: table) }
        var found: [RemovedContent.Loss] = []
        for entity in layout.numbers.entities {
            found += try objects(of: entity)
            let lost = values.filter { $0.entity == entity.name } + (try links(of: entity))
            found += lost.sorted { ($0.property ?? "").precedes($1.property ?? "") }
        }
        return RemovedContent(found + (try narrowed()))
    }

    /// Links that the first step has no place for.
    private func narrowed() throws -> [RemovedContent.Loss] {
        guard let succession else { return [] }
        return try succession.destination.tables.flatMap(\.columns).compactMap {
            try FilledReference($0, succession)?.loss(in: store)
        }
    }

    // MARK: Objects

    private func objects(of entity: EntityDescription) throws -> [RemovedContent.Loss] {
        guard let table = layout.table(of: entity.name) else { return [] }
        let number = layout.numbers.number(of: entity.name)
        func loss(_ condition: String, _ reason: String) throws -> [RemovedContent.Loss] {
            let count =
                try store.integer(
                    "SELECT count(*) FROM \(table.name.sqlName) AS s NOT INDEXED WHERE s.Z_ENT = \(number) AND \(condition)"
                )
                ?? 0
            return count > 0 ? [RemovedContent.Loss(entity: entity.name, .objects, count: count, reason: reason)] : []
        }
        let dropped = try droppings(of: entity.name)
        let remaining = dropped.map { "NOT (\($0))" }.joined(separator: " AND ")
        var found =
            try dropped.isEmpty ? [] : loss(dropped.joined(separator: " OR "), "is dropped by the mapping model")
        let left = remaining.isEmpty ? "1" : remaining
        if let end = removed[entity.name] {
            found += try loss(left, end.reason(ofObjects: true))
        } else if let taken = try conditions(of: entity.name) {
            found += try loss("\(left) AND NOT (\(taken))", "is taken by no entity mapping, by their conditions")
        }
        return found
    }

    private var mapping: MappingModel? { if case .custom(let mapping) = first.method { mapping } else { nil } }

    /// Which of the entity's objects the mapping model's own steps drop; each as SQL says it.
    private func droppings(of entity: String) throws -> [String] {
        try (mapping?.preparations ?? []).compactMap { step in
            guard case .drop(let name, let condition) = step, layout.numbers.family(of: name).contains(entity) else {
                return nil
            }
            return try condition.map { try sql($0, about: name, nil) } ?? "1"
        }
    }

    /// Which of its objects the first step's entity mappings take; nil where that is all, or can't be told.
    private func conditions(of entity: String) throws -> String? {
        guard let mapping else { return nil }
        let taking = mapping.entityMappings.filter { $0.sourceEntityName == entity }
        guard !taking.isEmpty, taking.allSatisfy({ $0.filter != nil && $0.entityMigrationPolicyClassName == nil })
        else { return nil }
        return try taking.filter { $0.destinationEntityName != nil }.compactMap { one in
            try one.filter.map { try sql($0, about: entity, one) }
        }.joined(separator: " OR ")
    }

    private func sql(
        _ condition: MappingPredicate, about entity: String, _ mapping: EntityMapping?
    ) throws -> String {
        try SQLFunction.register(store)
        var compiler = ExpressionCompiler(layout, schema: "main").about(entity, as: "s", mapping)
        do { return try compiler.condition(condition) } catch { throw MappingModelError(error, .invalid, nil) }
    }

    // MARK: Values

    /// SQLite takes a thousand terms in one expression.
    private static let termsAtOnce = 250

    private func count(_ candidates: [Candidate], in table: TableLayout) throws -> [RemovedContent.Loss] {
        try stride(from: 0, to: candidates.count, by: Self.termsAtOnce).flatMap { start in
            let some = Array(candidates[start..<min(start + Self.termsAtOnce, candidates.count)])
            let sums = some.map { "sum(\($0.condition))" }.joined(separator: ", ")
            let row = try store.prepare("SELECT \(sums) FROM \(table.name.sqlName) NOT INDEXED").integers()
            return zip(some, row).compactMap { $1 > 0 ? $0.loss($1) : nil }
        }
    }

    private func candidates(of table: TableLayout) -> [Candidate] {
        layout.numbers.family(of: table.rootEntity).compactMap { layout.model.entity(named: $0) }.flatMap { entity in
            entity.attributes.compactMap { candidate($0, of: entity) }
                + entity.attributes.compactMap { change(of: $0, entity) }
        }
    }

    /// By a mapping model, values are what its expressions make of them.
    private func change(of attribute: AttributeDescription, _ entity: EntityDescription) -> Candidate? {
        guard let succession, let changed = ChangedValues(attribute, of: entity.name, succession) else { return nil }
        return Candidate(
            loss: {
                RemovedContent.Loss(
                    entity: entity.name, property: attribute.name, .changes, count: $0,
                    reason: "gets a type that can't hold all of its values")
            }, condition: changed.condition)
    }

    private func candidate(_ attribute: AttributeDescription, of entity: EntityDescription) -> Candidate? {
        let columns = self.columns(of: attribute, entity)
        guard !attribute.isTransient, attribute.derivation == nil, !columns.isEmpty,
            let (losing, end) = losing(attribute.name, of: entity)
        else { return nil }
        let isThere = columns.map { "\($0.sqlName) IS NOT NULL" }.joined(separator: " OR ")
        return Candidate(
            loss: {
                RemovedContent.Loss(
                    entity: entity.name, property: attribute.name, .values, count: $0,
                    reason: end.reason(ofObjects: false))
            }, condition: "((\(isThere)) AND Z_ENT IN (\(losing.list)))")
    }

    /// A composite attribute has one for each of its elements.
    private func columns(of attribute: AttributeDescription, _ entity: EntityDescription) -> [String] {
        (layout.table(of: entity.name)?.columns ?? []).filter { column in
            guard case .attribute(entity.name, let path) = column.content else { return false }
            return path.first == attribute.name
        }.map(\.name)
    }

    /// The numbers of those entities whose objects stay and lose the property.
    private func losing(_ property: String, of entity: EntityDescription) -> (
        numbers: [Int64], end: MigrationSteps.End
    )? {
        var numbers: [Int64] = []
        var last: MigrationSteps.End?
        for member in layout.numbers.family(of: entity.name) where removed[member] == nil {
            guard let end = way.end(of: EntityProperty(entity: member, property: property)) else { continue }
            numbers.append(layout.numbers.number(of: member))
            last = end
        }
        return last.map { (numbers.sorted(), $0) }
    }

    // MARK: Links

    /// Of relationships whose links neither end keeps; each is told of once.
    private func links(of entity: EntityDescription) throws -> [RemovedContent.Loss] {
        try entity.relationships.compactMap { relationship in
            guard !relationship.isTransient, isTold(relationship, of: entity),
                let (losing, end) = losing(relationship.name, of: entity),
                let link = LinkStorage(of: relationship, declaredFor: entity.name, in: layout),
                let owners = layout.table(of: entity.name)
            else { return nil }
            let owner = "(SELECT Z_ENT FROM \(owners.name.sqlName) AS o WHERE o.Z_PK = l.owner)"
            let count =
                try store.integer("SELECT count(*) FROM (\(link.query)) AS l WHERE \(owner) IN (\(losing.list))") ?? 0
            guard count > 0 else { return nil }
            return RemovedContent.Loss(
                entity: entity.name, property: relationship.name, .links, count: count,
                reason: end.reason(ofObjects: false))
        }
    }

    /// The to-one end tells of a relationship, else the one that goes first.
    private func isTold(_ relationship: RelationshipDescription, of entity: EntityDescription) -> Bool {
        guard let inverse = layout.model.inverse(of: relationship),
            let other = layout.declaringEntity(of: inverse.name, of: relationship.destinationEntityName)
        else { return true }
        // Where the other end's objects go, with all that they lead to, this end is what is left to tell.
        guard layout.numbers.family(of: other.name).contains(where: { removed[$0] == nil }) else { return true }
        if relationship.isToMany != inverse.isToMany { return !relationship.isToMany }
        return (entity.name, relationship.name) <= (other.name, inverse.name)
    }
}

extension SQLiteStatement {
    /// Of the first row.
    fileprivate func integers() throws -> [Int64] {
        try step() ? (0..<columnCount).map { integer($0) } : []
    }
}

extension MigrationManager {
    /// What the whole way removes from a store that is of the first step's source. Throws `StoreError`.
    package func losses(_ store: SQLiteConnection) throws -> RemovedContent {
        do { return try LossCount(store, steps)?.losses() ?? .none } catch let error as MappingModelError {
            throw MigrationError(CoreDataError.migration, "\(error)", remedy: error.remedy)
        }
    }
}
