/// One relationship of an entity: `NSRelationshipDescription`.
public struct RelationshipDescription: Equatable, Sendable {
    /// `NSDeleteRule`: what becomes of the destination when the object is deleted.
    public enum DeleteRule: Int, Sendable, CaseIterable {
        case noAction, nullify, cascade, deny

        /// The word in a model's XML.
        public var name: String {
            switch self {
            case .noAction: "No Action"
            case .nullify: "Nullify"
            case .cascade: "Cascade"
            case .deny: "Deny"
            }
        }
    }

    public var name: String
    public var destinationEntityName: String
    /// The relationship of the destination that leads back; nil when none does.
    public var inverseName: String?
    public var isOptional = false
    public var isTransient = false
    public var isReadOnly = false
    public var isOrdered = false
    public var minCount: Int32 = 0
    /// 1 for to-one; 0, or -1 when made by a program, for no limit.
    public var maxCount: Int32 = 1
    public var deleteRule = DeleteRule.nullify
    public var renamingIdentifier: String
    public var versionHashModifier: String?
    public var userInfo: [String: String] = [:]

    public init(name: String, destinationEntityName: String) {
        self.name = name
        self.destinationEntityName = destinationEntityName
        renamingIdentifier = name
    }

    public var isToMany: Bool { maxCount != 1 }
}

/// A property that is a query: `NSFetchedPropertyDescription`. Nothing of it is stored.
public struct FetchedPropertyDescription: Equatable, Sendable {
    public var name: String
    public var fetchRequest: FetchRequestTemplate
    public var renamingIdentifier: String
    public var userInfo: [String: String] = [:]

    public init(name: String, fetchRequest: FetchRequestTemplate) {
        self.name = name
        self.fetchRequest = fetchRequest
        renamingIdentifier = name
    }
}

/// A query that a model holds under a name.
public struct FetchRequestTemplate: Equatable, Sendable {
    public var name: String
    public var entityName: String
    /// As a predicate format writes it; nil for all objects.
    public var predicate: String?
    /// The most objects to fetch; 0 for all.
    public var fetchLimit = 0
    public var fetchBatchSize = 0

    public init(name: String, entityName: String, predicate: String? = nil) {
        self.name = name
        self.entityName = entityName
        self.predicate = predicate
    }
}
