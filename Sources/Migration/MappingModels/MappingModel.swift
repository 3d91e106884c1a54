import ManagedObjectModels

/// Describes how a store of one model becomes a store of another. Corresponds to `NSMappingModel`.
///
///     let inferred = try MappingModel.inferred(from: old, to: new)
///     for mapping in inferred.entityMappings { print(mapping.name, mapping.kind) }
///
/// ``MappingModelFile`` reads one from a file, and ``inferred(from:to:)`` infers one from the models.
public struct MappingModel: Equatable, Sendable {
    /// The entity mappings in the order they run.
    public var entityMappings: [EntityMapping]
    /// The name of the version that the mapping migrates from; nil if unspecified. Version hashes of entities take
    /// precedence over the names.
    public var sourceVersionName: String?
    /// The name of the version that the mapping migrates to; nil if unspecified.
    public var destinationVersionName: String?
    /// Steps that run on a copy of the older store before objects are mapped. The store itself is unchanged.
    public var preparations: [MappingStep] = []
    /// Steps that run on the new store when all objects exist, before they are validated.
    public var completions: [MappingStep] = []

    /// Creates a mapping model without version names and steps.
    public init(entityMappings: [EntityMapping]) { self.entityMappings = entityMappings }
}

/// A cleanup step before or after the entity mappings.
///
///     model.preparations = [.drop(entity: "Draft", where: try MappingPredicate(format: "title == nil"))]
public enum MappingStep: Equatable, Sendable {
    /// Deletes the entity's objects that meet the condition, or all of them if it is nil.
    case drop(entity: String, where: MappingPredicate?)
    /// Runs one SQL statement.
    case sql(String)
}

/// Describes the migration of one entity's objects. Corresponds to `NSEntityMapping`.
///
///     let title = PropertyMapping(name: "title", valueExpression: try MappingExpression(format: "$source.name"))
///     let mapping = EntityMapping(
///         name: "NoteToArticle", kind: .transform, sourceEntityName: "Note", destinationEntityName: "Article",
///         attributeMappings: [title])
public struct EntityMapping: Equatable, Sendable {
    /// The type of a mapping, with the raw values of `NSEntityMappingType`.
    public enum Kind: Int, Sendable {
        /// The values of `NSEntityMappingType`.
        case undefined, custom, add, remove, copy, transform
    }

    /// The mapping's name, unique in its mapping model. Relationships refer to it.
    public var name: String
    /// The type of the mapping.
    public var kind: Kind
    /// The older entity's name; nil if the entity is added.
    public var sourceEntityName: String?
    /// The newer entity's name; nil if the entity is removed.
    public var destinationEntityName: String?
    /// The 32 bytes of the older entity's version hash. If set, the mapping fits only models with this hash.
    public var sourceEntityVersionHash: [UInt8]?
    /// The 32 bytes of the newer entity's version hash. If set, the mapping fits only models with this hash.
    public var destinationEntityVersionHash: [UInt8]?
    /// The condition for the source's objects to be mapped; nil for all. Objects of subentities are never included:
    /// they have mappings of their own.
    public var filter: MappingPredicate?
    /// The name of the migration policy's class; nil if expressions suffice.
    public var entityMigrationPolicyClassName: String?
    /// The values that expressions read as `$entityMapping.userInfo.KEY`.
    public var userInfo: [String: String] = [:]
    /// True if unlisted properties get new values, false if they are automatic; see ``PropertyMapping/isAutomatic``.
    public var mapsOnlyWhatIsListed = true
    /// The mappings of the newer entity's attributes.
    public var attributeMappings: [PropertyMapping]
    /// The mappings of the newer entity's relationships.
    public var relationshipMappings: [PropertyMapping]

    /// Creates an entity mapping without a filter, policy or user info.
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

/// Describes the origin of one property's value. Corresponds to `NSPropertyMapping`.
///
///     let age = PropertyMapping(name: "age", valueExpression: try MappingExpression(format: "$source.years + 1"))
public struct PropertyMapping: Equatable, Sendable {
    /// The name of the newer entity's property.
    public var name: String
    /// The older entity's property in an inferred mapping; nil for a new value: an attribute's default, or no objects.
    public var sourceName: String?
    /// The expression that computes the value; nil if the value is new or automatic.
    public var valueExpression: MappingExpression?
    /// True if the value comes from the older property of the same name, if there is one. Xcode's mapping models omit
    /// the expressions of such properties; ``MappingModel/resolved(from:to:)`` inserts them.
    public var isAutomatic = false
    /// Additional values, kept when the mapping model is converted.
    public var userInfo: [String: String] = [:]

    /// Creates a property mapping of an inferred mapping model.
    public init(name: String, sourceName: String?) {
        self.name = name
        self.sourceName = sourceName
    }

    /// Creates a property mapping with an expression; nil for a new value.
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
