import CoreDataStore
import MappingModels
import SQLiteStore

/// What became of which object, looked up one by one.
struct AssociationTables {
    private let store: StoreWriter
    private let plan: MappingPlan
    private var insertions: [String: SQLiteStatement] = [:]
    private var lookups: [String: SQLiteStatement] = [:]
    /// What the object that is being mapped became: asked for more than anything else.
    private var latest: [Int: (source: Int64, destinations: [MigrationObject])] = [:]

    init(_ store: StoreWriter, _ plan: MappingPlan) {
        self.store = store
        self.plan = plan
    }

    mutating func add(_ source: MigrationObject, _ destination: MigrationObject, _ one: EntityMappingPlan) throws {
        guard case .table(let name) = one.association else {
            throw PolicyError("\(one.mapping.name) has no policy: what its objects become is given")
        }
        let statement = try insertions[name] ?? store.prepare("INSERT INTO temp.\(name) VALUES (?, ?, ?, ?)")
        insertions[name] = statement
        statement.reset()
        try statement.bind([
            .integer(source.objectID.key), .integer(source.storage.number), .integer(destination.objectID.key),
            .integer(destination.storage.number),
        ])
        _ = try statement.step()
        if let known = latest[one.number], known.source == source.objectID.key {
            latest[one.number]?.destinations.append(destination)
        } else {
            latest[one.number] = (source.objectID.key, [destination])
        }
    }

    /// - Parameter isForward: From an older object to new ones, else back.
    mutating func objects(
        _ object: MigrationObject, _ one: EntityMappingPlan, isForward: Bool, _ session: MigrationSession
    ) throws -> [MigrationObject] {
        if isForward, let known = latest[one.number], known.source == object.objectID.key,
            one.source?.name == object.entityName
        {
            return known.destinations
        }
        switch one.association {
        case .identity: return try kept(object, one, isForward: isForward, session)
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
            return try found.map { try other($0.0, $0.1, isSource: !isForward, session) }
        }
    }

    private func other(
        _ key: Int64, _ number: Int64, isSource: Bool, _ session: MigrationSession
    ) throws -> MigrationObject {
        let layout = isSource ? plan.source : plan.destination
        let entity = layout.numbers.entities[Int(number) - 1].name
        let root = layout.table(of: entity)?.rootEntity ?? entity
        return try session.object(
            MigrationObjectID(isSource: isSource, rootEntityName: root, key: key), number: number)
    }

    /// Of a mapping that keeps keys: the object of the same key, where it was mapped.
    private func kept(
        _ object: MigrationObject, _ one: EntityMappingPlan, isForward: Bool, _ session: MigrationSession
    ) throws -> [MigrationObject] {
        guard let source = one.source, let destination = one.destination else { return [] }
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
    /// Notes that the new object is what became of the older one.
    public func associate(
        sourceInstance source: MigrationObject, withDestinationInstance destination: MigrationObject,
        for mapping: EntityMapping
    ) throws {
        guard source.objectID.isSource, !destination.objectID.isSource, let one = plan.plan(named: mapping.name) else {
            throw PolicyError("an older object is associated with a new one, for an entity mapping that there is")
        }
        try associations.add(source, destination, one)
    }

    /// What the entity mapping made of the older objects, so far.
    public func destinationInstances(
        forEntityMappingName name: String, sourceInstances: [MigrationObject]
    ) throws -> [MigrationObject] {
        guard let one = plan.plan(named: name) else { throw PolicyError("there is no entity mapping “\(name)”") }
        return try sourceInstances.flatMap { try associations.objects($0, one, isForward: true, self) }
    }

    /// What the entity mapping made the new objects of.
    public func sourceInstances(
        forEntityMappingName name: String, destinationInstances: [MigrationObject]
    ) throws -> [MigrationObject] {
        guard let one = plan.plan(named: name) else { throw PolicyError("there is no entity mapping “\(name)”") }
        return try destinationInstances.flatMap { try associations.objects($0, one, isForward: false, self) }
    }

    /// Older objects of the entity, and of those that inherit from it, for which the condition holds; nil for all.
    public func sourceObjects(ofEntity name: String, where format: String? = nil) throws -> [MigrationObject] {
        try objects(of: name, format, isSource: true)
    }

    /// New objects likewise.
    public func destinationObjects(ofEntity name: String, where format: String? = nil) throws -> [MigrationObject] {
        try objects(of: name, format, isSource: false)
    }

    private func objects(of name: String, _ format: String?, isSource: Bool) throws -> [MigrationObject] {
        if !isSource { try settleAll() }
        let layout = isSource ? plan.source : plan.destination
        let storage = try storage(of: name, isSource: isSource)
        var compiler = ExpressionCompiler(layout, schema: isSource ? "source" : "main").about(name, as: "s")
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

    /// What a relationship leads to that isn't in the object's own row.
    func objects(of relationship: StoredRelationship, _ owner: MigrationObject) throws -> [MigrationObject] {
        let isSource = owner.objectID.isSource
        if !isSource { try settleAll() }
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

    /// A row of a join table, or its removal.
    func link(
        _ owner: MigrationObject, _ target: MigrationObject, _ link: LinkStorage, isRemoving: Bool
    ) throws {
        let columns = [link.owner, link.target].map(\.sqlName)
        let sql =
            isRemoving
            ? "DELETE FROM main.\(link.table.sqlName) WHERE \(columns[0]) = ? AND \(columns[1]) = ?"
            : "INSERT OR IGNORE INTO main.\(link.table.sqlName) (\(columns.joined(separator: ", "))) VALUES (?, ?)"
        try store.execute(sql, [.integer(owner.objectID.key), .integer(target.objectID.key)])
    }
}
