import CoreDataStore
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// Counts what a migration removes from a store: the objects, values and links that a step can't store. It doesn't
/// change the store.
struct LossCounter {
    private let store: SQLiteConnection
    let layout: StoreLayout
    private let path: MigrationSteps
    let first: MigrationStep
    /// The entity matching of the first step; nil if that step isn't inferred.
    private let matching: EntityMatching?
    /// The entities that lose all objects.
    let removed: [String: MigrationSteps.LossPoint]

    /// An attribute that the objects of some entities lose.
    private struct Candidate {
        let loss: (Int64) -> RemovedContent.Loss
        /// The SQL condition of rows that lose a value.
        let condition: String
    }

    /// Returns nil if there are no steps. Throws `StoreError`, `MappingModelError`.
    init?(_ store: SQLiteConnection, _ steps: [MigrationStep]) throws {
        guard let first = steps.first else { return nil }
        let schema = try StoreSchema(store)
        self.store = store
        self.first = first
        let layout = StoreLayout(first.source).usingJoinTableNames(of: schema)
        self.layout = layout
        if case .inferred(let mapping) = first.method {
            matching = EntityMatching(from: layout, to: StoreLayout(first.destination), mapping: mapping)
        } else {
            matching = nil
        }
        path = try MigrationSteps(steps)
        var removed: [String: MigrationSteps.LossPoint] = [:]
        for entity in first.source.entities { removed[entity.name] = path.lossPoint(of: entity.name) }
        self.removed = removed
    }

    func losses() throws -> RemovedContent { try partialLosses(without: []).completed(with: [:]) }

    /// Returns the losses without the objects of some entities, which no entity mapping's condition matches.
    func partialLosses(without deferred: Set<String>) throws -> PartialLosses {
        // A store that lacks its model's tables can't be migrated; `StoreSchema.check` reports that.
        guard try StoreSchema(store).missingParts(of: layout).isEmpty else { return PartialLosses() }
        var values: [RemovedContent.Loss] = []
        for table in layout.tables { values += try count(candidates(of: table), in: table) }
        var found = PartialLosses()
        for entity in layout.numbers.entities {
            let isDeferred = deferred.contains(entity.name)
            found.counted += try objects(of: entity, countsUnmatched: !isDeferred)
            if isDeferred { found.deferred.append((entity.name, found.counted.count)) }
            let lost = values.filter { $0.entity == entity.name } + (try links(of: entity))
            found.counted += lost.sorted { ($0.property ?? "").precedes($1.property ?? "") }
        }
        found.counted += try linksWithoutRow()
        return found
    }

    /// Returns the links that the first step can't store, because their row already holds another link.
    private func linksWithoutRow() throws -> [RemovedContent.Loss] {
        guard let matching else { return [] }
        return try matching.destination.tables.flatMap(\.columns).compactMap {
            try FilledReference($0, matching)?.loss(in: store)
        }
    }

    // MARK: Objects

    private func objects(
        of entity: EntityDescription, countsUnmatched: Bool
    ) throws -> [RemovedContent.Loss] {
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
        let dropped = try dropConditions(of: entity.name)
        let notDropped = dropped.map { "NOT (\($0))" }.joined(separator: " AND ")
        var found =
            try dropped.isEmpty ? [] : loss(dropped.joined(separator: " OR "), "is dropped by the mapping model")
        let remaining = notDropped.isEmpty ? "1" : notDropped
        if let lossPoint = removed[entity.name] {
            found += try loss(remaining, lossPoint.reason(ofObjects: true))
        } else if countsUnmatched, let filter = try filter(of: entity.name) {
            found += try loss("\(remaining) AND NOT (\(filter))", PartialLosses.reason)
        }
        return found
    }

    var mapping: MappingModel? { if case .custom(let mapping) = first.method { mapping } else { nil } }

    /// Returns the SQL conditions of the entity's objects that the mapping model's own steps drop.
    private func dropConditions(of entity: String) throws -> [String] {
        try (mapping?.preparations ?? []).compactMap { step in
            guard case .drop(let name, let condition) = step, layout.numbers.family(of: name).contains(entity) else {
                return nil
            }
            return try condition.map { try sql($0, about: name, nil) } ?? "1"
        }
    }

    /// Returns the SQL condition of the entity's objects that the first step's entity mappings select; nil if they
    /// select all, or if that can't be determined.
    private func filter(of entity: String) throws -> String? {
        guard let mapping else { return nil }
        let candidates = mapping.entityMappings.filter { $0.sourceEntityName == entity }
        guard !candidates.isEmpty,
            candidates.allSatisfy({ $0.filter != nil && $0.entityMigrationPolicyClassName == nil })
        else { return nil }
        return try candidates.filter { $0.destinationEntityName != nil }.compactMap { candidate in
            try candidate.filter.map { try sql($0, about: entity, candidate) }
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

    // MARK: Values

    /// SQLite accepts a thousand terms in one expression.
    private static let maximumTerms = 250

    private func count(_ candidates: [Candidate], in table: TableLayout) throws -> [RemovedContent.Loss] {
        try stride(from: 0, to: candidates.count, by: Self.maximumTerms).flatMap { start in
            let batch = Array(candidates[start..<min(start + Self.maximumTerms, candidates.count)])
            let sums = batch.map { "sum(\($0.condition))" }.joined(separator: ", ")
            let row = try store.prepare("SELECT \(sums) FROM \(table.name.sqlName) NOT INDEXED").firstRow()
            return zip(batch, row).compactMap { $1 > 0 ? $0.loss($1) : nil }
        }
    }

    private func candidates(of table: TableLayout) -> [Candidate] {
        layout.numbers.family(of: table.rootEntity).compactMap { layout.model.entity(named: $0) }.flatMap { entity in
            entity.attributes.compactMap { candidate($0, of: entity) }
                + entity.attributes.compactMap { changeCandidate($0, of: entity) }
        }
    }

    /// Returns the candidate for values that change with their type. With a mapping model there is none: its
    /// expressions decide what values become.
    private func changeCandidate(_ attribute: AttributeDescription, of entity: EntityDescription) -> Candidate? {
        guard let matching, let changed = ChangedValues(attribute, of: entity.name, matching) else { return nil }
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
            let (numbers, lossPoint) = losingEntities(attribute.name, of: entity)
        else { return nil }
        let hasValue = columns.map { "\($0.sqlName) IS NOT NULL" }.joined(separator: " OR ")
        return Candidate(
            loss: {
                RemovedContent.Loss(
                    entity: entity.name, property: attribute.name, .values, count: $0,
                    reason: lossPoint.reason(ofObjects: false))
            }, condition: "((\(hasValue)) AND Z_ENT IN (\(numbers.list)))")
    }

    /// Returns the attribute's columns. A composite attribute has one for each element.
    private func columns(of attribute: AttributeDescription, _ entity: EntityDescription) -> [String] {
        (layout.table(of: entity.name)?.columns ?? []).filter { column in
            guard case .attribute(entity.name, let path) = column.content else { return false }
            return path.first == attribute.name
        }.map(\.name)
    }

    /// Returns the numbers of the entities whose objects are kept but lose the property.
    private func losingEntities(_ property: String, of entity: EntityDescription) -> (
        numbers: [Int64], lossPoint: MigrationSteps.LossPoint
    )? {
        var numbers: [Int64] = []
        var last: MigrationSteps.LossPoint?
        for member in layout.numbers.family(of: entity.name) where removed[member] == nil {
            guard let lossPoint = path.lossPoint(of: EntityProperty(entity: member, property: property)) else {
                continue
            }
            numbers.append(layout.numbers.number(of: member))
            last = lossPoint
        }
        return last.map { (numbers.sorted(), $0) }
    }

    // MARK: Links

    /// Returns the losses of relationships whose links neither end keeps. Each is reported from one end only.
    private func links(of entity: EntityDescription) throws -> [RemovedContent.Loss] {
        try entity.relationships.compactMap { relationship in
            guard !relationship.isTransient, isReportedEnd(relationship, of: entity),
                let (numbers, lossPoint) = losingEntities(relationship.name, of: entity),
                let link = LinkStorage(of: relationship, declaredFor: entity.name, in: layout),
                let owners = layout.table(of: entity.name)
            else { return nil }
            let owner = "(SELECT Z_ENT FROM \(owners.name.sqlName) AS o WHERE o.Z_PK = l.owner)"
            let count =
                try store.integer("SELECT count(*) FROM (\(link.query)) AS l WHERE \(owner) IN (\(numbers.list))") ?? 0
            guard count > 0 else { return nil }
            return RemovedContent.Loss(
                entity: entity.name, property: relationship.name, .links, count: count,
                reason: lossPoint.reason(ofObjects: false))
        }
    }

    /// True if losses of the relationship are reported from this end: the to-one end, or else the end that sorts first.
    private func isReportedEnd(_ relationship: RelationshipDescription, of entity: EntityDescription) -> Bool {
        guard let inverse = layout.model.inverse(of: relationship),
            let other = layout.declaringEntity(of: inverse.name, of: relationship.destinationEntityName)
        else { return true }
        // If all objects at the other end are removed, with their links, only this end can be reported.
        guard layout.numbers.family(of: other.name).contains(where: { removed[$0] == nil }) else { return true }
        if relationship.isToMany != inverse.isToMany { return !relationship.isToMany }
        return (entity.name, relationship.name) <= (other.name, inverse.name)
    }
}

extension SQLiteStatement {
    /// Returns the integers of the first row.
    fileprivate func firstRow() throws -> [Int64] {
        try step() ? (0..<columnCount).map { integer($0) } : []
    }
}
