import ManagedObjectModel

/// How a store of one model becomes a store of another: `NSMappingModel`.
public struct MappingModel: Equatable, Sendable {
    /// In the order in which they are run.
    public var entityMappings: [EntityMapping]

    public init(entityMappings: [EntityMapping]) { self.entityMappings = entityMappings }
}

/// What becomes of one entity's objects: `NSEntityMapping`.
public struct EntityMapping: Equatable, Sendable {
    /// `NSEntityMappingType`, with its numbers.
    public enum Kind: Int, Sendable {
        case undefined, custom, add, remove, copy, transform
    }

    public var name: String
    public var kind: Kind
    /// Nil when the entity is added.
    public var sourceEntityName: String?
    /// Nil when the entity is removed.
    public var destinationEntityName: String?
    /// 32 bytes: the mapping fits only models whose entities have these.
    public var sourceEntityVersionHash: [UInt8]?
    public var destinationEntityVersionHash: [UInt8]?
    public var attributeMappings: [PropertyMapping]
    public var relationshipMappings: [PropertyMapping]

    public init(
        name: String, kind: Kind, sourceEntityName: String?, destinationEntityName: String?,
        sourceEntityVersionHash: [UInt8]? = nil, destinationEntityVersionHash: [UInt8]? = nil,
        attributeMappings: [PropertyMapping] = [], relationshipMappings: [PropertyMapping] = []
    ) {
        self.name = name
        self.kind = kind
        self.sourceEntityName = sourceEntityName
        self.destinationEntityName = destinationEntityName
        self.sourceEntityVersionHash = sourceEntityVersionHash
        self.destinationEntityVersionHash = destinationEntityVersionHash
        self.attributeMappings = attributeMappings
        self.relationshipMappings = relationshipMappings
    }
}

/// Where one property's value comes from: `NSPropertyMapping`.
public struct PropertyMapping: Equatable, Sendable {
    /// The destination's property.
    public var name: String
    /// The source's property; nil when the value is new: an attribute's default, or no object.
    public var sourceName: String?

    public init(name: String, sourceName: String?) {
        self.name = name
        self.sourceName = sourceName
    }
}
