/// What a property list holds. A keyed archive's references (`CF$UID`) are among it.
package indirect enum PropertyListValue: Equatable, Sendable {
    case boolean(Bool)
    case integer(Int64)
    /// Beyond `Int64.max`.
    case unsigned(UInt64)
    case real(Double)
    /// Seconds since 2001-01-01 UTC.
    case date(Double)
    case data([UInt8])
    case string(String)
    /// A keyed archive's reference to one of its objects.
    case uid(Int)
    /// Sets too.
    case array([PropertyListValue])
    case dictionary([String: PropertyListValue])

    /// Either format, told apart by how it begins. Throws `PropertyListError`.
    package init(parsing bytes: [UInt8]) throws(PropertyListError) {
        if bytes.starts(with: Array("bplist".utf8)) {
            self = try BinaryPropertyList.read(bytes)
        } else {
            self = try XMLPropertyList.read(bytes)
        }
    }

    package var string: String? { if case .string(let value) = self { value } else { nil } }
    package var data: [UInt8]? { if case .data(let value) = self { value } else { nil } }
    package var array: [PropertyListValue]? { if case .array(let value) = self { value } else { nil } }
    package var dictionary: [String: PropertyListValue]? {
        if case .dictionary(let value) = self { value } else { nil }
    }
    package var integer: Int64? { if case .integer(let value) = self { value } else { nil } }
    package var uid: Int? { if case .uid(let value) = self { value } else { nil } }
    package var boolean: Bool? {
        switch self {
        case .boolean(let value): value
        case .integer(let value): value != 0
        default: nil
        }
    }
}

/// Why bytes are no property list.
package struct PropertyListError: Error, Equatable {
    package let message: String
    /// In XML: from 1.
    package let line: Int?

    init(_ message: String, line: Int? = nil) {
        self.message = message
        self.line = line
    }
}
