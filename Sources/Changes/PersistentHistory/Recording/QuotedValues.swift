import SQLiteStore

/// Values as SQL's `quote` writes them, separated by commas. Text that contains a NUL, where `quote` stops, is `T` and
/// its bytes in hexadecimal.
enum QuotedValues {
    /// Returns SQL of an expression's value, written so that no two values look the same.
    static func expression(_ value: String) -> String {
        "(CASE WHEN instr(\(value), char(0)) > 0 AND typeof(\(value)) = 'text' "
            + "THEN 'T''' || hex(\(value)) || '''' ELSE quote(\(value)) END)"
    }

    /// Parses quoted values. Repairs malformed text.
    ///
    /// - Parameter encoding: The store's text encoding, as PRAGMA encoding reports it; it applies to the bytes of a
    ///   `T`.
    static func parse(_ text: String, encoding: String = "UTF-8") -> [SQLiteValue] {
        let encoding = TextEncoding(rawValue: encoding) ?? .utf8
        return parse(Array(text.utf8), encoding: encoding).map { value in
            switch value {
            case .null: .null
            case .integer(let number): .integer(number)
            case .real(let number): .real(number)
            case .text(let text): .text(text)
            case .malformedText(let bytes): .text(repaired(bytes, encoding: encoding))
            case .blob(let bytes): .blob(bytes)
            }
        }
    }

    /// Parses quoted values, given as the text's bytes in UTF-8.
    static func parse(_ text: [UInt8], encoding: TextEncoding) -> [StoredValue] {
        var values: [StoredValue] = []
        var rest = text[...]
        while !rest.isEmpty {
            values.append(next(&rest, encoding: encoding))
            if rest.first == UInt8(ascii: ",") { rest.removeFirst() }
        }
        return values
    }

    private static func next(_ rest: inout ArraySlice<UInt8>, encoding: TextEncoding) -> StoredValue {
        let quote = UInt8(ascii: "'")
        let letter = rest.first
        if letter == UInt8(ascii: "X") || letter == UInt8(ascii: "T"), rest.dropFirst().first == quote {
            rest = rest.dropFirst(2)
            let digits = rest.prefix { $0 != quote }
            rest = rest.dropFirst(digits.count + 1)
            let nibbles = digits.map(nibble)
            let bytes = stride(from: 0, to: nibbles.count - 1, by: 2).map { nibbles[$0] << 4 | nibbles[$0 + 1] }
            return letter == UInt8(ascii: "X") ? .blob(bytes) : text(bytes, encoding: encoding)
        }
        guard rest.first == quote else {
            let bytes = rest.prefix { $0 != UInt8(ascii: ",") }
            rest = rest.dropFirst(bytes.count)
            let word = String(decoding: bytes, as: UTF8.self)
            return Int64(word).map { .integer($0) } ?? Double(word).map { .real($0) } ?? .null
        }
        rest = rest.dropFirst()
        // Copied in runs rather than byte by byte: a value may have many millions of bytes.
        var bytes: [UInt8] = []
        while let end = rest.firstIndex(of: quote) {
            bytes += rest[..<end]
            rest = rest[(end + 1)...]
            guard rest.first == quote else { return text(bytes, encoding: .utf8) }
            bytes.append(quote)
            rest = rest.dropFirst()
        }
        bytes += rest
        rest = []
        return text(bytes, encoding: .utf8)
    }

    private static func text(_ bytes: [UInt8], encoding: TextEncoding) -> StoredValue {
        encoding.decoded(bytes).map { .text($0) } ?? .malformedText(bytes)
    }

    private static func nibble(_ digit: UInt8) -> UInt8 {
        switch digit {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
        case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
        case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
        default: 0
        }
    }

    private static func repaired(_ bytes: [UInt8], encoding: TextEncoding) -> String {
        guard encoding != .utf8 else { return String(decoding: bytes, as: UTF8.self) }
        let high = encoding == .utf16be ? 0 : 1
        let units = stride(from: 0, to: bytes.count - 1, by: 2).map {
            UInt16(bytes[$0 + high]) << 8 | UInt16(bytes[$0 + 1 - high])
        }
        return String(decoding: units, as: UTF16.self)
    }
}
