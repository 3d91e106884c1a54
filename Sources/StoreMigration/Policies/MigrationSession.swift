import CoreDataStore
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// A migration as a policy sees it: what `NSMigrationManager` is to an `NSEntityMigrationPolicy`. Which objects became
/// which, and the new store's objects.
///
/// New objects are written a few thousand at a time, so that memory does not grow with their number. One thread's.
public final class MigrationSession {
    let store: StoreWriter
    let plan: MappingPlan
    private let policies: EntityMigrationPolicies
    private let external: ExternalData
    private var running: [Int: EntityMigrationPolicy] = [:]
    private var sourceStorages: [String: EntityStorage] = [:]
    private var destinationStorages: [String: EntityStorage] = [:]
    /// New objects that somebody may have a reference to.
    private var registered: [MigrationObjectID: MigrationObject] = [:]
    private var inserted: [MigrationObject] = []
    private var changed: [MigrationObject] = []
    private var nextKeys: [String: Int64] = [:]
    var associations: AssociationTables
    var instances: InstanceCursor?
    var relationships: RelationshipBatch?

    /// New objects that may wait to be written.
    private static let mostWaiting = 2_000

    /// What policies want to keep between their calls: `userInfo` of `NSMigrationManager`.
    public var userInfo: [String: Any] = [:]
    /// The entity mapping that is being run.
    public internal(set) var currentEntityMapping: EntityMapping?
    public var mappingModel: MappingModel { plan.mapping }
    public var sourceModel: ManagedObjectModel { plan.source.model }
    public var destinationModel: ManagedObjectModel { plan.destination.model }

    init(_ store: StoreWriter, _ plan: MappingPlan, _ policies: EntityMigrationPolicies, _ external: ExternalData)
        throws
    {
        self.store = store
        self.plan = plan
        self.policies = policies
        self.external = external
        associations = AssociationTables(store, plan)
    }

    // MARK: Objects

    /// Makes a new object, with its attributes' defaults. Throws `PolicyError` for an entity that the newer model doesn't
    /// have, or that is abstract.
    public func insertNewObject(forEntityName name: String) throws -> MigrationObject {
        try insert(name, key: nil)
    }

    /// - Parameter key: The key that it should have; nil for the next one.
    func insert(_ name: String, key: Int64?) throws -> MigrationObject {
        let storage = try storage(of: name, isSource: false)
        guard !storage.entity.isAbstract else { throw PolicyError("\(name) is abstract: there are no objects of it") }
        let number = try key ?? nextKey(storage)
        let id = MigrationObjectID(isSource: false, rootEntityName: storage.rootEntity, key: number)
        let object = MigrationObject(inserting: id, storage, self)
        registered[id] = object
        inserted.append(object)
        return object
    }

    private func nextKey(_ storage: EntityStorage) throws -> Int64 {
        let next = try nextKeys[storage.rootEntity] ?? firstKey(storage)
        nextKeys[storage.rootEntity] = next + 1
        return next
    }

    /// Behind all keys that are given out otherwise.
    private func firstKey(_ storage: EntityStorage) throws -> Int64 {
        var used = try store.integer("SELECT max(Z_PK) FROM \(storage.table)") ?? 0
        for one in plan.entityMappings where one.isRun {
            guard let destination = one.destination, let source = one.source,
                plan.destination.table(of: destination.name)?.rootEntity == storage.rootEntity
            else { continue }
            if one.keepsKeys, let table = plan.source.table(of: source.name)?.name {
                used = max(used, try store.integer("SELECT max(Z_PK) FROM source.\(table.sqlName)") ?? 0)
            } else if case .table(let name) = one.association {
                used = max(used, try store.integer("SELECT max(destination) FROM temp.\(name)") ?? 0)
            }
        }
        return used + 1
    }

    func storage(of entity: String, isSource: Bool) throws -> EntityStorage {
        if let known = (isSource ? sourceStorages : destinationStorages)[entity] { return known }
        let layout = isSource ? plan.source : plan.destination
        guard let description = layout.model.entity(named: entity) else {
            throw PolicyError("the \(isSource ? "older" : "newer") model has no entity “\(entity)”")
        }
        let made = EntityStorage(description, layout, schema: isSource ? "source" : "main")
        if isSource { sourceStorages[entity] = made } else { destinationStorages[entity] = made }
        return made
    }

    /// Nil when there is none of that key.
    func object(_ entity: String, _ key: Int64, isSource: Bool) throws -> MigrationObject? {
        let storage = try storage(of: entity, isSource: isSource)
        let id = MigrationObjectID(isSource: isSource, rootEntityName: storage.rootEntity, key: key)
        if let known = registered[id] { return known }
        let row = try store.prepare("SELECT Z_ENT FROM \(storage.table) WHERE Z_PK = ?", [.integer(key)])
        guard try row.step() else { return nil }
        return try object(id, number: row.integer(0))
    }

    /// An object that is there, of the entity with this number.
    func object(_ id: MigrationObjectID, number: Int64) throws -> MigrationObject {
        if let known = registered[id] { return known }
        let layout = id.isSource ? plan.source : plan.destination
        guard number > 0, number <= layout.numbers.entities.count else {
            throw PolicyError("an object of \(id.rootEntityName) is of no entity of the model")
        }
        let entity = layout.numbers.entities[Int(number) - 1].name
        let object = MigrationObject(id, try storage(of: entity, isSource: id.isSource), self)
        if !id.isSource { registered[id] = object }
        return object
    }

    /// One that the store doesn't have yet.
    func unwritten(_ entity: String, _ key: Int64) -> MigrationObject? {
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

    func externalData(_ bytes: [UInt8], isSource: Bool) throws -> [UInt8] { try external.data(bytes) }

    func noteChange(of object: MigrationObject) { changed.append(object) }

    func require(_ object: MigrationObject, isOf entity: String, changing owner: MigrationObject) throws {
        guard !owner.objectID.isSource, !object.objectID.isSource else {
            throw PolicyError("a relationship is set between new objects, and one of these is an older one")
        }
        guard try storage(of: entity, isSource: false).rootEntity == object.objectID.rootEntityName,
            destinationModel.family(of: entity).contains(object.entityName)
        else { throw PolicyError("an object of \(object.entityName) stands where one of \(entity) is asked for") }
    }

    // MARK: Writing

    /// Writes what waits when it is much.
    func flushIfMany() throws {
        if inserted.count + changed.count >= Self.mostWaiting { try flush() }
    }

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
        object.wasWritten()
    }

    private func insertion(into storage: EntityStorage) throws -> SQLiteStatement {
        let columns = TableLayout.ownColumns + storage.columns.map(\.sqlName)
        let marks = [String](repeating: "?", count: columns.count).joined(separator: ", ")
        return try store.prepare("INSERT INTO \(storage.table) (\(columns.joined(separator: ", "))) VALUES (\(marks))")
    }

    private func update(_ object: MigrationObject) throws {
        let storage = object.storage
        let slots = object.changed.sorted()
        let statement: SQLiteStatement
        if let known = storage.updates[object.changed] {
            statement = known
        } else {
            let columns = slots.map { storage.columns[$0].sqlName + " = ?" }.joined(separator: ", ")
            statement = try store.prepare("UPDATE \(storage.table) SET \(columns) WHERE Z_PK = ?")
            storage.updates[object.changed] = statement
        }
        statement.reset()
        let values = object.allValues
        try statement.bind(slots.map { values[$0] } + [.integer(object.objectID.key)])
        _ = try statement.step()
        object.wasWritten()
    }

    /// Objects that nobody but this has a reference to are read again when they are asked for.
    private func forgetUnused() throws {
        var objects = Array(registered.values)
        registered.removeAll(keepingCapacity: true)
        for index in objects.indices where !isKnownUniquelyReferenced(&objects[index]) {
            registered[objects[index].objectID] = objects[index]
        }
    }

    /// Relationships of what is written now may be changed by a statement: they are read anew.
    func refreshObjects() {
        for object in registered.values { object.refresh() }
    }

    // MARK: Policies

    func policy(of one: EntityMappingPlan) throws -> EntityMigrationPolicy {
        if let known = running[one.number] { return known }
        guard let name = one.mapping.entityMigrationPolicyClassName, let type = policies[name] else {
            throw PolicyError("there is no policy for \(one.mapping.name)")
        }
        let made = type.init()
        running[one.number] = made
        return made
    }

    /// What a policy throws is told with its name.
    func asking<Result>(_ one: EntityMappingPlan, _ body: () throws -> Result) throws -> Result {
        do { return try body() } catch {
            if error is MigrationError || error is MappingModelError || error is StoreError || error is MappingFault {
                throw error
            }
            throw MigrationError(
                CoreDataError.entityMigrationPolicy,
                "the migration policy “\(one.mapping.entityMigrationPolicyClassName ?? "")” of \(one.mapping.name) failed: "
                    + "\(error)",
                remedy: "see what the policy says")
        }
    }

    /// Ends the migration; the store stays as it was.
    public func cancelMigration(_ reason: String) throws -> Never {
        throw MigrationError(CoreDataError.migrationCancelled, reason, remedy: "see what the policy says")
    }

    /// Objects refer to the session, and it to them; statements keep the stores open.
    func close() {
        registered = [:]
        sourceStorages = [:]
        destinationStorages = [:]
        running = [:]
        userInfo = [:]
        associations = AssociationTables(store, plan)
    }

    func validate() throws {
        for one in plan.entityMappings where one.usesPolicy {
            let policy = try policy(of: one)
            try asking(one) {
                try policy.performCustomValidation(forMapping: one.mapping, manager: self)
                try policy.end(one.mapping, manager: self)
            }
        }
        try flush()
    }
}
