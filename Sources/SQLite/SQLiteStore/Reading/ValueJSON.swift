/// The JSON of values (Documentation/WireProtocol.md, "Rows with values"), so that any parser can tell what they are: a
/// whole number within 53 bits is an INTEGER, one with a fraction a REAL; what is beyond that is an object with one
/// member.
package enum ValueJSON {
    /// The integers up to here are those that a parser which reads numbers as doubles keeps apart.
    package static let exactIntegers: Int64 = 1 << 53 - 1

    package static func append(_ value: StoredValue, to line: inout [UInt8]) {
        switch value {
        case .null: line += "null".utf8
        case .integer(let number): append(number, to: &line)
        case .real(let number): append(number, to: &line)
        case .text(var text): text.withUTF8 { appendText($0, to: &line) }
        case .malformedText(let bytes): bytes.withUnsafeBufferPointer { append("text_b64", base64: $0, to: &line) }
        case .blob(let bytes): bytes.withUnsafeBufferPointer { append("base64", base64: $0, to: &line) }
        }
    }

    package static func append(_ number: Int64, to line: inout [UInt8]) {
        guard number < -exactIntegers || number > exactIntegers else { return appendDigits(number, to: &line) }
        line += "{\"integer\":\"".utf8
        appendDigits(number, to: &line)
        line += "\"}".utf8
    }

    package static func append(_ number: Double, to line: inout [UInt8]) {
        if number.isFinite, number != number.rounded(.towardZero) {
            line += number.description.utf8
        } else {
            line += "{\"real\":\"".utf8
            line += number.description.utf8
            line += "\"}".utf8
        }
    }

    /// Appends a string in quotation marks.
    package static func append(string: String, to line: inout [UInt8]) {
        var string = string
        string.withUTF8 { appendText($0, to: &line) }
    }

    /// Appends a text that is valid in UTF-8, in quotation marks.
    static func appendText(_ bytes: UnsafeBufferPointer<UInt8>, to line: inout [UInt8]) {
        line.append(UInt8(ascii: "\""))
        var start = 0
        for index in bytes.indices where needsEscape(bytes[index]) {
            line.append(contentsOf: bytes[start..<index])
            start = index + 1
            switch bytes[index] {
            case UInt8(ascii: "\""): line += "\\\"".utf8
            case UInt8(ascii: "\\"): line += "\\\\".utf8
            case UInt8(ascii: "\n"): line += "\\n".utf8
            case UInt8(ascii: "\r"): line += "\\r".utf8
            case UInt8(ascii: "\t"): line += "\\t".utf8
            case let byte:
                line += "\\u00".utf8
                line.append(hexadecimal[Int(byte >> 4)])
                line.append(hexadecimal[Int(byte & 15)])
            }
        }
        line.append(contentsOf: bytes[start...])
        line.append(UInt8(ascii: "\""))
    }

    @inline(__always)
    private static func needsEscape(_ byte: UInt8) -> Bool {
        byte < 0x20 || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") || byte == 0x7F
    }

    private static let hexadecimal = Array("0123456789abcdef".utf8)

    private static func appendDigits(_ number: Int64, to line: inout [UInt8]) {
        if number < 0 { line.append(UInt8(ascii: "-")) }
        append(digits: number.magnitude, to: &line)
    }

    /// Appends a number as it is, also one that not every parser keeps apart from others.
    package static func append(digits number: UInt64, to line: inout [UInt8]) {
        // A UInt64 has at most 20 digits. To reverse a slice of the line would copy it.
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 20) { digits in
            var rest = number
            var first = digits.count
            repeat {
                first -= 1
                digits[first] = UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest % 10)
                rest /= 10
            } while rest > 0
            line.append(contentsOf: UnsafeBufferPointer(rebasing: digits[first...]))
        }
    }

    /// Appends JSON that the program has as text.
    package static func append(_ text: StaticString, to line: inout [UInt8]) {
        text.withUTF8Buffer { line.append(contentsOf: $0) }
    }

    /// Appends an object whose member is base64 (RFC 4648). Written here because Foundation's goes through two more
    /// copies, and this is the coding of every BLOB of a batch.
    static func append(_ name: String, base64 bytes: UnsafeBufferPointer<UInt8>, to line: inout [UInt8]) {
        line += "{\"".utf8
        line += name.utf8
        line += "\":\"".utf8
        var index = 0
        while index + 2 < bytes.count {
            let group = UInt32(bytes[index]) << 16 | UInt32(bytes[index + 1]) << 8 | UInt32(bytes[index + 2])
            for shift: UInt32 in [18, 12, 6, 0] { line.append(alphabet[Int(group >> shift & 63)]) }
            index += 3
        }
        if index < bytes.count {
            let second = index + 1 < bytes.count ? UInt32(bytes[index + 1]) : 0
            let group = UInt32(bytes[index]) << 16 | second << 8
            line.append(alphabet[Int(group >> 18 & 63)])
            line.append(alphabet[Int(group >> 12 & 63)])
            line.append(index + 1 < bytes.count ? alphabet[Int(group >> 6 & 63)] : UInt8(ascii: "="))
            line.append(UInt8(ascii: "="))
        }
        line += "\"}".utf8
    }

    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
}

extension SQLiteStatement {
    /// Appends a column of the current row.
    package func appendJSON(_ column: Int32, encoding: TextEncoding, to line: inout [UInt8]) {
        switch storageClass(column) {
        case .null: line += "null".utf8
        case .integer: ValueJSON.append(integer(column), to: &line)
        case .real: ValueJSON.append(real(column), to: &line)
        case .blob: withBytes(column) { ValueJSON.append("base64", base64: $0.bindMemory(to: UInt8.self), to: &line) }
        case .text:
            let isPlain = withBytes(column) { bytes in
                let text = bytes.bindMemory(to: UInt8.self)
                guard encoding == .utf8, text.allSatisfy({ $0 < 0x80 }) else { return false }
                ValueJSON.appendText(text, to: &line)
                return true
            }
            if !isPlain { ValueJSON.append(storedValue(column, encoding: encoding), to: &line) }
        }
    }
}
