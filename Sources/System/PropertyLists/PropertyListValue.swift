/// A value of a property list, including a keyed archive's references (`CF$UID`).
package indirect enum PropertyListValue: Equatable, Sendable {
    case boolean(Bool)
    case integer(Int64)
    /// A number beyond `Int64.max`.
    case unsigned(UInt64)
    case real(Double)
    /// A date in seconds since 2001-01-01 UTC.
    case date(Double)
    case data([UInt8])
    case string(String)
    /// A keyed archive's reference to one of its objects, by number.
    case uid(Int)
    /// An array or a set.
    case array([PropertyListValue])
    case dictionary([String: PropertyListValue])

    /// The limit of a property list's size, in bytes. An XML document has the same limit.
    package static let maximumSize = 64 << 20
    /// The limit of the nesting. The readers recurse, as does the code that reads their results, so malicious or
    /// damaged bytes could exhaust the stack. Core Data's metadata nests three levels; an app's own values add a few
    /// more.
    package static let maximumDepth = 64

    /// Parses a binary property list. Throws `PropertyListError`. `XMLDocuments` reads those in XML as well; this
    /// target needs no XML parser, so that apps which only open stores don't either.
    package init(binary bytes: [UInt8]) throws(PropertyListError) {
        guard bytes.count <= Self.maximumSize else {
            throw PropertyListError("the property list is larger than \(Self.maximumSize >> 20) MiB")
        }
        self = try BinaryPropertyList.read(bytes)
    }

    /// True if the bytes begin like a binary property list.
    package static func isBinary(_ bytes: [UInt8]) -> Bool { bytes.starts(with: Array("bplist".utf8)) }

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

/// The reason why bytes could not be read as a property list.
package struct PropertyListError: Error, Equatable {
    package let message: String
    /// The line of the error in XML, counted from 1; nil in a binary list.
    package let line: Int?

    package init(_ message: String, line: Int? = nil) {
        self.message = message
        self.line = line
    }
}
