import CoreDataStore
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// A running migration by a mapping model, as a policy sees it: the new store's objects and their associations with
/// older ones. Corresponds to `NSMigrationManager` as an `NSEntityMigrationPolicy` uses it.
///
///     let tag = try manager.insertNewObject(forEntityName: "Tag")
///     try tag.setValue(source.value(forKey: "label"), forKey: "text")
///     try manager.associate(sourceInstance: source, withDestinationInstance: tag, for: mapping)
///
/// New objects are written a few thousand at a time, so that memory doesn't grow with their number. A session is
/// confined to the migration's thread.
public final class MigrationSession {
    let store: StoreWriter
    let plan: MappingPlan
    private let policies: EntityMigrationPolicies
    private let external: ExternalData
    private var running: [Int: EntityMigrationPolicy] = [:]
    private var sourceStorages: [String: EntityStorage] = [:]
    private var destinationStorages: [String: EntityStorage] = [:]
    /// The new objects that a policy may still reference.
    private var registered: [MigrationObjectID: MigrationObject] = [:]
    private var inserted: [MigrationObject] = []
    private var changed: [MigrationObject] = []
    private var nextKeys: [String: Int64] = [:]
    var associations: AssociationTables
    var instances: InstanceCursor?
    var relationships: RelationshipBatch?

    /// The number of unwritten objects at which they are written.
    private static let maximumPending = 2_000

    /// Values that policies share between calls, like the `userInfo` of `NSMigrationManager`.
    public var userInfo: [String: Any] = [:]
    /// The entity mapping that is running; nil between mappings.
    public internal(set) var currentEntityMapping: EntityMapping?
    /// The mapping model, as resolved for the two models.
    public var mappingModel: MappingModel { plan.mapping }
    /// The older model.
    public var sourceModel: ManagedObjectModel { plan.source.model }
    /// The newer model.
    public var destinationModel: ManagedObjectModel { plan.destination.model }

    init(
        _ store: StoreWriter, plan: MappingPlan, policies: EntityMigrationPolicies, external: ExternalData
    ) throws {
        self.store = store
        self.plan = plan
        self.policies = policies
        self.external = external
        associations = AssociationTables(store, plan)
    }

    // MARK: Objects

    /// Creates a new object with its attributes' default values. It isn't associated with any older object.
    ///
    /// - Throws: ``PolicyError`` if the newer model doesn't have the entity, or if it is abstract.
    public func insertNewObject(forEntityName name: String) throws -> MigrationObject {
        try insert(name, key: nil)
    }

    /// - Parameter key: The new object's key; nil for the next free one.
    func insert(_ name: String, key: Int64?) throws -> MigrationObject {
        let storage = try storage(of: name, isSource: false)
        guard !storage.entity.isAbstract else { throw PolicyError("\(name) is abstract: there are no objects of it") }
        let number = try key ?? nextKey(storage)
        let id = MigrationObjectID(isSource: false, rootEntityName: storage.rootEntity, key: number)
        let object = MigrationObject(inserting: id, storage: storage, session: self)
        registered[id] = object
        inserted.append(object)
        return object
    }

    private func nextKey(_ storage: EntityStorage) throws -> Int64 {
        let next = try nextKeys[storage.rootEntity] ?? firstKey(storage)
        nextKeys[storage.rootEntity] = next + 1
        return next
    }

    /// Returns the first key above all keys that mappings assign.
    private func firstKey(_ storage: EntityStorage) throws -> Int64 {
        var used = try store.integer("SELECT max(Z_PK) FROM \(storage.table)") ?? 0
        for entityPlan in plan.entityMappings where entityPlan.mapsObjects {
            guard let destination = entityPlan.destination, let source = entityPlan.source,
                plan.destination.table(of: destination.name)?.rootEntity == storage.rootEntity
            else { continue }
            if entityPlan.keepsKeys, let table = plan.source.table(of: source.name)?.name {
                used = max(used, try store.integer("SELECT max(Z_PK) FROM source.\(table.sqlName)") ?? 0)
            } else if case .table(let name) = entityPlan.association {
                used = max(used, try store.integer("SELECT max(destination) FROM temp.\(name)") ?? 0)
            }
        }
        return used + 1
    }

    func storage(of entity: String, isSource: Bool) throws -> EntityStorage {
        if let cached = (isSource ? sourceStorages : destinationStorages)[entity] { return cached }
        let layout = isSource ? plan.source : plan.destination
        guard let description = layout.model.entity(named: entity) else {
            throw PolicyError("the \(isSource ? "older" : "newer") model has no entity “\(entity)”")
        }
        let storage = EntityStorage(description, layout, schema: isSource ? "source" : "main")
        if isSource { sourceStorages[entity] = storage } else { destinationStorages[entity] = storage }
        return storage
    }

    /// Returns the object with a key; nil if there is none.
    func object(_ entity: String, _ key: Int64, isSource: Bool) throws -> MigrationObject? {
        let storage = try storage(of: entity, isSource: isSource)
        let id = MigrationObjectID(isSource: isSource, rootEntityName: storage.rootEntity, key: key)
        if let cached = registered[id] { return cached }
        let row = try store.prepare("SELECT Z_ENT FROM \(storage.table) WHERE Z_PK = ?", [.integer(key)])
        guard try row.step() else { return nil }
        return try object(id, number: row.integer(0))
    }

    /// Returns an existing object of the entity with this number.
    func object(_ id: MigrationObjectID, number: Int64) throws -> MigrationObject {
        if let cached = registered[id] { return cached }
        let layout = id.isSource ? plan.source : plan.destination
        guard number > 0, number <= layout.numbers.entities.count else {
            throw PolicyError("an object of \(id.rootEntityName) has an entity number that the model doesn't have")
        }
        let entity = layout.numbers.entities[Int(number) - 1].name
        let object = MigrationObject(id, storage: try storage(of: entity, isSource: id.isSource), session: self)
        if !id.isSource { registered[id] = object }
        return object
    }

    /// Returns a registered new object; nil if there is none with that key.
    func unwrittenObject(_ entity: String, _ key: Int64) -> MigrationObject? {
        guard let storage = destinationStorages[entity] else { return nil }
        return registered[MigrationObjectID(isSource: false, rootEntityName: storage.rootEntity, key: key)]
    }

    func read(_ object: MigrationObject) throws -> [SQLiteValue] {
        let storage = object.storage
        let columns = ["Z_PK"] + storage.columns.map(\.sqlName)
        let statement =
            try storage.reading
            ?? store.prepare(
                "SELECT \(columns.joined(separator: ", ")) FROM \(storage.table) WHERE Z_PK = ?")
        storage.reading = statement
        statement.reset()
        try statement.bind([.integer(object.objectID.key)])
        guard try statement.step() else { throw PolicyError("an object of \(object.entityName) is gone") }
        defer { statement.reset() }
        return (0..<storage.columns.count).map { statement.value(Int32($0 + 1)) }
    }

    func externalData(_ bytes: [UInt8]) throws -> [UInt8] { try external.data(bytes) }

    func recordChange(of object: MigrationObject) { changed.append(object) }

    func require(_ object: MigrationObject, isOf entity: String, changing owner: MigrationObject) throws {
        guard !owner.objectID.isSource, !object.objectID.isSource else {
            throw PolicyError("a relationship can only be set between new objects, and one of these is an older one")
        }
        guard try storage(of: entity, isSource: false).rootEntity == object.objectID.rootEntityName,
            destinationModel.family(of: entity).contains(object.entityName)
        else { throw PolicyError("an object of \(object.entityName) can't be used where \(entity) is expected") }
    }

    // MARK: Writing

    /// Writes pending objects once there are enough of them.
    func flushIfNeeded() throws {
        if inserted.count + changed.count >= Self.maximumPending { try flush() }
    }

    /// Writes pending objects.
    func flush() throws {
        for object in inserted { try insert(object) }
        for object in changed where !object.changed.isEmpty { try update(object) }
        inserted.removeAll(keepingCapacity: true)
        changed.removeAll(keepingCapacity: true)
        try forgetUnused()
    }

    private func insert(_ object: MigrationObject) throws {
        let storage = object.storage
        let statement = try storage.insertion ?? insertion(into: storage)
        storage.insertion = statement
        statement.reset()
        try statement.bind(
            [.integer(object.objectID.key), .integer(storage.number), .integer(1)] + object.allValues)
        _ = try statement.step()
        object.markWritten()
    }

    private func insertion(into storage: EntityStorage) throws -> SQLiteStatement {
        let columns = TableLayout.ownColumns + storage.columns.map(\.sqlName)
        let placeholders = [String](repeating: "?", count: columns.count).joined(separator: ", ")
        return try store.prepare(
            "INSERT INTO \(storage.table) (\(columns.joined(separator: ", "))) VALUES (\(placeholders))")
    }

    private func update(_ object: MigrationObject) throws {
        let storage = object.storage
        let slots = object.changed.sorted()
        let statement: SQLiteStatement
        if let cached = storage.updates[object.changed] {
            statement = cached
        } else {
            let columns = slots.map { storage.columns[$0].sqlName + " = ?" }.joined(separator: ", ")
            statement = try store.prepare("UPDATE \(storage.table) SET \(columns) WHERE Z_PK = ?")
            storage.updates[object.changed] = statement
        }
        statement.reset()
        let values = object.allValues
        try statement.bind(slots.map { values[$0] } + [.integer(object.objectID.key)])
        _ = try statement.step()
        object.markWritten()
    }

    /// Forgets objects without outside references. They are read again on demand.
    private func forgetUnused() throws {
        var objects = Array(registered.values)
        registered.removeAll(keepingCapacity: true)
        for index in objects.indices where !isKnownUniquelyReferenced(&objects[index]) {
            registered[objects[index].objectID] = objects[index]
        }
    }

    /// Makes written objects re-read their relationships, since a statement may have changed them.
    func refreshObjects() {
        for object in registered.values { object.refresh() }
    }

    // MARK: Policies

    func policy(of entityPlan: EntityMappingPlan) throws -> EntityMigrationPolicy {
        if let cached = running[entityPlan.number] { return cached }
        guard let name = entityPlan.mapping.entityMigrationPolicyClassName, let type = policies[name] else {
            throw PolicyError("there is no policy for \(entityPlan.mapping.name)")
        }
        let policy = type.init()
        running[entityPlan.number] = policy
        return policy
    }

    /// Runs a policy's method and wraps its errors in a `MigrationError` that names the policy.
    func wrappingErrors<Result>(of entityPlan: EntityMappingPlan, _ body: () throws -> Result) throws -> Result {
        do { return try body() } catch {
            if error is MigrationError || error is MappingModelError || error is StoreError || error is MappingFault {
                throw error
            }
            throw MigrationError(
                CoreDataError.entityMigrationPolicy,
                "the migration policy “\(entityPlan.mapping.entityMigrationPolicyClassName ?? "")” of "
                    + "\(entityPlan.mapping.name) failed: \(error)",
                remedy: "see the policy's error")
        }
    }

    /// Cancels the migration and leaves the store unchanged.
    ///
    /// - Throws: ``MigrationError`` with the code `CoreDataError.migrationCancelled` and `reason` as its message.
    public func cancelMigration(_ reason: String) throws -> Never {
        throw MigrationError(CoreDataError.migrationCancelled, reason, remedy: "see the policy's error")
    }

    /// Breaks the reference cycle between the session and its objects, and releases statements, which keep stores open.
    func close() {
        registered = [:]
        sourceStorages = [:]
        destinationStorages = [:]
        running = [:]
        userInfo = [:]
        associations = AssociationTables(store, plan)
    }

    func validate() throws {
        for entityPlan in plan.entityMappings where entityPlan.usesPolicy {
            let policy = try policy(of: entityPlan)
            try wrappingErrors(of: entityPlan) {
                try policy.performCustomValidation(forMapping: entityPlan.mapping, manager: self)
                try policy.end(entityPlan.mapping, manager: self)
            }
        }
        try flush()
    }
}
