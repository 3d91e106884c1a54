/// How a store of one model becomes a store of another: `NSMappingModel`.
public struct MappingModel: Equatable, Sendable {
    /// In the order in which they are run.
    public var entityMappings: [EntityMapping]
    /// The names of the versions that it was written for; nil where it doesn't say. Entities' hashes go before them.
    public var sourceVersionName: String?
    public var destinationVersionName: String?
    /// What is done with the older objects before they are mapped: in a copy, the store itself stays as it is.
    public var preparations: [MappingStep] = []
    /// What is done with the new objects when all are there, before they are validated.
    public var completions: [MappingStep] = []

    public init(entityMappings: [EntityMapping]) { self.entityMappings = entityMappings }
}

/// What clears rubbish on the way.
public enum MappingStep: Equatable, Sendable {
    /// The entity's objects for which the condition holds are let go; nil for all of them.
    case drop(entity: String, where: MappingPredicate?)
    /// One statement, as SQLite runs it.
    case sql(String)
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
    /// The source's objects that are mapped are those for which this holds; nil for all. An object of an entity that
    /// inherits from the source's is none of it: it has a mapping of its own.
    public var filter: MappingPredicate?
    /// The class that does what expressions can't say; nil for none.
    public var entityMigrationPolicyClassName: String?
    public var userInfo: [String: String] = [:]
    /// Whether a property that has no mapping is new. Otherwise it is automatic.
    public var mapsOnlyWhatIsListed = true
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
    /// The source's property in an inferred mapping; nil when the value is new: an attribute's default, or no object.
    public var sourceName: String?
    /// What the value is made of; nil for a new value, or where it is automatic.
    public var valueExpression: MappingExpression?
    /// Whether the value comes from the source's property of the same name, where there is one: what Xcode's mapping
    /// models leave out, and `MappingModel.resolved(from:to:)` puts in.
    public var isAutomatic = false
    public var userInfo: [String: String] = [:]

    public init(name: String, sourceName: String?) {
        self.name = name
        self.sourceName = sourceName
    }

    public init(name: String, valueExpression: MappingExpression?) {
        self.name = name
        self.valueExpression = valueExpression
    }

    package static func automatic(_ name: String) -> PropertyMapping {
        var mapping = PropertyMapping(name: name, valueExpression: nil)
        mapping.isAutomatic = true
        return mapping
    }
}
