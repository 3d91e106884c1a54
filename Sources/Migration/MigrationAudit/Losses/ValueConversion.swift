import ManagedObjectModels

/// The change of an attribute's values from one model to another.
struct ValueConversion {
    private let old: StoredAttribute
    private let new: StoredAttribute

    init(from old: StoredAttribute, to new: StoredAttribute) {
        self.old = old
        self.new = new
    }

    private var isDerived: Bool { new.attribute.derivation != nil || new.description.derivation != nil }

    /// True if a missing value becomes the default. It is no loss, but only a migration shows how many there are.
    private var fillsDefault: Bool {
        guard !new.description.isOptional, new.description.defaultValue != nil else { return false }
        return old.description.isOptional || new.isElement
    }

    private var marksInlineData: Bool {
        new.description.allowsExternalBinaryDataStorage && !old.description.allowsExternalBinaryDataStorage
    }

    /// True if every value keeps its meaning, as the audit proves or as the types imply.
    var isExact: Bool {
        !isDerived && !fillsDefault && new.description.type.holdsAll(of: old.description.type)
            && (new.description.allowsExternalBinaryDataStorage || !old.description.allowsExternalBinaryDataStorage)
    }

    /// True if an equal value is expected, as far as the new type can hold it. A mapping model converts others.
    var isComparable: Bool {
        let types = [old.description.type, new.description.type]
        return (types[0] == types[1] || types.allSatisfy(\.isNumber))
            && old.description.allowsExternalBinaryDataStorage == new.description.allowsExternalBinaryDataStorage
    }

    /// Returns an SQL condition: the new value is the old one, as an app reads both.
    ///
    /// - Parameters:
    ///   - oldValue: The old value as SQL; not NULL.
    ///   - newValue: The new value as SQL; not NULL.
    func isSame(_ oldValue: String, _ newValue: String) -> String {
        if marksInlineData { return ColumnRule.equal(newValue, "CAST(x'01' || \(oldValue) AS BLOB)") }
        let same = ColumnRule.equal(newValue, oldValue)
        guard !new.description.type.holdsAll(of: old.description.type),
            let range = new.description.type.holds(newValue)
        else { return same }
        return "(\(same) AND \(range))"
    }

    /// The predicate of a sentence whose subject is the property with values that are no longer the same.
    var reason: String {
        if isDerived { return "becomes derived, which replaces its values" }
        return "gets a type that can't hold all of its values"
    }
}

extension AttributeType {
    var isNumber: Bool {
        switch self {
        case .integer16, .integer32, .integer64, .boolean, .decimal, .double, .float: true
        default: false
        }
    }

    /// Returns true if each value of the other type is one of this type.
    func holdsAll(of other: AttributeType) -> Bool {
        guard self != other else { return true }
        let narrower: [AttributeType] =
            switch self {
            case .integer16: [.boolean]
            case .integer32: [.boolean, .integer16]
            case .integer64: [.boolean, .integer16, .integer32]
            case .decimal: [.boolean, .integer16, .integer32, .integer64]
            case .float: [.boolean, .integer16]
            case .double: [.boolean, .integer16, .integer32, .float]
            case .transformable: [.binaryData]
            case .binaryData: [.transformable]
            default: []
            }
        return narrower.contains(other)
    }

    /// The name of an SQL function that returns 1 for a number that 32 bits of a floating-point number can hold.
    static let floatFunction = "gs_is_float"

    /// Returns an SQL condition: the stored value is one of the type. Core Data reads another one as one of the type,
    /// and changes it thereby. Nil if each number is.
    fileprivate func holds(_ value: String) -> String? {
        switch self {
        case .boolean: "+\(value) IN (0, 1)"
        case .integer16: "+\(value) BETWEEN -32768 AND 32767"
        case .integer32: "+\(value) BETWEEN -2147483648 AND 2147483647"
        case .float: "\(Self.floatFunction)(\(value))"
        // NSDecimal has 38 digits and exponents from -128 to 127.
        case .decimal: "(+\(value) = 0 OR abs(CAST(\(value) AS REAL)) BETWEEN 1e-128 AND 3.4e165)"
        default: nil
        }
    }
}
