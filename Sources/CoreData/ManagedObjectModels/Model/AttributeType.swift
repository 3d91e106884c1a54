/// The type of an attribute (`NSAttributeType`). The raw value is the number in version hashes and compiled models.
public enum AttributeType: Int32, Sendable, CaseIterable {
    /// No type, allowed for transient attributes only.
    case undefined = 0
    /// A signed integer of 16 bits.
    case integer16 = 100
    /// A signed integer of 32 bits.
    case integer32 = 200
    /// A signed integer of 64 bits.
    case integer64 = 300
    /// A decimal number, `NSDecimalNumber`.
    case decimal = 400
    /// A floating-point number of 64 bits.
    case double = 500
    /// A floating-point number of 32 bits.
    case float = 600
    /// A text.
    case string = 700
    /// A Boolean value.
    case boolean = 800
    /// A date, in seconds since 2001-01-01 00:00 UTC.
    case date = 900
    /// Bytes, perhaps in a file outside the store.
    case binaryData = 1000
    /// A UUID, 16 bytes.
    case uuid = 1100
    /// A URL.
    case uri = 1200
    /// An object that a value transformer archives as bytes.
    case transformable = 1800
    /// The identifier of another object; transient only.
    case objectID = 2000
    /// A group of attributes, each with a column of its own.
    case composite = 2100

    /// The name of the type in a model's XML, such as `Integer 16`.
    public var name: String {
        switch self {
        case .undefined: "Undefined"
        case .integer16: "Integer 16"
        case .integer32: "Integer 32"
        case .integer64: "Integer 64"
        case .decimal: "Decimal"
        case .double: "Double"
        case .float: "Float"
        case .string: "String"
        case .boolean: "Boolean"
        case .date: "Date"
        case .binaryData: "Binary"
        case .uuid: "UUID"
        case .uri: "URI"
        case .transformable: "Transformable"
        case .objectID: "ObjectID"
        case .composite: "Composite"
        }
    }

    /// Creates a type from its ``name`` in a model's XML; nil for an unknown name.
    public init?(name: String) {
        guard let type = Self.allCases.first(where: { $0.name == name }) else { return nil }
        self = type
    }

    /// True if values are numbers. A Boolean is not.
    public var isNumeric: Bool {
        switch self {
        case .integer16, .integer32, .integer64, .decimal, .double, .float: true
        default: false
        }
    }
}

extension AttributeType {
    /// The class that Core Data uses for values of the type; nil if it has no default.
    var valueClassName: String? {
        switch self {
        case .integer16, .integer32, .integer64, .double, .float, .boolean: "NSNumber"
        case .decimal: "NSDecimalNumber"
        case .string: "NSString"
        case .date: "NSDate"
        case .binaryData: "NSData"
        case .uuid: "NSUUID"
        case .uri: "NSURL"
        case .objectID: "NSManagedObjectID"
        case .composite: "NSDictionary"
        case .undefined, .transformable: nil
        }
    }
}
