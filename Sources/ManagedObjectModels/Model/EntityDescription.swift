/// One entity of a model, with what it declares itself: `NSEntityDescription`. The model knows what it inherits.
public struct EntityDescription: Equatable, Sendable {
    public var name: String
    /// Nil for `NSManagedObject`.
    public var managedObjectClassName: String?
    public var isAbstract = false
    public var superentityName: String?
    public var attributes: [AttributeDescription] = []
    public var relationships: [RelationshipDescription] = []
    public var fetchedProperties: [FetchedPropertyDescription] = []
    public var indexes: [FetchIndexDescription] = []
    /// Older models' indexes over several properties.
    public var compoundIndexes: [[String]] = []
    /// Each a list of property names whose values together are unique.
    public var uniquenessConstraints: [[String]] = []
    /// What the entity is known by across versions: its own name unless it was renamed.
    public var renamingIdentifier: String
    public var versionHashModifier: String?
    public var userInfo: [String: String] = [:]

    public init(name: String) {
        self.name = name
        renamingIdentifier = name
    }

    /// The attributes, relationships and fetched properties that the entity declares, by name.
    public var declaredProperties: [PropertyDescription] {
        let all =
            attributes.map(PropertyDescription.attribute) + relationships.map(PropertyDescription.relationship)
            + fetchedProperties.map(PropertyDescription.fetched)
        return all.sorted { $0.name.precedes($1.name) }
    }

    /// Whether the entity declares a property of this name itself.
    public func declares(_ name: String) -> Bool {
        attributes.contains { $0.name == name } || relationships.contains { $0.name == name }
            || fetchedProperties.contains { $0.name == name }
    }
}

/// `NSFetchIndexDescription`.
public struct FetchIndexDescription: Equatable, Sendable {
    public enum Kind: Int, Sendable {
        case binary, rTree
    }

    public struct Element: Equatable, Sendable {
        /// A property's name, or an expression.
        public var property: String
        public var isAscending: Bool
        public var kind: Kind

        public init(property: String, isAscending: Bool = true, kind: Kind = .binary) {
            self.property = property
            self.isAscending = isAscending
            self.kind = kind
        }
    }

    public var name: String
    public var elements: [Element]
    /// Only objects that it holds for are in the index; nil for all.
    public var partialIndexPredicate: String?

    public init(name: String, elements: [Element], partialIndexPredicate: String? = nil) {
        self.name = name
        self.elements = elements
        self.partialIndexPredicate = partialIndexPredicate
    }
}

/// Any property of an entity: `NSPropertyDescription`.
public enum PropertyDescription: Equatable, Sendable {
    case attribute(AttributeDescription)
    case relationship(RelationshipDescription)
    case fetched(FetchedPropertyDescription)

    public var name: String {
        switch self {
        case .attribute(let attribute): attribute.name
        case .relationship(let relationship): relationship.name
        case .fetched(let property): property.name
        }
    }

    public var renamingIdentifier: String {
        switch self {
        case .attribute(let attribute): attribute.renamingIdentifier
        case .relationship(let relationship): relationship.renamingIdentifier
        case .fetched(let property): property.renamingIdentifier
        }
    }

    /// Whether nothing of it is stored, so that no version hash covers it.
    public var isTransient: Bool {
        switch self {
        case .attribute(let attribute): attribute.isTransient
        case .relationship(let relationship): relationship.isTransient
        case .fetched: true
        }
    }
}

extension String {
    /// The order of names in Core Data's hashes and tables: by UTF-16 code units, as `NSString` compares.
    package func precedes(_ other: String) -> Bool { utf16.lexicographicallyPrecedes(other.utf16) }
}
