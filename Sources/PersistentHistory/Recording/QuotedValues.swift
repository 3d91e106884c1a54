import SQLiteStore

/// Values as SQL's `quote` writes them, separated by commas. Text that contains a NUL, where `quote` stops, is `T` and
/// its bytes in hexadecimal.
enum QuotedValues {
    /// Returns SQL of an expression's value, written so that no two values look the same.
    static func expression(_ value: String) -> String {
        "(CASE WHEN instr(\(value), char(0)) > 0 AND typeof(\(value)) = 'text' "
            + "THEN 'T''' || hex(\(value)) || '''' ELSE quote(\(value)) END)"
    }

    /// Parses quoted values.
    ///
    /// - Parameter encoding: The store's text encoding, as PRAGMA encoding reports it; it applies to the bytes of a
    ///   `T`.
    static func parse(_ text: String, encoding: String = "UTF-8") -> [SQLiteValue] {
        var values: [SQLiteValue] = []
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            values.append(next(&rest, encoding: encoding))
            if rest.first == UInt8(ascii: ",") { rest.removeFirst() }
        }
        return values
    }

    private static func next(_ rest: inout ArraySlice<UInt8>, encoding: String) -> SQLiteValue {
        let quote = UInt8(ascii: "'")
        let letter = rest.first
        if letter == UInt8(ascii: "X") || letter == UInt8(ascii: "T"), rest.dropFirst().first == quote {
            rest = rest.dropFirst(2)
            let digits = rest.prefix { $0 != quote }
            rest = rest.dropFirst(digits.count + 1)
            let nibbles = digits.map(nibble)
            let bytes = stride(from: 0, to: nibbles.count - 1, by: 2).map { nibbles[$0] << 4 | nibbles[$0 + 1] }
            return letter == UInt8(ascii: "X") ? .blob(bytes) : .text(decoded(bytes, encoding: encoding))
        }
        guard rest.first == quote else {
            let word = String(decoding: rest.prefix { $0 != UInt8(ascii: ",") }, as: UTF8.self)
            rest = rest.dropFirst(word.utf8.count)
            return Int64(word).map { .integer($0) } ?? Double(word).map { .real($0) } ?? .null
        }
        rest = rest.dropFirst()
        // Copied in runs rather than byte by byte: a value may have many millions of bytes.
        var bytes: [UInt8] = []
        while let end = rest.firstIndex(of: quote) {
            bytes += rest[..<end]
            rest = rest[(end + 1)...]
            guard rest.first == quote else { return .text(String(decoding: bytes, as: UTF8.self)) }
            bytes.append(quote)
            rest = rest.dropFirst()
        }
        bytes += rest
        rest = []
        return .text(String(decoding: bytes, as: UTF8.self))
    }

    private static func nibble(_ digit: UInt8) -> UInt8 {
        switch digit {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
        case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
        case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
        default: 0
        }
    }

    private static func decoded(_ bytes: [UInt8], encoding: String) -> String {
        guard encoding != "UTF-8" else { return String(decoding: bytes, as: UTF8.self) }
        let high = encoding == "UTF-16be" ? 0 : 1
        let units = stride(from: 0, to: bytes.count - 1, by: 2).map {
            UInt16(bytes[$0 + high]) << 8 | UInt16(bytes[$0 + 1 - high])
        }
        return String(decoding: units, as: UTF16.self)
    }
}
