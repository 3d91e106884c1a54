extension LineScanner {
    /// Passes the next value on.
    mutating func value(into sink: inout some ValueSink) throws {
        guard position < bytes.count else { throw malformed("a value was expected") }
        switch bytes[position] {
        case UInt8(ascii: "\""): try string { try sink.text($0) }
        case UInt8(ascii: "n"):
            try expect("null")
            try sink.null()
        case UInt8(ascii: "{"):
            try taggedValue(into: &sink)
        default: try number(into: &sink)
        }
    }

    private mutating func taggedValue(into sink: inout some ValueSink) throws {
        if take("{\"base64\":\"") {
            try base64()
            try scratch.withUnsafeBytes { try sink.blob($0) }
        } else if take("{\"integer\":\"") {
            try sink.integer(integer())
            try expect("\"")
        } else if take("{\"real\":\"") {
            try sink.real(real())
        } else if take("{\"text_b64\":\"") {
            try base64()
            try scratch.withUnsafeBytes { try sink.malformedText($0) }
        } else {
            throw malformed("a value was expected")
        }
        try expect("}")
    }

    /// Reads the rest of a string with a number that may be infinite.
    private mutating func real() throws -> Double {
        let start = position
        while position < bytes.count, bytes[position] != UInt8(ascii: "\""), position - start <= Self.maxNumber {
            position += 1
        }
        let text = String(decoding: bytes[start..<position], as: UTF8.self)
        let isWritten = text.utf8.allSatisfy { "0123456789+-.e".utf8.contains($0) } || text == "inf" || text == "-inf"
        guard isWritten, let number = Double(text), !number.isNaN else { throw malformed("a number was expected") }
        try expect("\"")
        return number
    }

    /// Reads the rest of a string with base64 (RFC 4648), into `scratch`.
    private mutating func base64() throws {
        scratch.removeAll(keepingCapacity: true)
        let start = position
        while position < bytes.count, bytes[position] != UInt8(ascii: "\"") { position += 1 }
        let count = position - start
        guard position < bytes.count, count % 4 == 0 else { throw malformed("base64 was expected") }
        let end = position
        position += 1
        scratch.reserveCapacity(count / 4 * 3)
        var padding = 0
        for index in stride(from: start, to: end, by: 4) {
            var group: UInt32 = 0
            for offset in 0..<4 {
                var digit = Self.base64Digits[Int(bytes[index + offset])]
                if digit == 64, index + 4 == end, offset >= 2 {
                    padding += 1
                    digit = 0
                } else if digit > 63 || padding > 0 {
                    throw malformed("base64 was expected")
                }
                group = group << 6 | UInt32(digit)
            }
            scratch.append(UInt8(truncatingIfNeeded: group >> 16))
            if padding < 2 { scratch.append(UInt8(truncatingIfNeeded: group >> 8)) }
            if padding < 1 { scratch.append(UInt8(truncatingIfNeeded: group)) }
        }
    }

    /// The value of each character: 64 for the padding, 255 for what is none.
    private static let base64Digits: [UInt8] = {
        var digits = [UInt8](repeating: 255, count: 256)
        let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=".utf8
        for (digit, character) in alphabet.enumerated() { digits[Int(character)] = UInt8(digit) }
        return digits
    }()
}
