/// A relationship of an entity (`NSRelationshipDescription`).
///
/// ```swift
/// var pages = RelationshipDescription(name: "pages", destinationEntityName: "Page")
/// pages.maxCount = 0
/// pages.inverseName = "note"
/// ```
public struct RelationshipDescription: Equatable, Sendable {
    /// The effect of an object's deletion on the objects it refers to (`NSDeleteRule`).
    public enum DeleteRule: Int, Sendable, CaseIterable {
        /// Leaves the related objects alone, removes their references, deletes them, or refuses the deletion.
        case noAction, nullify, cascade, deny

        /// The name of the rule in a model's XML, such as `No Action`.
        public var name: String {
            switch self {
            case .noAction: "No Action"
            case .nullify: "Nullify"
            case .cascade: "Cascade"
            case .deny: "Deny"
            }
        }
    }

    /// The relationship's name.
    public var name: String
    /// The name of the entity of the related objects.
    public var destinationEntityName: String
    /// The name of the destination's inverse relationship; nil for none.
    public var inverseName: String?
    /// True if an object may be related to none.
    public var isOptional = false
    /// True if the relationship is not stored.
    public var isTransient = false
    /// True if Core Data forbids changes after the object is created.
    public var isReadOnly = false
    /// True if the related objects have an order.
    public var isOrdered = false
    /// The least number of destination objects; 0 for no limit.
    public var minCount: Int32 = 0
    /// The greatest number of destination objects: 1 for to-one; 0 for no limit, or -1 in models built in code.
    public var maxCount: Int32 = 1
    /// The effect of the object's deletion on the related ones.
    public var deleteRule = DeleteRule.nullify
    /// The identifier that matches the relationship across versions: its name, unless it was renamed.
    public var renamingIdentifier: String
    /// A string that changes the version hash without another change to the relationship.
    public var versionHashModifier: String?
    /// The developers' own keys and values.
    public var userInfo: [String: String] = [:]

    /// Creates a mandatory to-one relationship without an inverse.
    public init(name: String, destinationEntityName: String) {
        self.name = name
        self.destinationEntityName = destinationEntityName
        renamingIdentifier = name
    }

    /// True if an object may have more than one destination object.
    public var isToMany: Bool { maxCount != 1 }

    /// True if an object that is related to none can't be saved. A mandatory to-many relationship without a minimum may
    /// be empty: stores that Core Data wrote have such objects.
    package var requiresObject: Bool { !isOptional && (!isToMany || minCount > 0) }
}

/// A property whose value is the result of a fetch request (`NSFetchedPropertyDescription`). It is not stored.
public struct FetchedPropertyDescription: Equatable, Sendable {
    /// The fetched property's name.
    public var name: String
    /// The fetch request that finds the objects.
    public var fetchRequest: FetchRequestTemplate
    /// The name of the property in the version that introduced it.
    public var renamingIdentifier: String
    /// The developers' own keys and values.
    public var userInfo: [String: String] = [:]

    /// Creates a fetched property.
    public init(name: String, fetchRequest: FetchRequestTemplate) {
        self.name = name
        self.fetchRequest = fetchRequest
        renamingIdentifier = name
    }
}

/// A named fetch request of a model.
public struct FetchRequestTemplate: Equatable, Sendable {
    /// The template's name.
    public var name: String
    /// The name of the entity whose objects are fetched.
    public var entityName: String
    /// The predicate in format syntax; nil for all objects.
    public var predicate: String?
    /// The greatest number of objects to fetch; 0 for all.
    public var fetchLimit = 0
    /// The number of objects per batch; 0 for a single batch.
    public var fetchBatchSize = 0

    /// Creates a template. Without a predicate it fetches all objects.
    public init(name: String, entityName: String, predicate: String? = nil) {
        self.name = name
        self.entityName = entityName
        self.predicate = predicate
    }
}
