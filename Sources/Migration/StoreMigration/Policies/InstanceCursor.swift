import CoreDataStore
import SQLiteStore

/// Iterates over one entity mapping's older objects, each with the mapping's values for the new object.
final class InstanceCursor {
    let entityPlan: EntityMappingPlan
    private let rows: SQLiteStatement
    private let storage: EntityStorage
    private let session: MigrationSession
    /// The new object's slot for each value that follows the object's own columns.
    private let slots: [Int]
    private let calls: [(slot: Int, attribute: String, call: PolicyCall, arguments: [PolicyInput])]
    private(set) var current: MigrationObject?
    /// True if a default instance was created for the current object.
    var hasDefaultInstance = false

    init(_ entityPlan: EntityMappingPlan, _ session: MigrationSession) throws {
        guard let source = entityPlan.source, let destination = entityPlan.destination,
            let table = session.plan.source.table(of: source.name)
        else { throw PolicyError("\(entityPlan.mapping.name) has no older objects") }
        let target = try session.storage(of: destination.name, isSource: false)
        storage = try session.storage(of: source.name, isSource: true)
        var slots: [Int] = []
        var calls: [(slot: Int, attribute: String, call: PolicyCall, arguments: [PolicyInput])] = []
        var values: [String] = []
        for assignment in try session.plan.attributeAssignments(entityPlan) {
            guard let slot = target.slot(ofColumn: assignment.column) else { continue }
            if let call = assignment.policyCall, let attribute = assignment.attribute {
                calls.append((slot, attribute, call, try call.inputs(entityPlan, session)))
            } else {
                slots.append(slot)
                values.append(assignment.value)
            }
        }
        let alias = EntityMappingPlan.rowAlias
        let columns = ["\(alias).Z_PK"] + storage.columns.map { alias + "." + $0.sqlName } + values
        let conditions = try session.plan.conditions(entityPlan, alias: alias).joined(separator: " AND ")
        rows = try session.store.prepare(
            "SELECT \(columns.joined(separator: ", ")) FROM source.\(table.name.sqlName) AS \(alias) NOT INDEXED "
                + "WHERE \(conditions) ORDER BY \(alias).Z_PK")
        self.entityPlan = entityPlan
        self.session = session
        self.slots = slots
        self.calls = calls
    }

    /// Advances to the next older object and returns it; nil at the end.
    func next() throws -> MigrationObject? {
        hasDefaultInstance = false
        guard try rows.step() else {
            current = nil
            return nil
        }
        let id = MigrationObjectID(isSource: true, rootEntityName: storage.rootEntity, key: rows.integer(0))
        let values = (0..<storage.columns.count).map { rows.value(Int32($0 + 1)) }
        let object = MigrationObject(id, storage: storage, session: session, values: values)
        current = object
        return object
    }

    /// Sets the mapping's values for the current older object.
    func setValues(of new: MigrationObject) throws {
        let first = storage.columns.count + 1
        for (index, slot) in slots.enumerated() { try new.set(rows.value(Int32(first + index)), at: slot) }
        guard let current else { return }
        for (slot, attribute, call, arguments) in calls {
            let result = try session.policy(of: entityPlan).value(
                forSelector: call.selector,
                arguments: try arguments.map { try $0.argument(source: current, destination: new) },
                manager: session)
            guard case .value(let value) = result else {
                throw PolicyError("“\(call.selector)” returns no value for the attribute “\(attribute)”")
            }
            let description = try new.storage.attribute(attribute).attribute
            try new.set(try value.map(description.stored) ?? .null, at: slot)
        }
    }
}

extension MigrationSession {
    /// Creates the mapping's new object for the older object being mapped, and associates the two. This is the default
    /// implementation of ``EntityMigrationPolicy/createDestinationInstances(forSource:in:manager:)``.
    ///
    /// - Throws: ``PolicyError`` unless `source` is the object being mapped, and errors of the policy's functions.
    public func createDefaultInstance(for source: MigrationObject) throws -> MigrationObject {
        guard let instances, source == instances.current, let entity = instances.entityPlan.destination else {
            throw PolicyError("a default instance exists only for the object being mapped")
        }
        // If keys are kept, the first new object gets the older object's key.
        let keepsKey = instances.entityPlan.keepsKeys && !instances.hasDefaultInstance
        instances.hasDefaultInstance = true
        let new = try insert(entity.name, key: keepsKey ? source.objectID.key : nil)
        try instances.setValues(of: new)
        try associations.add(source, becoming: new, by: instances.entityPlan)
        return new
    }

    /// Runs the first pass of an entity mapping that has a policy.
    func createInstances(_ entityPlan: EntityMappingPlan) throws {
        let policy = try policy(of: entityPlan)
        currentEntityMapping = entityPlan.mapping
        try wrappingErrors(of: entityPlan) { try policy.begin(entityPlan.mapping, with: self) }
        if entityPlan.mapsObjects {
            let cursor = try InstanceCursor(entityPlan, self)
            instances = cursor
            defer { instances = nil }
            while let source = try cursor.next() {
                try wrappingErrors(of: entityPlan) {
                    try policy.createDestinationInstances(forSource: source, in: entityPlan.mapping, manager: self)
                }
                try flushIfNeeded()
            }
        }
        try wrappingErrors(of: entityPlan) {
            try policy.endInstanceCreation(forMapping: entityPlan.mapping, manager: self)
        }
        try flush()
        currentEntityMapping = nil
    }
}
