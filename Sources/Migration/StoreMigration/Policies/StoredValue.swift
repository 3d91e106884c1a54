import FoundationEssentials
import ManagedObjectModels
import SQLiteStore

// Conversions between an app's attribute values and the values that a store holds.
extension AttributeDescription {
    /// Returns the stored form of a value. Throws `PolicyError` for a value of another type.
    func stored(_ value: AttributeValue) throws -> SQLiteValue {
        switch (type, value) {
        case (.integer16, _), (.integer32, _), (.integer64, _), (.boolean, _):
            if let number = value.number { return .integer(try whole(number)) }
        case (.double, _), (.float, _), (.decimal, _), (.date, _):
            if case .integer(let number) = value { return .integer(number) }
            if let number = value.number { return .real(number) }
        case (.string, .string(let text)), (.uri, .string(let text)), (.uri, .url(let text)), (.string, .url(let text)):
            return .text(text)
        case (.uuid, .uuid(let uuid)): return .blob(withUnsafeBytes(of: uuid.uuid) { Array($0) })
        case (.uuid, .string(let text)):
            if let uuid = UUID(uuidString: text) { return .blob(withUnsafeBytes(of: uuid.uuid) { Array($0) }) }
        case (.binaryData, .data(let bytes)), (.transformable, .data(let bytes)):
            return .blob(allowsExternalBinaryDataStorage ? [1] + bytes : bytes)
        default: break
        }
        throw PolicyError("“\(name)” is a \(type.name), which \(value) is not")
    }

    private func whole(_ number: Double) throws -> Int64 {
        guard let whole = Int64(exactly: number.rounded(.towardZero)) else {
            throw PolicyError("“\(name)” is a \(type.name), which \(number) is not")
        }
        return whole
    }

    /// Returns the value of a stored form; nil for NULL. `external` reads data in external files.
    func value(_ stored: SQLiteValue, external: ([UInt8]) throws -> [UInt8]) throws -> AttributeValue? {
        switch (type, stored) {
        case (_, .null): return nil
        case (.boolean, .integer(let number)): return .boolean(number != 0)
        case (.date, _): return stored.double.map { .date($0) }
        case (.double, _), (.float, _): return stored.double.map { .real($0) }
        case (.decimal, _): return stored.string.map { .decimal($0) }
        case (.uuid, .blob(let bytes)): return UUID(bytes: bytes).map { .uuid($0) } ?? .data(bytes)
        case (.uri, .text(let text)): return .url(text)
        case (_, .blob(let bytes)): return .data(allowsExternalBinaryDataStorage ? try external(bytes) : bytes)
        case (_, .integer(let number)): return .integer(number)
        case (_, .real(let number)): return .real(number)
        case (_, .text(let text)): return .string(text)
        }
    }
}

extension AttributeValue {
    fileprivate var number: Double? {
        switch self {
        case .integer(let value): Double(value)
        case .real(let value), .date(let value): value
        case .decimal(let digits): Double(digits)
        case .boolean(let value): value ? 1 : 0
        default: nil
        }
    }
}

// Lets policies write literals and read values without naming the case.
extension AttributeValue: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral,
    ExpressibleByBooleanLiteral
{
    /// Creates a string.
    public init(stringLiteral value: String) { self = .string(value) }
    /// Creates an integer.
    public init(integerLiteral value: Int64) { self = .integer(value) }
    /// Creates a floating-point number.
    public init(floatLiteral value: Double) { self = .real(value) }
    /// Creates a Boolean value.
    public init(booleanLiteral value: Bool) { self = .boolean(value) }

    /// The text of a string or URL; nil for other values.
    public var stringValue: String? {
        switch self {
        case .string(let text), .url(let text): text
        default: nil
        }
    }

    /// An integer, or a Boolean value as 1 or 0; nil for other values.
    public var integerValue: Int64? {
        switch self {
        case .integer(let value): value
        case .boolean(let value): value ? 1 : 0
        default: nil
        }
    }

    /// A number, a Boolean value as 1 or 0, or a date in seconds since 2001-01-01 UTC; nil for other values.
    public var doubleValue: Double? { number }

    /// A Boolean value, or an integer as true unless it is 0; nil for other values.
    public var booleanValue: Bool? { integerValue.map { $0 != 0 } }
}
