import ManagedObjectModels

/// Storage classes that a value may have (https://sqlite.org/datatype3.html).
struct StorageClasses: OptionSet, Sendable {
    let rawValue: UInt8

    static let integer = StorageClasses(rawValue: 1)
    static let real = StorageClasses(rawValue: 2)
    static let text = StorageClasses(rawValue: 4)
    static let blob = StorageClasses(rawValue: 8)
    static let null = StorageClasses(rawValue: 16)
    static let all: StorageClasses = [.integer, .real, .text, .blob, .null]
    /// The classes of an arithmetic expression's value.
    static let number: StorageClasses = [.integer, .real, .null]
}

/// A rule about one value, which can be checked while its row is written.
struct WrittenRule {
    let column: String
    /// The storage classes of values that keep the rule. The column stores each of them as it is, or as another of
    /// them.
    let classes: StorageClasses
    /// The SQL condition, for a CHECK constraint, that is true for a value that breaks the rule.
    let condition: String
}

extension AttributeType {
    /// The storage classes of the type's values. A whole number that is stored as a floating-point one isn't counted
    /// among integers.
    var storageClasses: StorageClasses {
        switch self {
        case .integer16, .integer32, .integer64, .boolean: [.integer, .null]
        case .decimal, .double, .float, .date: .number
        case .string, .uri: [.text, .null]
        case .uuid, .binaryData, .transformable: [.blob, .null]
        case .undefined, .objectID, .composite: .all
        }
    }
}
