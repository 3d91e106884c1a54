import ManagedObjectModels
import SQLiteStore

/// Identifies an object in the older or the new store.
public struct MigrationObjectID: Hashable, Sendable {
    /// True for an object of the older store, false for one of the new store.
    public let isSource: Bool
    /// The name of the root entity, after which the object's table is named.
    public let rootEntityName: String
    /// The primary key, `Z_PK`, which is unique among the objects of the root entity.
    public let key: Int64
}

/// An object in a migration, as a policy sees it. Corresponds to `NSManagedObject`.
///
///     let title = try source.value(forKey: "title")?.stringValue
///     try destination.setValue(.string(title ?? "untitled"), forKey: "name")
///     try destination.add(tag, forKey: "tags")
///
/// Objects of the older store are read-only; new objects can be read and changed. Keys are property names.
///
/// - Important: An object belongs to the migration and its thread. Don't keep it beyond the migration's end, and don't
///   use it on another thread.
public final class MigrationObject {
    /// The object's identity.
    public let objectID: MigrationObjectID
    let storage: EntityStorage
    let session: MigrationSession
    /// The column values by slot; nil until first read.
    private var values: [SQLiteValue]?
    /// The slots whose changes aren't written to the store yet.
    private(set) var changed: Set<Int> = []
    /// True if the object isn't written to the store yet.
    private(set) var isInserted = false
    /// The objects with a to-one relationship to this unwritten object, by the inverse's name.
    private var members: [String: [MigrationObjectID: MigrationObject]] = [:]

    /// The name of the object's entity.
    public var entityName: String { storage.entity.name }

    init(_ id: MigrationObjectID, storage: EntityStorage, session: MigrationSession, values: [SQLiteValue]? = nil) {
        objectID = id
        self.storage = storage
        self.session = session
        self.values = values
    }

    /// Creates a new object with the attributes' default values.
    init(inserting id: MigrationObjectID, storage: EntityStorage, session: MigrationSession) {
        objectID = id
        self.storage = storage
        self.session = session
        values = storage.defaults
        isInserted = true
    }

    // MARK: Attributes

    /// Returns an attribute's value; nil if it has none. Dates are in seconds since 2001-01-01 UTC.
    ///
    /// - Throws: ``PolicyError`` if the entity has no such stored attribute.
    public func value(forKey key: String) throws -> AttributeValue? {
        let (slot, attribute) = try storage.attribute(key)
        return try attribute.value(stored(slot)) { try session.externalData($0) }
    }

    /// Sets an attribute's value; nil removes it. Dates are in seconds since 2001-01-01 UTC.
    ///
    /// - Throws: ``PolicyError`` for an object of the older store, an unknown attribute, or a value of another type.
    public func setValue(_ value: AttributeValue?, forKey key: String) throws {
        let (slot, attribute) = try storage.attribute(key)
        try set(try value.map(attribute.stored) ?? .null, at: slot)
    }

    // MARK: Relationships

    /// Returns the destination of a to-one relationship; nil if there is none.
    ///
    /// - Throws: ``PolicyError`` if the entity has no such stored relationship, or if it is to-many.
    public func object(forKey key: String) throws -> MigrationObject? {
        let relationship = try storage.relationship(key)
        guard !relationship.relationship.isToMany else {
            throw PolicyError("“\(key)” is to-many: use objects(forKey:)")
        }
        return try objects(of: relationship).first
    }

    /// Returns the destinations of a relationship: in order for an ordered one, else sorted by key.
    ///
    /// - Throws: ``PolicyError`` if the entity has no such stored relationship.
    public func objects(forKey key: String) throws -> [MigrationObject] {
        try objects(of: try storage.relationship(key))
    }

    private func objects(of relationship: StoredRelationship) throws -> [MigrationObject] {
        try session.applyPendingRelationships(for: self)
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

    /// Sets the destination of a to-one relationship, and its inverse; nil removes the link.
    ///
    /// - Throws: ``PolicyError`` if this or the other object belongs to the older store, if the relationship is unknown
    ///   or to-many, or if the object is of another entity.
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

    /// Replaces the destinations of a to-many relationship.
    ///
    /// - Throws: ``PolicyError`` as ``add(_:forKey:)`` does.
    public func setObjects(_ objects: [MigrationObject], forKey key: String) throws {
        let wanted = Set(objects.map(\.objectID))
        for old in try self.objects(forKey: key) where !wanted.contains(old.objectID) {
            try remove(old, forKey: key)
        }
        for object in objects { try add(object, forKey: key) }
    }

    /// Adds an object to a to-many relationship.
    ///
    /// - Throws: ``PolicyError`` if this or the other object belongs to the older store, if the relationship is unknown
    ///   or to-one, or if the object is of another entity.
    public func add(_ object: MigrationObject, forKey key: String) throws {
        try change(object, forKey: key) { holder, relationship in try holder.refer(to: self, by: relationship) }
    }

    /// Removes an object from a to-many relationship.
    ///
    /// - Throws: ``PolicyError`` as ``add(_:forKey:)`` does.
    public func remove(_ object: MigrationObject, forKey key: String) throws {
        try change(object, forKey: key, isRemoving: true) { holder, relationship in
            try holder.refer(to: nil, by: relationship)
        }
    }

    private func change(
        _ object: MigrationObject, forKey key: String, isRemoving: Bool = false,
        _ body: (MigrationObject, StoredRelationship) throws -> Void
    ) throws {
        let relationship = try storage.relationship(key)
        guard relationship.relationship.isToMany else {
            throw PolicyError("“\(key)” is to-one: use setObject(_:forKey:)")
        }
        try session.require(object, isOf: relationship.relationship.destinationEntityName, changing: self)
        if relationship.link.isJoinTable {
            return try session.link(self, to: object, in: relationship.link, isRemoving: isRemoving)
        }
        try body(object, relationship)
    }

    /// Sets this object's own to-one relationship.
    private func refer(to object: MigrationObject?, by name: String) throws {
        let relationship = try storage.relationship(name)
        if let object {
            try session.require(object, isOf: relationship.relationship.destinationEntityName, changing: self)
        }
        let destination = relationship.relationship.destinationEntityName
        try refer(to: object, ofEntity: destination, in: relationship.columns, inverse: relationship.inverse?.name)
    }

    /// Sets the columns of this object that store another object's to-many relationship.
    private func refer(to owner: MigrationObject?, by relationship: StoredRelationship) throws {
        try refer(
            to: owner, ofEntity: relationship.entity, in: relationship.columns, inverse: relationship.relationship.name)
    }

    private func refer(
        to object: MigrationObject?, ofEntity entityName: String, in columns: LinkStorage.Columns?, inverse: String?
    ) throws {
        guard let columns, let slot = storage.slot(ofColumn: columns.reference) else {
            throw PolicyError("\(self.entityName) has no column for the relationship")
        }
        if let inverse, case .integer(let key) = try stored(slot) {
            session.unwrittenObject(entityName, key)?.members[inverse]?[objectID] = nil
        }
        try set(object.map { .integer($0.objectID.key) } ?? .null, at: slot)
        if let entity = columns.entity.flatMap(storage.slot) {
            try set(object.map { .integer($0.storage.number) } ?? .null, at: entity)
        }
        // Order numbers are assigned when all objects exist.
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
        if !isInserted, changed.isEmpty { session.recordChange(of: self) }
        values?[slot] = value
        if !isInserted { changed.insert(slot) }
    }

    /// The values of all columns, for writing.
    var allValues: [SQLiteValue] { values ?? storage.defaults }

    /// Marks the object as written to the store.
    func markWritten() {
        isInserted = false
        changed = []
        members = [:]
    }

    /// Discards values that a statement may have changed in the store, and keeps unwritten changes.
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
    public static func == (lhs: MigrationObject, rhs: MigrationObject) -> Bool { lhs.objectID == rhs.objectID }
    public func hash(into hasher: inout Hasher) { hasher.combine(objectID) }
}
