import CoreDataStore
import ManagedObjectModels

/// New objects whose relationships are to be those that the mapping says: set for many at once, since a policy mostly
/// leaves it at that.
final class RelationshipBatch {
    static let table = "policy_objects"
    let one: EntityMappingPlan
    /// Relationships whose objects the policy is asked for.
    let calls: [(relationship: RelationshipDescription, call: PolicyCall, arguments: [PolicyInput])]
    private(set) var keys: [Int64] = []

    init(_ one: EntityMappingPlan, _ session: MigrationSession) throws {
        self.one = one
        calls = try session.plan.relationshipPlans(one).compactMap { plan in
            try plan.policyCall.map { (plan.relationship, $0, try $0.inputs(one, session)) }
        }
    }

    func add(_ key: Int64) { keys.append(key) }
    func clear() { keys.removeAll(keepingCapacity: true) }
}

extension MigrationSession {
    private static let batchSize: Int64 = 1_000

    /// Sets those relationships of the new object that its mapping has a value for: what
    /// `EntityMigrationPolicy.createRelationships` does as it is.
    public func createDefaultRelationships(of destination: MigrationObject) throws {
        guard let relationships, !destination.objectID.isSource else {
            throw PolicyError("relationships are set in the second pass, of new objects")
        }
        relationships.add(destination.objectID.key)
        if !relationships.calls.isEmpty { try callPolicy(for: destination, relationships) }
    }

    /// The second pass of an entity mapping that has a policy.
    func createRelationships(_ one: EntityMappingPlan) throws {
        let policy = try policy(of: one)
        currentEntityMapping = one.mapping
        let batch = try RelationshipBatch(one, self)
        relationships = batch
        defer { relationships = nil }
        try store.execute("CREATE TEMP TABLE IF NOT EXISTS \(RelationshipBatch.table) (key INTEGER PRIMARY KEY)")
        var last: Int64 = 0
        while true {
            let objects = try associated(one, after: &last)
            if objects.isEmpty { break }
            for object in objects {
                try asking(one) {
                    try policy.createRelationships(forDestination: object, in: one.mapping, manager: self)
                }
            }
            try settleAll()
        }
        try asking(one) { try policy.endRelationshipCreation(forMapping: one.mapping, manager: self) }
        try settleAll()
        currentEntityMapping = nil
    }

    /// The next new objects that are associated with an older one, each once.
    private func associated(_ one: EntityMappingPlan, after last: inout Int64) throws -> [MigrationObject] {
        guard case .table(let name) = one.association else { return [] }
        let rows = try store.prepare(
            "SELECT rowid, destination, destination_entity FROM temp.\(name) AS a WHERE rowid > ? AND NOT EXISTS ("
                + "SELECT 1 FROM temp.\(name) AS b WHERE b.destination = a.destination AND b.rowid < a.rowid "
                + "AND b.destination_entity = a.destination_entity) ORDER BY rowid LIMIT ?",
            [.integer(last), .integer(Self.batchSize)])
        var found: [(Int64, Int64)] = []
        while try rows.step() {
            last = rows.integer(0)
            found.append((rows.integer(1), rows.integer(2)))
        }
        return try found.map { key, number in
            let entity = plan.destination.numbers.entities[Int(number) - 1].name
            let root = plan.destination.table(of: entity)?.rootEntity ?? entity
            return try object(MigrationObjectID(isSource: false, rootEntityName: root, key: key), number: number)
        }
    }

    /// Before somebody looks at an object's relationships: what waits is done.
    func settle(_ object: MigrationObject) throws {
        if let relationships, !relationships.keys.isEmpty, !object.objectID.isSource { try settleAll() }
    }

    /// Relationships that the mapping says come first: what a policy has set itself goes over them.
    func settleAll() throws {
        if let relationships, !relationships.keys.isEmpty {
            try store.execute("DELETE FROM temp.\(RelationshipBatch.table)")
            let insertion = try store.prepare("INSERT OR IGNORE INTO temp.\(RelationshipBatch.table) VALUES (?)")
            for key in relationships.keys {
                insertion.reset()
                try insertion.bind([.integer(key)])
                _ = try insertion.step()
            }
            relationships.clear()
            try RelationshipPass(store, plan).relate(relationships.one, only: RelationshipBatch.table)
            refreshObjects()
        }
        try flush()
    }

    private func callPolicy(for destination: MigrationObject, _ batch: RelationshipBatch) throws {
        let mapping = batch.one.mapping.name
        let sources = try sourceInstances(forEntityMappingName: mapping, destinationInstances: [destination])
        guard let source = sources.first else { return }
        for (relationship, call, inputs) in batch.calls {
            let arguments = try inputs.map { try $0.argument(source, destination, self) }
            let answer = try policy(of: batch.one).value(
                forSelector: call.selector, arguments: arguments, manager: self)
            try set(answer, relationship, of: destination, call.selector)
        }
    }

    private func set(
        _ answer: PolicyArgument, _ relationship: RelationshipDescription, of object: MigrationObject,
        _ selector: String
    ) throws {
        switch (answer, relationship.isToMany) {
        case (.object(let found), false): try object.setObject(found, forKey: relationship.name)
        case (.objects(let found), false): try object.setObject(found.first, forKey: relationship.name)
        case (.objects(let found), true): try object.setObjects(found, forKey: relationship.name)
        case (.object(let found), true):
            try object.setObjects([found].compactMap(\.self), forKey: relationship.name)
        case (.value(nil), _): break
        default: throw PolicyError("“\(selector)” gives no objects for the relationship “\(relationship.name)”")
        }
    }
}
