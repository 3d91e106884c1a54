import CoreDataStore
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// The associations of older objects with the new objects made from them, for lookups of single objects.
struct AssociationTables {
    private let store: StoreWriter
    private let plan: MappingPlan
    private var insertions: [String: SQLiteStatement] = [:]
    private var lookups: [String: SQLiteStatement] = [:]
    /// The new objects of the object being mapped, by entity mapping: the most frequent lookup.
    private var latest: [Int: (source: Int64, destinations: [MigrationObject])] = [:]

    init(_ store: StoreWriter, _ plan: MappingPlan) {
        self.store = store
        self.plan = plan
    }

    mutating func add(
        _ source: MigrationObject, becoming destination: MigrationObject, by entityPlan: EntityMappingPlan
    ) throws {
        guard case .table(let name) = entityPlan.association else {
            throw PolicyError("\(entityPlan.mapping.name) has no policy: its associations are fixed")
        }
        let statement = try insertions[name] ?? store.prepare("INSERT INTO temp.\(name) VALUES (?, ?, ?, ?)")
        insertions[name] = statement
        statement.reset()
        try statement.bind([
            .integer(source.objectID.key), .integer(source.storage.number), .integer(destination.objectID.key),
            .integer(destination.storage.number),
        ])
        _ = try statement.step()
        if let entry = latest[entityPlan.number], entry.source == source.objectID.key {
            latest[entityPlan.number]?.destinations.append(destination)
        } else {
            latest[entityPlan.number] = (source.objectID.key, [destination])
        }
    }

    /// Returns the objects that an entity mapping associates with `object`.
    ///
    /// - Parameter isForward: True to look up new objects from an older one, false for the reverse.
    mutating func objects(
        of object: MigrationObject, by entityPlan: EntityMappingPlan, isForward: Bool, in session: MigrationSession
    ) throws -> [MigrationObject] {
        if isForward, let entry = latest[entityPlan.number], entry.source == object.objectID.key,
            entityPlan.source?.name == object.entityName
        {
            return entry.destinations
        }
        switch entityPlan.association {
        case .identity: return try objectOfSameKey(object, by: entityPlan, isForward: isForward, in: session)
        case .table(let name):
            let columns = isForward ? ("source", "destination") : ("destination", "source")
            let key = name + columns.0
            let statement =
                try lookups[key]
                ?? store.prepare(
                    "SELECT \(columns.1), \(columns.1)_entity FROM temp.\(name) WHERE \(columns.0) = ? AND \(columns.0)_entity = ?"
                )
            lookups[key] = statement
            statement.reset()
            defer { statement.reset() }
            try statement.bind([.integer(object.objectID.key), .integer(object.storage.number)])
            var found: [(Int64, Int64)] = []
            while try statement.step() { found.append((statement.integer(0), statement.integer(1))) }
            return try found.map { try associated(key: $0.0, number: $0.1, isSource: !isForward, in: session) }
        }
    }

    private func associated(
        key: Int64, number: Int64, isSource: Bool, in session: MigrationSession
    ) throws -> MigrationObject {
        let layout = isSource ? plan.source : plan.destination
        let entity = layout.numbers.entities[Int(number) - 1].name
        let root = layout.table(of: entity)?.rootEntity ?? entity
        return try session.object(
            MigrationObjectID(isSource: isSource, rootEntityName: root, key: key), number: number)
    }

    /// Returns the object with the same key, if it was mapped. Only for mappings that keep keys.
    private func objectOfSameKey(
        _ object: MigrationObject, by entityPlan: EntityMappingPlan, isForward: Bool, in session: MigrationSession
    ) throws -> [MigrationObject] {
        guard let source = entityPlan.source, let destination = entityPlan.destination else { return [] }
        let expected = isForward ? source.name : destination.name
        guard object.entityName == expected,
            let new = try session.object(destination.name, object.objectID.key, isSource: false),
            new.entityName == destination.name
        else { return [] }
        if isForward { return [new] }
        return try session.object(source.name, object.objectID.key, isSource: true).map { [$0] } ?? []
    }
}

extension MigrationSession {
    /// Associates an older object with the new object made from it. An older object may have several.
    ///
    /// - Throws: ``PolicyError`` if `source` is no older object, `destination` no new one, or `mapping` is unknown, or
    ///   if `mapping` names no policy.
    public func associate(
        sourceInstance source: MigrationObject, withDestinationInstance destination: MigrationObject,
        for mapping: EntityMapping
    ) throws {
        guard source.objectID.isSource, !destination.objectID.isSource,
            let entityPlan = plan.plan(named: mapping.name)
        else { throw PolicyError("an association needs an older object, a new object and an existing entity mapping") }
        try associations.add(source, becoming: destination, by: entityPlan)
    }

    /// Returns the new objects that the entity mapping has made from the older objects so far.
    ///
    /// - Throws: ``PolicyError`` if there is no entity mapping of that name.
    public func destinationInstances(
        forEntityMappingName name: String, sourceInstances: [MigrationObject]
    ) throws -> [MigrationObject] {
        guard let entityPlan = plan.plan(named: name) else { throw PolicyError("there is no entity mapping “\(name)”") }
        return try sourceInstances.flatMap {
            try associations.objects(of: $0, by: entityPlan, isForward: true, in: self)
        }
    }

    /// Returns the older objects from which the entity mapping made the new objects.
    ///
    /// - Throws: ``PolicyError`` if there is no entity mapping of that name.
    public func sourceInstances(
        forEntityMappingName name: String, destinationInstances: [MigrationObject]
    ) throws -> [MigrationObject] {
        guard let entityPlan = plan.plan(named: name) else { throw PolicyError("there is no entity mapping “\(name)”") }
        return try destinationInstances.flatMap {
            try associations.objects(of: $0, by: entityPlan, isForward: false, in: self)
        }
    }

    /// Returns the older objects of an entity and its subentities, ordered by key.
    ///
    /// - Parameters:
    ///   - name: The entity's name in the older model.
    ///   - format: A condition in the language of `NSPredicate`; nil for all objects.
    /// - Throws: ``PolicyError`` for an unknown entity, `FormatError` for a malformed condition, and an error if the
    ///   condition can't be run.
    public func sourceObjects(ofEntity name: String, where format: String? = nil) throws -> [MigrationObject] {
        try objects(of: name, format, isSource: true)
    }

    /// Returns the new objects of an entity and its subentities, as ``sourceObjects(ofEntity:where:)`` does.
    public func destinationObjects(ofEntity name: String, where format: String? = nil) throws -> [MigrationObject] {
        try objects(of: name, format, isSource: false)
    }

    private func objects(of name: String, _ format: String?, isSource: Bool) throws -> [MigrationObject] {
        if !isSource { try applyPendingRelationships() }
        let layout = isSource ? plan.source : plan.destination
        let storage = try storage(of: name, isSource: isSource)
        var compiler = ExpressionCompiler(layout, schema: isSource ? "source" : "main").scoped(to: name, as: "s")
        let condition = try format.map { try compiler.condition(MappingPredicate(format: $0)) } ?? "1"
        let numbers = layout.numbers.family(of: name).map { String(layout.numbers.number(of: $0)) }
        return try objects(
            "SELECT s.Z_PK, s.Z_ENT FROM \(storage.table) AS s WHERE s.Z_ENT IN (\(numbers.joined(separator: ", "))) "
                + "AND \(condition) ORDER BY s.Z_PK", [], root: storage.rootEntity, isSource: isSource)
    }

    func objects(
        _ sql: String, _ parameters: [SQLiteValue], root: String, isSource: Bool
    ) throws -> [MigrationObject] {
        let rows = try store.prepare(sql, parameters)
        var found: [(Int64, Int64)] = []
        while try rows.step() { found.append((rows.integer(0), rows.integer(1))) }
        return try found.map { key, number in
            try object(MigrationObjectID(isSource: isSource, rootEntityName: root, key: key), number: number)
        }
    }

    /// Returns the destinations of a relationship that isn't stored in the object's own row.
    func objects(of relationship: StoredRelationship, _ owner: MigrationObject) throws -> [MigrationObject] {
        let isSource = owner.objectID.isSource
        if !isSource { try applyPendingRelationships() }
        let schema = isSource ? "source." : "main."
        let link = relationship.link
        let destination = try storage(of: relationship.relationship.destinationEntityName, isSource: isSource)
        let order = [link.targetPlace.map { "l." + $0.sqlName }, "d.Z_PK"].compactMap(\.self).joined(separator: ", ")
        let sql =
            link.isJoinTable
            ? "SELECT d.Z_PK, d.Z_ENT FROM \(schema)\(link.table.sqlName) AS l, \(destination.table) AS d "
                + "WHERE l.\(link.owner.sqlName) = ? AND d.Z_PK = l.\(link.target.sqlName) ORDER BY \(order)"
            : "SELECT d.Z_PK, d.Z_ENT FROM \(destination.table) AS d WHERE d.\(link.owner.sqlName) = ? ORDER BY "
                + order.replacing("l.", with: "d.")
        return try objects(
            sql, [.integer(owner.objectID.key)], root: destination.rootEntity, isSource: isSource)
    }

    /// Inserts a row into a join table, or removes it.
    func link(
        _ owner: MigrationObject, to target: MigrationObject, in link: LinkStorage, isRemoving: Bool
    ) throws {
        let columns = [link.owner, link.target].map(\.sqlName)
        let sql =
            isRemoving
            ? "DELETE FROM main.\(link.table.sqlName) WHERE \(columns[0]) = ? AND \(columns[1]) = ?"
            : "INSERT OR IGNORE INTO main.\(link.table.sqlName) (\(columns.joined(separator: ", "))) VALUES (?, ?)"
        try store.execute(sql, [.integer(owner.objectID.key), .integer(target.objectID.key)])
    }
}
