import FoundationEssentials

/// A value that an attribute has by default.
public enum AttributeValue: Equatable, Sendable {
    case integer(Int64)
    case real(Double)
    /// As decimal digits, which binary fractions can't always say.
    case decimal(String)
    case boolean(Bool)
    case string(String)
    /// Seconds since 2001-01-01 UTC.
    case date(Double)
    case data([UInt8])
    case uuid(UUID)
    case url(String)
    /// A transformable attribute's value, archived by a class of the app's.
    case archived(className: String)
}

extension AttributeValue: CustomStringConvertible {
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
