import FoundationEssentials

/// The default value of an attribute.
public enum AttributeValue: Equatable, Sendable {
    case integer(Int64)
    case real(Double)
    /// A number in decimal digits. A `Double` can't represent every decimal fraction.
    case decimal(String)
    case boolean(Bool)
    case string(String)
    /// A date in seconds since 2001-01-01 UTC.
    case date(Double)
    case data([UInt8])
    case uuid(UUID)
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
