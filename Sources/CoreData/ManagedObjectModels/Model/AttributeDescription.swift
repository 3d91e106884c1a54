/// An attribute of an entity: Core Data's `NSAttributeDescription` and its subclasses.
///
/// ```swift
/// var title = AttributeDescription(name: "title", type: .string)
/// title.isOptional = true
/// title.defaultValue = .string("Untitled")
/// ```
public struct AttributeDescription: Equatable, Sendable {
    /// The derivation of a value that Core Data computes (`NSDerivedAttributeDescription`).
    public struct Derivation: Equatable, Sendable {
        /// The expression in predicate format syntax, such as `count:(pages)`.
        public var expression: String
        /// The filtering predicate in format syntax; nil for none.
        public var filteringPredicate: String?

        /// Creates a derivation from its expression, such as `canonical:(title)`.
        public init(expression: String, filteringPredicate: String? = nil) {
            self.expression = expression
            self.filteringPredicate = filteringPredicate
        }
    }

    /// The attribute's name.
    public var name: String
    /// The type of the attribute's values.
    public var type: AttributeType
    /// True if an object may have no value.
    public var isOptional = false
    /// True if the value is not stored. No version hash covers the attribute then.
    public var isTransient = false
    /// True if Core Data forbids changes after the object is created.
    public var isReadOnly = false
    /// The value of the attribute in a new object; nil for none.
    public var defaultValue: AttributeValue?
    /// The class of the values; nil for the default class of ``type``.
    public var valueClassName: String?
    /// The name of the transformer of a transformable attribute.
    public var valueTransformerName: String?
    /// True if Core Data may store large values in files beside the store.
    public var allowsExternalBinaryDataStorage = false
    /// True if persistent history keeps the value of a deleted object.
    public var preservesValueInHistoryOnDeletion = false
    /// True if CloudKit stores the value encrypted.
    public var allowsCloudEncryption = false
    /// True if older versions of Core Data create an index on the column.
    public var isIndexed = false
    /// True if the value belongs in the search index of Apple's systems.
    public var isIndexedBySpotlight = false
    /// True if Xcode generates a scalar property; nil in a compiled model, which doesn't record it.
    public var usesScalarValueType: Bool?
    /// The derivation of a derived attribute; nil for an ordinary one.
    public var derivation: Derivation?
    /// The elements of a composite attribute, in order.
    public var elements: [AttributeDescription] = []
    /// The rules that Core Data checks when it saves an object.
    public var validations: [ValidationRule] = []
    /// The identifier that matches the attribute across versions: its name, unless it was renamed. Version hashes don't
    /// cover it.
    public var renamingIdentifier: String
    /// A string that changes the version hash without another change to the attribute.
    public var versionHashModifier: String?
    /// The developers' own keys and values.
    public var userInfo: [String: String] = [:]

    /// Creates a mandatory, stored attribute.
    public init(name: String, type: AttributeType) {
        self.name = name
        self.type = type
        renamingIdentifier = name
    }
}

/// A condition that a value must meet before its object can be saved.
public struct ValidationRule: Equatable, Sendable {
    /// The condition in predicate format syntax, such as `SELF >= 3`.
    public var predicate: String
    /// The Core Data error code for a value that fails the condition (CoreDataErrors.h).
    public var errorCode: Int?
    /// The error's text, in a rule that a model built in code gives one instead of a code.
    public var message: String?

    /// Creates a rule from a predicate format.
    public init(predicate: String, errorCode: Int? = nil, message: String? = nil) {
        self.predicate = predicate
        self.errorCode = errorCode
        self.message = message
    }
}
