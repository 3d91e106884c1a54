import CoreDataStore
import SQLiteStore

/// One entity mapping's older objects, row by row, each with the values that the mapping says for the new one.
final class InstanceCursor {
    let one: EntityMappingPlan
    private let rows: SQLiteStatement
    private let storage: EntityStorage
    private let session: MigrationSession
    /// For each value behind the object's own columns, the new object's column.
    private let slots: [Int]
    private let calls: [(slot: Int, attribute: String, call: PolicyCall, arguments: [PolicyInput])]
    private(set) var current: MigrationObject?
    /// Whether something was made of the current one by default.
    var hasMade = false

    init(_ one: EntityMappingPlan, _ session: MigrationSession) throws {
        guard let source = one.source, let destination = one.destination,
            let table = session.plan.source.table(of: source.name)
        else { throw PolicyError("\(one.mapping.name) has no older objects") }
        let target = try session.storage(of: destination.name, isSource: false)
        storage = try session.storage(of: source.name, isSource: true)
        var slots: [Int] = []
        var calls: [(slot: Int, attribute: String, call: PolicyCall, arguments: [PolicyInput])] = []
        var values: [String] = []
        for assignment in try session.plan.attributeAssignments(one) {
            guard let slot = target.slot(ofColumn: assignment.column) else { continue }
            if let call = assignment.policyCall, let attribute = assignment.attribute {
                calls.append((slot, attribute, call, try call.inputs(one, session)))
            } else {
                slots.append(slot)
                values.append(assignment.value)
            }
        }
        let alias = EntityMappingPlan.rowAlias
        let columns = ["\(alias).Z_PK"] + storage.columns.map { alias + "." + $0.sqlName } + values
        let conditions = try session.plan.conditions(one, alias: alias).joined(separator: " AND ")
        rows = try session.store.prepare(
            "SELECT \(columns.joined(separator: ", ")) FROM source.\(table.name.sqlName) AS \(alias) NOT INDEXED "
                + "WHERE \(conditions) ORDER BY \(alias).Z_PK")
        self.one = one
        self.session = session
        self.slots = slots
        self.calls = calls
    }

    /// The next older object; nil at the end.
    func next() throws -> MigrationObject? {
        hasMade = false
        guard try rows.step() else {
            current = nil
            return nil
        }
        let id = MigrationObjectID(isSource: true, rootEntityName: storage.rootEntity, key: rows.integer(0))
        let values = (0..<storage.columns.count).map { rows.value(Int32($0 + 1)) }
        let object = MigrationObject(id, storage, session, values: values)
        current = object
        return object
    }

    /// Sets what the mapping says of the current older object.
    func setValues(of new: MigrationObject) throws {
        let first = storage.columns.count + 1
        for (index, slot) in slots.enumerated() { try new.set(rows.value(Int32(first + index)), at: slot) }
        guard let current else { return }
        for (slot, attribute, call, arguments) in calls {
            let answer = try session.policy(of: one).value(
                forSelector: call.selector, arguments: try arguments.map { try $0.argument(current, new, session) },
                manager: session)
            guard case .value(let value) = answer else {
                throw PolicyError("“\(call.selector)” gives no value for the attribute “\(attribute)”")
            }
            let description = try new.storage.attribute(attribute).attribute
            try new.set(try value.map(description.stored) ?? .null, at: slot)
        }
    }
}

extension MigrationSession {
    /// Makes what the mapping says of the older object that is being mapped, and associates the two: what
    /// `EntityMigrationPolicy.createDestinationInstances` does as it is.
    public func createDefaultInstance(for source: MigrationObject) throws -> MigrationObject {
        guard let instances, source == instances.current, let entity = instances.one.destination else {
            throw PolicyError("only the object that is being mapped has a default")
        }
        // The first that is made of an object has its key, where keys are kept.
        let keepsKey = instances.one.keepsKeys && !instances.hasMade
        instances.hasMade = true
        let new = try insert(entity.name, key: keepsKey ? source.objectID.key : nil)
        try instances.setValues(of: new)
        try associations.add(source, new, instances.one)
        return new
    }

    /// The first pass of an entity mapping that has a policy.
    func createInstances(_ one: EntityMappingPlan) throws {
        let policy = try policy(of: one)
        currentEntityMapping = one.mapping
        try asking(one) { try policy.begin(one.mapping, with: self) }
        if one.isRun {
            let cursor = try InstanceCursor(one, self)
            instances = cursor
            defer { instances = nil }
            while let source = try cursor.next() {
                try asking(one) {
                    try policy.createDestinationInstances(forSource: source, in: one.mapping, manager: self)
                }
                try flushIfMany()
            }
        }
        try asking(one) { try policy.endInstanceCreation(forMapping: one.mapping, manager: self) }
        try flush()
        currentEntityMapping = nil
    }
}
