/// An entity of a model with the properties that it declares (`NSEntityDescription`).
///
/// ``ManagedObjectModel/properties(of:)`` includes inherited properties.
///
/// ```swift
/// var note = EntityDescription(name: "Note")
/// note.attributes = [AttributeDescription(name: "title", type: .string)]
/// note.uniquenessConstraints = [["title"]]
/// ```
public struct EntityDescription: Equatable, Sendable {
    /// The entity's name.
    public var name: String
    /// The class of the objects; nil for `NSManagedObject`.
    public var managedObjectClassName: String?
    /// True if only subentities have objects.
    public var isAbstract = false
    /// The name of the parent entity; nil for a root entity.
    public var superentityName: String?
    /// The attributes that the entity declares itself.
    public var attributes: [AttributeDescription] = []
    /// The relationships that the entity declares itself.
    public var relationships: [RelationshipDescription] = []
    /// The fetched properties that the entity declares itself.
    public var fetchedProperties: [FetchedPropertyDescription] = []
    /// The fetch indexes that the entity declares itself.
    public var indexes: [FetchIndexDescription] = []
    /// Indexes over several properties in older models, each a list of property names.
    public var compoundIndexes: [[String]] = []
    /// Lists of property names. The values of each list are unique in combination.
    public var uniquenessConstraints: [[String]] = []
    /// The identifier that matches the entity across versions: its name, unless it was renamed. Version hashes don't
    /// cover it.
    public var renamingIdentifier: String
    /// A string that changes the version hash without another change to the entity.
    public var versionHashModifier: String?
    /// The developers' own keys and values.
    public var userInfo: [String: String] = [:]

    /// Creates an entity without properties.
    public init(name: String) {
        self.name = name
        renamingIdentifier = name
    }

    /// The declared attributes, relationships and fetched properties, sorted by name.
    public var declaredProperties: [PropertyDescription] {
        unsortedProperties.sortedByName(\.name)
    }

    var unsortedProperties: [PropertyDescription] {
        attributes.map(PropertyDescription.attribute) + relationships.map(PropertyDescription.relationship)
            + fetchedProperties.map(PropertyDescription.fetched)
    }

    /// Returns true if the entity itself declares a property with this name. Inherited properties don't count.
    public func declares(_ name: String) -> Bool {
        attributes.contains { $0.name == name } || relationships.contains { $0.name == name }
            || fetchedProperties.contains { $0.name == name }
    }
}

/// A fetch index of an entity (`NSFetchIndexDescription`).
public struct FetchIndexDescription: Equatable, Sendable {
    /// The kind of an index element (`NSFetchIndexElementType`).
    public enum Kind: Int, Sendable {
        /// A b-tree index, or an R-tree over coordinates.
        case binary, rTree
    }

    /// One indexed property (`NSFetchIndexElementDescription`).
    public struct Element: Equatable, Sendable {
        /// The name of a property, or an expression.
        public var property: String
        /// True for ascending order.
        public var isAscending: Bool
        /// The kind of index that the element belongs in.
        public var kind: Kind

        /// Creates an element for a property, by its name.
        public init(property: String, isAscending: Bool = true, kind: Kind = .binary) {
            self.property = property
            self.isAscending = isAscending
            self.kind = kind
        }
    }

    /// The index's name.
    public var name: String
    /// The indexed properties, in order.
    public var elements: [Element]
    /// A predicate in format syntax that selects the indexed objects; nil for all.
    public var partialIndexPredicate: String?

    /// Creates a fetch index. `partialIndexPredicate` limits it to some of the objects.
    public init(name: String, elements: [Element], partialIndexPredicate: String? = nil) {
        self.name = name
        self.elements = elements
        self.partialIndexPredicate = partialIndexPredicate
    }
}

/// A property of an entity (`NSPropertyDescription`).
public enum PropertyDescription: Equatable, Sendable {
    /// An attribute.
    case attribute(AttributeDescription)
    /// A relationship.
    case relationship(RelationshipDescription)
    /// A fetched property.
    case fetched(FetchedPropertyDescription)

    /// The property's name.
    public var name: String {
        switch self {
        case .attribute(let attribute): attribute.name
        case .relationship(let relationship): relationship.name
        case .fetched(let property): property.name
        }
    }

    /// The identifier that matches the property across versions.
    public var renamingIdentifier: String {
        switch self {
        case .attribute(let attribute): attribute.renamingIdentifier
        case .relationship(let relationship): relationship.renamingIdentifier
        case .fetched(let property): property.renamingIdentifier
        }
    }

    /// True if the property is not stored. No version hash covers it then.
    public var isTransient: Bool {
        switch self {
        case .attribute(let attribute): attribute.isTransient
        case .relationship(let relationship): relationship.isTransient
        case .fetched: true
        }
    }
}

extension String {
    /// Returns true if the string sorts before `other` in Core Data's hashes and tables: by UTF-16 code units, as
    /// `NSString` compares.
    package func precedes(_ other: String) -> Bool {
        // UTF-8 has the same order, but for the characters above U+FFFF: their surrogates precede U+E000 to U+FFFF.
        var others = other.utf8.makeIterator()
        for byte in utf8 {
            guard let otherByte = others.next() else { return false }
            if byte == otherByte { continue }
            let isAbove = byte >= 0xF0
            if byte >= 0xEE, otherByte >= 0xEE, isAbove != (otherByte >= 0xF0) { return isAbove }
            return byte < otherByte
        }
        return others.next() != nil
    }
}

extension Sequence {
    /// Returns the elements sorted by name. Equal names keep their order. Large elements are moved only once.
    package func sortedByName(_ name: (Element) -> String) -> [Element] {
        let elements = Array(self)
        let order = elements.enumerated().map { (index: $0.offset, name: name($0.element)) }
            .sorted { $0.name.precedes($1.name) }
        return order.map { elements[$0.index] }
    }
}
