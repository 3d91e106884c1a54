import CoreDataStore
import ManagedObjectModels

/// The new objects that await the mapping's default relationships. They are set in batches, since most policies only
/// use the defaults.
final class RelationshipBatch {
    static let table = "policy_objects"
    let entityPlan: EntityMappingPlan
    /// The relationships whose destinations a policy's function returns.
    let calls: [(relationship: RelationshipDescription, call: PolicyCall, arguments: [PolicyInput])]
    private(set) var keys: [Int64] = []

    init(_ entityPlan: EntityMappingPlan, _ session: MigrationSession) throws {
        self.entityPlan = entityPlan
        calls = try session.plan.relationshipPlans(entityPlan).compactMap { plan in
            try plan.policyCall.map { (plan.relationship, $0, try $0.inputs(entityPlan, session)) }
        }
    }

    func add(_ key: Int64) { keys.append(key) }
    func clear() { keys.removeAll(keepingCapacity: true) }
}

extension MigrationSession {
    private static let batchSize: Int64 = 1_000

    /// Sets the relationships of a new object that its mapping has a value for. This is the default implementation of
    /// ``EntityMigrationPolicy/createRelationships(forDestination:in:manager:)``.
    ///
    /// - Throws: ``PolicyError`` outside the second pass or for an object of the older store.
    public func createDefaultRelationships(of destination: MigrationObject) throws {
        guard let relationships, !destination.objectID.isSource else {
            throw PolicyError("default relationships are set only in the second pass, and only on new objects")
        }
        relationships.add(destination.objectID.key)
        if !relationships.calls.isEmpty { try callPolicy(for: destination, relationships) }
    }

    /// Runs the second pass of an entity mapping that has a policy.
    func createRelationships(_ entityPlan: EntityMappingPlan) throws {
        let policy = try policy(of: entityPlan)
        currentEntityMapping = entityPlan.mapping
        let batch = try RelationshipBatch(entityPlan, self)
        relationships = batch
        defer { relationships = nil }
        try store.execute("CREATE TEMP TABLE IF NOT EXISTS \(RelationshipBatch.table) (key INTEGER PRIMARY KEY)")
        var last: Int64 = 0
        while true {
            let objects = try associatedObjects(of: entityPlan, after: &last)
            if objects.isEmpty { break }
            for object in objects {
                try wrappingErrors(of: entityPlan) {
                    try policy.createRelationships(forDestination: object, in: entityPlan.mapping, manager: self)
                }
            }
            try applyPendingRelationships()
        }
        try wrappingErrors(of: entityPlan) {
            try policy.endRelationshipCreation(forMapping: entityPlan.mapping, manager: self)
        }
        try applyPendingRelationships()
        currentEntityMapping = nil
    }

    /// Returns the next batch of new objects that are associated with an older one, each object once.
    private func associatedObjects(
        of entityPlan: EntityMappingPlan, after last: inout Int64
    ) throws -> [MigrationObject] {
        guard case .table(let name) = entityPlan.association else { return [] }
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

    /// Applies pending changes before an object's relationships are read.
    func applyPendingRelationships(for object: MigrationObject) throws {
        if let relationships, !relationships.keys.isEmpty, !object.objectID.isSource { try applyPendingRelationships() }
    }

    /// Applies the mapping's default relationships, then the changes of the policy, which override them.
    func applyPendingRelationships() throws {
        if let relationships, !relationships.keys.isEmpty {
            try store.execute("DELETE FROM temp.\(RelationshipBatch.table)")
            let insertion = try store.prepare("INSERT OR IGNORE INTO temp.\(RelationshipBatch.table) VALUES (?)")
            for key in relationships.keys {
                insertion.reset()
                try insertion.bind([.integer(key)])
                _ = try insertion.step()
            }
            relationships.clear()
            try RelationshipPass(store, plan).relate(relationships.entityPlan, only: RelationshipBatch.table)
            refreshObjects()
        }
        try flush()
    }

    private func callPolicy(for destination: MigrationObject, _ batch: RelationshipBatch) throws {
        let mapping = batch.entityPlan.mapping.name
        let sources = try sourceInstances(forEntityMappingName: mapping, destinationInstances: [destination])
        guard let source = sources.first else { return }
        for (relationship, call, inputs) in batch.calls {
            let arguments = try inputs.map { try $0.argument(source: source, destination: destination) }
            let result = try policy(of: batch.entityPlan).value(
                forSelector: call.selector, arguments: arguments, manager: self)
            try set(relationship, of: destination, to: result, returnedBy: call.selector)
        }
    }

    private func set(
        _ relationship: RelationshipDescription, of object: MigrationObject, to result: PolicyArgument,
        returnedBy selector: String
    ) throws {
        switch (result, relationship.isToMany) {
        case (.object(let found), false): try object.setObject(found, forKey: relationship.name)
        case (.objects(let found), false): try object.setObject(found.first, forKey: relationship.name)
        case (.objects(let found), true): try object.setObjects(found, forKey: relationship.name)
        case (.object(let found), true):
            try object.setObjects([found].compactMap(\.self), forKey: relationship.name)
        case (.value(nil), _): break
        default: throw PolicyError("“\(selector)” returns no objects for the relationship “\(relationship.name)”")
        }
    }
}
