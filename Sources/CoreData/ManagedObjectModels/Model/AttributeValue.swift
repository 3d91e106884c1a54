import FoundationEssentials

/// The default value of an attribute.
public enum AttributeValue: Equatable, Sendable {
    /// A whole number.
    case integer(Int64)
    /// A floating-point number.
    case real(Double)
    /// A number in decimal digits. A `Double` can't represent every decimal fraction.
    case decimal(String)
    /// A Boolean value.
    case boolean(Bool)
    /// A text.
    case string(String)
    /// A date in seconds since 2001-01-01 UTC.
    case date(Double)
    /// Bytes.
    case data([UInt8])
    /// A UUID.
    case uuid(UUID)
    /// A URL as text.
    case url(String)
    /// A transformable attribute's value, archived by one of the app's classes. Only the class name is known.
    case archived(className: String)
}

extension AttributeValue: CustomStringConvertible {
    /// The value in readable form: text in quotation marks, `YES` or `NO`, data as its size in bytes.
    public var description: String {
        switch self {
        case .integer(let value): "\(value)"
        case .real(let value): "\(value)"
        case .decimal(let digits): digits
        case .boolean(let value): value ? "YES" : "NO"
        case .string(let text): "\"\(text)\""
        case .date(let seconds): Date(timeIntervalSinceReferenceDate: seconds).formatted(.iso8601)
        case .data(let bytes): "\(bytes.count) bytes"
        case .uuid(let uuid): uuid.uuidString
        case .url(let text): text
        case .archived(let className): "a \(className)"
        }
    }
}
