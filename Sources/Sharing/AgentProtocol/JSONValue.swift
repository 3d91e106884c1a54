import FoundationEssentials

/// A JSON value (RFC 8259) whose objects keep the order in which their members were added, so that a line always has
/// the same form. `JSONEncoder` offers no such order, so the writer is hand-written.
package enum JSONValue: Sendable, Equatable {
    case null
    case bool(Bool)
    case integer(Int64)
    case number(Double)
    case string(String)
    case array([JSONValue])
    case object(JSONObject)
    /// One JSON text that is written as it is. A parser never returns this.
    case encoded([UInt8])
}

/// An object whose members keep their order. A later value for a key replaces the earlier one in its position.
package struct JSONObject: Sendable, Equatable, ExpressibleByDictionaryLiteral {
    package private(set) var members: [(key: String, value: JSONValue)]

    package init() { members = [] }

    /// Creates an object with exactly these members.
    package init(members: [(key: String, value: JSONValue)]) { self.members = members }

    package init(dictionaryLiteral elements: (String, JSONValue)...) {
        members = elements.map { (key: $0.0, value: $0.1) }
    }

    package subscript(key: String) -> JSONValue? {
        get { members.first { $0.key == key }?.value }
        set {
            let index = members.firstIndex { $0.key == key }
            switch (index, newValue) {
            case (let index?, let value?): members[index].value = value
            case (let index?, nil): members.remove(at: index)
            case (nil, let value?): members.append((key, value))
            case (nil, nil): break
            }
        }
    }

    /// Sets the path under `key` if its bytes are UTF-8, else its base64 under `key_b64`.
    package mutating func setPath(_ key: String, bytes: [UInt8]) {
        if let text = String(validating: bytes, as: UTF8.self), !Self.isShorterInBase64(text) {
            self[key] = .string(text)
        } else {
            self[key + "_b64"] = .string(Data(bytes).base64EncodedString())
        }
    }

    /// Returns true for a long text of control characters, each of which takes six bytes, or quotation marks. Several
    /// such texts would make a line too long.
    private static func isShorterInBase64(_ text: String) -> Bool {
        let length = text.utf8.count
        guard length > 1024 else { return false }
        let escaped = text.unicodeScalars.reduce(0) { $0 + WireLine.escapedLength($1) }
        return escaped * 3 > length * 4
    }

    /// Returns the bytes of the path under `key` or `key_b64`; nil if neither is present or the base64 is invalid.
    package func path(_ key: String) -> [UInt8]? {
        if case .string(let text)? = self[key] { return Array(text.utf8) }
        if case .string(let text)? = self[key + "_b64"] { return Data(base64Encoded: text).map { Array($0) } }
        return nil
    }

    /// Compares without regard to the members' order, which has no meaning (RFC 8259, section 4).
    package static func == (left: JSONObject, right: JSONObject) -> Bool {
        left.members.count == right.members.count && left.members.allSatisfy { right[$0.key] == $0.value }
    }
}

extension JSONValue: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral, ExpressibleByBooleanLiteral,
    ExpressibleByArrayLiteral
{
    package init(arrayLiteral elements: JSONValue...) { self = .array(elements) }
    package init(stringLiteral value: String) { self = .string(value) }
    package init(integerLiteral value: Int64) { self = .integer(value) }
    package init(booleanLiteral value: Bool) { self = .bool(value) }
}

extension JSONObject {
    /// The object as one line of JSON, without the newline.
    package var text: String {
        var result: [UInt8] = []
        write(to: &result)
        return String(decoding: result, as: UTF8.self)
    }

    func write(to bytes: inout [UInt8]) {
        bytes.append(UInt8(ascii: "{"))
        var isFirst = true
        for (key, value) in members {
            if !isFirst { bytes.append(UInt8(ascii: ",")) }
            isFirst = false
            JSONValue.write(key, to: &bytes)
            bytes.append(UInt8(ascii: ":"))
            value.write(to: &bytes)
        }
        bytes.append(UInt8(ascii: "}"))
    }
}

extension JSONValue {
    /// The value as JSON on one line.
    package var text: String {
        var result: [UInt8] = []
        write(to: &result)
        return String(decoding: result, as: UTF8.self)
    }

    func write(to bytes: inout [UInt8]) {
        switch self {
        case .null: bytes += "null".utf8
        case .bool(let value): bytes += (value ? "true" : "false").utf8
        case .integer(let value): bytes += String(value).utf8
        case .number(let value): bytes += (value.isFinite ? "\(value)" : "null").utf8
        case .string(let value): Self.write(value, to: &bytes)
        case .array(let values):
            bytes.append(UInt8(ascii: "["))
            for (index, value) in values.enumerated() {
                if index > 0 { bytes.append(UInt8(ascii: ",")) }
                value.write(to: &bytes)
            }
            bytes.append(UInt8(ascii: "]"))
        case .object(let object): object.write(to: &bytes)
        case .encoded(let text): bytes += text
        }
    }

    fileprivate static func write(_ value: String, to bytes: inout [UInt8]) {
        bytes.append(UInt8(ascii: "\""))
        for byte in value.utf8 {
            switch byte {
            case UInt8(ascii: "\""): bytes += "\\\"".utf8
            case UInt8(ascii: "\\"): bytes += "\\\\".utf8
            case UInt8(ascii: "\n"): bytes += "\\n".utf8
            case UInt8(ascii: "\r"): bytes += "\\r".utf8
            case UInt8(ascii: "\t"): bytes += "\\t".utf8
            case ..<0x20, 0x7F:
                let digits = String(byte, radix: 16)
                bytes += ("\\u" + String(repeating: "0", count: 4 - digits.count) + digits).utf8
            default: bytes.append(byte)
            }
        }
        bytes.append(UInt8(ascii: "\""))
    }
}

extension JSONValue: Decodable {
    private struct Key: CodingKey {
        let stringValue: String
        var intValue: Int? { nil }
        init?(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }

    package init(from decoder: any Decoder) throws {
        if let members = try? decoder.container(keyedBy: Key.self) {
            var object = JSONObject()
            for key in members.allKeys {
                object[key.stringValue] = try members.decode(JSONValue.self, forKey: key)
            }
            self = .object(object)
            return
        }
        if var values = try? decoder.unkeyedContainer() {
            var array: [JSONValue] = []
            while !values.isAtEnd { array.append(try values.decode(JSONValue.self)) }
            self = .array(array)
            return
        }
        let single = try decoder.singleValueContainer()
        if single.decodeNil() {
            self = .null
        } else if let value = try? single.decode(Bool.self) {
            self = .bool(value)
        } else if let value = try? single.decode(Int64.self) {
            self = .integer(value)
        } else if let value = try? single.decode(Double.self) {
            self = .number(value)
        } else {
            self = .string(try single.decode(String.self))
        }
    }

    /// Parses one JSON text. Throws `DecodingError` if it is invalid.
    package init(parsing bytes: some Sequence<UInt8>) throws {
        // If a text ends too early, Foundation's scanner reads past the last byte to locate the error, and traps. The
        // padding prevents that.
        self = try JSONDecoder().decode(JSONValue.self, from: Data(bytes) + Data(repeating: 0x20, count: 16))
    }
}
