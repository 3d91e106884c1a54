import ManagedObjectModels
import SQLiteStore

/// Which object it is, of which of the two stores.
public struct MigrationObjectID: Hashable, Sendable {
    public let isSource: Bool
    /// The entity that the object's table is named after.
    public let rootEntityName: String
    /// `Z_PK`.
    public let key: Int64
}

/// An object as a migration policy sees it: what `NSManagedObject` is there. An older one can only be read, a new one
/// read and changed. Keys are properties' names. It is the migration's, and of one thread; don't keep it for longer.
public final class MigrationObject {
    public let objectID: MigrationObjectID
    let storage: EntityStorage
    let session: MigrationSession
    /// Nil until they are asked for.
    private var values: [SQLiteValue]?
    /// Columns that the store doesn't have yet.
    private(set) var changed: Set<Int> = []
    /// Whether the store doesn't have the object yet.
    private(set) var isInserted = false
    /// Of an object that the store doesn't have yet: who has a to-one relationship to it, by the inverse's name.
    private var members: [String: [MigrationObjectID: MigrationObject]] = [:]

    public var entityName: String { storage.entity.name }

    init(_ id: MigrationObjectID, _ storage: EntityStorage, _ session: MigrationSession, values: [SQLiteValue]? = nil) {
        objectID = id
        self.storage = storage
        self.session = session
        self.values = values
    }

    /// A new one.
    init(inserting id: MigrationObjectID, _ storage: EntityStorage, _ session: MigrationSession) {
        objectID = id
        self.storage = storage
        self.session = session
        values = storage.defaults
        isInserted = true
    }

    // MARK: Attributes

    /// Nil for no value. Throws `PolicyError` for what is no attribute of the entity.
    public func value(forKey key: String) throws -> AttributeValue? {
        let (slot, attribute) = try storage.attribute(key)
        return try attribute.value(stored(slot)) { try session.externalData($0, isSource: objectID.isSource) }
    }

    /// Throws `PolicyError` for an older object, for what is no attribute of the entity, and for a value of another type.
    public func setValue(_ value: AttributeValue?, forKey key: String) throws {
        let (slot, attribute) = try storage.attribute(key)
        try set(try value.map(attribute.stored) ?? .null, at: slot)
    }

    // MARK: Relationships

    /// What a to-one relationship leads to.
    public func object(forKey key: String) throws -> MigrationObject? {
        let relationship = try storage.relationship(key)
        guard !relationship.relationship.isToMany else {
            throw PolicyError("“\(key)” is to-many: use objects(forKey:)")
        }
        return try objects(of: relationship).first
    }

    /// What a relationship leads to; of an ordered one in its order, else by their keys.
    public func objects(forKey key: String) throws -> [MigrationObject] {
        try objects(of: try storage.relationship(key))
    }

    private func objects(of relationship: StoredRelationship) throws -> [MigrationObject] {
        try session.settle(self)
        let destination = relationship.relationship.destinationEntityName
        if relationship.isOwn, let slot = storage.slot(ofColumn: relationship.link.target) {
            guard case .integer(let key) = try stored(slot) else { return [] }
            return try session.object(destination, key, isSource: objectID.isSource).map { [$0] } ?? []
        }
        if isInserted, !relationship.link.isJoinTable {
            return (members[relationship.relationship.name] ?? [:]).values.sorted { $0.objectID.key < $1.objectID.key }
        }
        return try session.objects(of: relationship, self)
    }

    /// Makes a to-one relationship lead to `object`, and the inverse back.
    public func setObject(_ object: MigrationObject?, forKey key: String) throws {
        let relationship = try storage.relationship(key)
        guard !relationship.relationship.isToMany else {
            throw PolicyError("“\(key)” is to-many: use setObjects(_:forKey:)")
        }
        if let inverse = relationship.inverse, !inverse.isToMany {
            try self.object(forKey: key)?.refer(to: nil, by: inverse.name)
            try object?.refer(to: self, by: inverse.name)
        }
        try refer(to: object, by: key)
    }

    /// Makes a to-many relationship lead to these and no others.
    public func setObjects(_ objects: [MigrationObject], forKey key: String) throws {
        let wanted = Set(objects.map(\.objectID))
        for old in try self.objects(forKey: key) where !wanted.contains(old.objectID) {
            try remove(old, forKey: key)
        }
        for object in objects { try add(object, forKey: key) }
    }

    /// Adds one to a to-many relationship.
    public func add(_ object: MigrationObject, forKey key: String) throws {
        try change(object, key) { holder, slots in try holder.refer(to: self, by: slots) }
    }

    /// Removes one from a to-many relationship.
    public func remove(_ object: MigrationObject, forKey key: String) throws {
        try change(object, key, isRemoving: true) { holder, slots in try holder.refer(to: nil, by: slots) }
    }

    private func change(
        _ object: MigrationObject, _ key: String, isRemoving: Bool = false,
        _ body: (MigrationObject, StoredRelationship) throws -> Void
    ) throws {
        let relationship = try storage.relationship(key)
        guard relationship.relationship.isToMany else {
            throw PolicyError("“\(key)” is to-one: use setObject(_:forKey:)")
        }
        try session.require(object, isOf: relationship.relationship.destinationEntityName, changing: self)
        if relationship.link.isJoinTable {
            return try session.link(self, object, relationship.link, isRemoving: isRemoving)
        }
        try body(object, relationship)
    }

    /// This object's own to-one relationship.
    private func refer(to object: MigrationObject?, by name: String) throws {
        let relationship = try storage.relationship(name)
        if let object {
            try session.require(object, isOf: relationship.relationship.destinationEntityName, changing: self)
        }
        let other = relationship.relationship.destinationEntityName
        try refer(to: object, ofEntity: other, in: relationship.columns, inverse: relationship.inverse?.name)
    }

    /// The columns in which another object's to-many relationship is kept with this one.
    private func refer(to owner: MigrationObject?, by relationship: StoredRelationship) throws {
        try refer(
            to: owner, ofEntity: relationship.entity, in: relationship.columns, inverse: relationship.relationship.name)
    }

    private func refer(
        to object: MigrationObject?, ofEntity other: String, in columns: LinkStorage.Columns?, inverse: String?
    ) throws {
        guard let columns, let slot = storage.slot(ofColumn: columns.reference) else {
            throw PolicyError("\(entityName) has no column for the relationship")
        }
        if let inverse, case .integer(let key) = try stored(slot) {
            session.unwritten(other, key)?.members[inverse]?[objectID] = nil
        }
        try set(object.map { .integer($0.objectID.key) } ?? .null, at: slot)
        if let entity = columns.entity.flatMap(storage.slot) {
            try set(object.map { .integer($0.storage.number) } ?? .null, at: entity)
        }
        // Places are given out when all are there.
        if let order = columns.order.flatMap(storage.slot) { try set(.null, at: order) }
        if let inverse, let object, object.isInserted { object.members[inverse, default: [:]][objectID] = self }
    }

    // MARK: Storage

    func stored(_ slot: Int) throws -> SQLiteValue {
        if let values { return values[slot] }
        let read = try session.read(self)
        values = read
        return read[slot]
    }

    func set(_ value: SQLiteValue, at slot: Int) throws {
        guard !objectID.isSource else { throw PolicyError("an older object can't be changed") }
        _ = try stored(slot)
        if !isInserted, changed.isEmpty { session.noteChange(of: self) }
        values?[slot] = value
        if !isInserted { changed.insert(slot) }
    }

    /// All columns' values, for one that the store doesn't have yet.
    var allValues: [SQLiteValue] { values ?? storage.defaults }

    /// The store has it now.
    func wasWritten() {
        isInserted = false
        changed = []
        members = [:]
    }

    /// Others may have changed what the store has; what was changed here stays.
    func refresh() {
        guard !isInserted, !objectID.isSource else { return }
        guard !changed.isEmpty, let own = values else {
            values = nil
            return
        }
        values = nil
        guard var read = try? session.read(self) else {
            values = own
            return
        }
        for slot in changed { read[slot] = own[slot] }
        values = read
    }
}

extension MigrationObject: Hashable {
    public static func == (one: MigrationObject, other: MigrationObject) -> Bool { one.objectID == other.objectID }
    public func hash(into hasher: inout Hasher) { hasher.combine(objectID) }
}
