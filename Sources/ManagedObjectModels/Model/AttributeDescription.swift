/// One attribute of an entity: `NSAttributeDescription`, and what its subclasses add.
public struct AttributeDescription: Equatable, Sendable {
    /// `NSDerivedAttributeDescription`: a value that Core Data computes.
    public struct Derivation: Equatable, Sendable {
        /// As a predicate format writes it, such as `count:(pages)`.
        public var expression: String
        public var filteringPredicate: String?

        public init(expression: String, filteringPredicate: String? = nil) {
            self.expression = expression
            self.filteringPredicate = filteringPredicate
        }
    }

    public var name: String
    public var type: AttributeType
    public var isOptional = false
    public var isTransient = false
    public var isReadOnly = false
    public var defaultValue: AttributeValue?
    /// The class of the values; nil for the type's own.
    public var valueClassName: String?
    public var valueTransformerName: String?
    public var allowsExternalBinaryDataStorage = false
    public var preservesValueInHistoryOnDeletion = false
    public var allowsCloudEncryption = false
    public var isIndexed = false
    public var isIndexedBySpotlight = false
    /// Whether the generated property is a number rather than an object; a compiled model doesn't say.
    public var usesScalarValueType: Bool?
    public var derivation: Derivation?
    /// A composite attribute's parts, in order.
    public var elements: [AttributeDescription] = []
    public var validations: [ValidationRule] = []
    /// What the attribute is known by across versions: its own name unless it was renamed.
    public var renamingIdentifier: String
    public var versionHashModifier: String?
    public var userInfo: [String: String] = [:]

    public init(name: String, type: AttributeType) {
        self.name = name
        self.type = type
        renamingIdentifier = name
    }
}

/// What a value must be like for its object to be saved.
public struct ValidationRule: Equatable, Sendable {
    /// As a predicate format writes it, such as `SELF >= 3`.
    public var predicate: String
    /// The code of the error that a value which isn't so raises.
    public var errorCode: Int?

    public init(predicate: String, errorCode: Int? = nil) {
        self.predicate = predicate
        self.errorCode = errorCode
    }
}
