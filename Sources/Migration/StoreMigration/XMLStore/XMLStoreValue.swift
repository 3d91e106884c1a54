import FoundationEssentials
import ManagedObjectModels
import SQLiteStore
import XMLDocuments

/// A value of an XML store as SQLite's store holds it.
struct XMLStoreValue {
    let value: SQLiteValue
    /// True if SQLite's number keeps fewer digits than the text of a decimal has. Core Data's own store is the same.
    var isRounded = false

    /// The words of the types that Core Data writes.
    private static let words: [String: [AttributeType]] = [
        "int16": [.integer16], "int32": [.integer32], "int64": [.integer64], "decimal": [.decimal],
        "double": [.double], "float": [.float], "string": [.string], "bool": [.boolean], "date": [.date],
        "binary": [.binaryData, .transformable], "transformable": [.transformable], "uuid": [.uuid], "uri": [.uri],
    ]

    /// Converts an attribute's text. Throws a reason for a text that isn't a value of the attribute's type.
    init(
        _ attribute: XMLStoreObject.Attribute, of description: AttributeDescription
    ) throws(XMLStoreObject.Fault) {
        func fault(_ reason: String) -> XMLStoreObject.Fault {
            XMLStoreObject.Fault(reason: "“\(description.name)”: \(reason)", line: attribute.line)
        }
        guard Self.words[attribute.type]?.contains(description.type) == true else {
            throw fault("the file has the type “\(attribute.type)”, the model \(description.type.name)")
        }
        let text = attribute.text
        func number<Number>(_ found: Number?) throws(XMLStoreObject.Fault) -> Number {
            guard let found else {
                throw fault("“\(text.prefix(40))” is not a value of the type \(description.type.name)")
            }
            return found
        }
        switch description.type {
        case .integer16: value = .integer(Int64(try number(Int16(text.trimmed))))
        case .integer32: value = .integer(Int64(try number(Int32(text.trimmed))))
        case .integer64: value = .integer(try number(Int64(text.trimmed)))
        case .boolean: value = .integer(try number(["0": 0, "1": 1, "NO": 0, "YES": 1][text.trimmed]))
        case .decimal:
            let digits = text.trimmed
            let real = try number(digits.number(as: Double.self).flatMap { $0.isFinite ? $0 : nil })
            // Whole numbers stay exact beyond 2^53.
            value = Int64(digits).map { .integer($0) } ?? .real(real)
            isRounded = Int64(digits) == nil && Self.significantDigits(digits) > 15
        case .double: value = .real(try number(text.trimmed.number(as: Double.self).flatMap { $0.isNaN ? nil : $0 }))
        case .float:
            value = .real(Double(try number(text.trimmed.number(as: Float.self).flatMap { $0.isNaN ? nil : $0 })))
        case .date: value = .real(try number(text.trimmed.number(as: Double.self).flatMap { $0.isFinite ? $0 : nil }))
        case .string, .uri:
            let decoded = Self.unescaped(text)
            guard !decoded.contains("\0") else { throw fault("a text with a NUL can't be stored in SQLite") }
            value = .text(decoded)
        case .uuid:
            let uuid = try number(UUID(uuidString: text.trimmed))
            value = .blob(withUnsafeBytes(of: uuid.uuid) { Array($0) })
        case .binaryData, .transformable:
            guard let data = Self.base64(text) else { throw fault("the data isn't base64") }
            // Data that may be in a file begins with a marker; 1 means that it follows.
            value = .blob(description.allowsExternalBinaryDataStorage ? [1] + data : data)
        case .undefined, .objectID, .composite:
            throw fault("an XML store has no values of the type \(description.type.name)")
        }
    }

    private static func significantDigits(_ text: String) -> Int {
        let digits = text.prefix { !"eE".contains($0) }.filter(\.isNumber)
        let significant = digits.drop { $0 == "0" }
        return text.contains(".") ? significant.count : significant.reversed().drop { $0 == "0" }.count
    }

    /// Decodes base64 strictly, but for white space. Foundation's lenient decoder would drop what it doesn't know.
    private static func base64(_ text: String) -> [UInt8]? {
        let digits = text.utf8.filter { ![0x20, 0x09, 0x0A, 0x0D].contains($0) }
        return Data(base64Encoded: Data(digits)).map { Array($0) }
    }

    /// Decodes the characters that Core Data writes as `\\u` and four hexadecimal digits, the low byte first:
    /// `\\u3c00` is `<`. It does so for characters that mean something in XML, and control characters; other escapes
    /// are a text's own.
    static func unescaped(_ text: String) -> String {
        guard text.utf8.contains(UInt8(ascii: "\\")) else { return text }
        let bytes = Array(text.utf8)
        var result: [UInt8] = []
        result.reserveCapacity(bytes.count)
        var position = 0
        while position < bytes.count {
            if let unit = escapedUnit(bytes[position...]) {
                result += Array(String(UnicodeScalar(unit)).utf8)
                position += 6
            } else {
                result.append(bytes[position])
                position += 1
            }
        }
        return String(decoding: result, as: UTF8.self)
    }

    /// Returns the character of an escape at the beginning of the bytes; nil if there is none.
    private static func escapedUnit(_ bytes: ArraySlice<UInt8>) -> UInt8? {
        guard bytes.count >= 6, bytes.starts(with: Array("\\u".utf8)) else { return nil }
        let digits = bytes.dropFirst(2).prefix(4).map { UInt8(String(UnicodeScalar($0)), radix: 16) }
        guard !digits.contains(nil), let high = digits[0], let low = digits[1], digits[2] == 0, digits[3] == 0 else {
            return nil
        }
        let unit = high << 4 | low
        return unit < 0x20 && unit > 0 || Array("<>&\"'".utf8).contains(unit) ? unit : nil
    }
}
