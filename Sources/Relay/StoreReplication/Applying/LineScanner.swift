import SQLiteStore

/// A violation of the format in a line of a batch. The position is a byte of the line.
struct MalformedLine: Error {
    let what: String
    let position: Int
}

/// Receives the values of a row as a line has them, in order. The bytes are valid during the call only.
protocol ValueSink {
    mutating func null() throws
    mutating func integer(_ number: Int64) throws
    mutating func real(_ number: Double) throws
    /// A text that is valid in UTF-8.
    mutating func text(_ bytes: UnsafeRawBufferPointer) throws
    /// The bytes of a text that isn't valid in the store's encoding.
    mutating func malformedText(_ bytes: UnsafeRawBufferPointer) throws
    mutating func blob(_ bytes: UnsafeRawBufferPointer) throws
}

/// Reads one line of a batch, strictly: the members in their order, without white space (Documentation/Relay.md, "The
/// format").
///
/// Hand-written because a `JSONDecoder` takes about 20 µs a row, more than everything else together. It never reads
/// beyond the line, keeps nothing, and never recurses.
struct LineScanner {
    var bytes = UnsafeBufferPointer<UInt8>(start: nil, count: 0)
    var position = 0
    /// The decoded bytes of an escaped text or of base64.
    var scratch: [UInt8] = []

    /// Begins a line, whose memory must stay valid until the next one begins.
    mutating func begin(_ line: UnsafeBufferPointer<UInt8>) { (bytes, position) = (line, 0) }

    /// Begins the same line again.
    mutating func rewind(to position: Int) { self.position = position }

    var isAtEnd: Bool { position == bytes.count }

    func malformed(_ what: String) -> MalformedLine { MalformedLine(what: what, position: position) }

    func begins(with literal: StaticString) -> Bool {
        let count = literal.utf8CodeUnitCount
        guard bytes.count - position >= count else { return false }
        for index in 0..<count where bytes[position + index] != literal.utf8Start[index] { return false }
        return true
    }

    /// Skips the literal if it is next.
    mutating func take(_ literal: StaticString) -> Bool {
        guard begins(with: literal) else { return false }
        position += literal.utf8CodeUnitCount
        return true
    }

    mutating func expect(_ literal: StaticString) throws {
        guard take(literal) else { throw malformed("\(literal) was expected") }
    }

    mutating func end() throws {
        guard isAtEnd else { throw malformed("the end of the line was expected") }
    }

    // MARK: Numbers

    mutating func integer() throws -> Int64 {
        let start = position
        let isNegative = take("-")
        let first = position
        var magnitude: UInt64 = 0
        while position < bytes.count, case let digit = bytes[position] &- 0x30, digit < 10 {
            let (product, one) = magnitude.multipliedReportingOverflow(by: 10)
            let (sum, two) = product.addingReportingOverflow(UInt64(digit))
            if one || two { throw malformed("a number is too large") }
            magnitude = sum
            position += 1
        }
        guard position > first, bytes[first] != 0x30 || position == first + 1 else {
            position = start
            throw malformed("a whole number was expected")
        }
        if isNegative {
            guard magnitude <= UInt64(Int64.max) + 1 else { throw malformed("a number is too large") }
            return Int64(truncatingIfNeeded: 0 &- magnitude)
        }
        guard let number = Int64(exactly: magnitude) else { throw malformed("a number is too large") }
        return number
    }

    /// The longest number that is read. The longest that is written has 25 characters.
    static let maxNumber = 40

    mutating func number(into sink: inout some ValueSink) throws {
        let start = position
        var end = position
        var isWhole = true
        while end < bytes.count, end - start <= Self.maxNumber {
            let byte = bytes[end]
            if byte &- 0x30 < 10 || byte == UInt8(ascii: "-") {
                end += 1
            } else if byte == UInt8(ascii: ".") || byte == UInt8(ascii: "e") || byte == UInt8(ascii: "+") {
                isWhole = false
                end += 1
            } else {
                break
            }
        }
        if isWhole { return try sink.integer(integer()) }
        guard end - start <= Self.maxNumber, isNumber(start..<end),
            let number = Double(String(decoding: bytes[start..<end], as: UTF8.self)), number.isFinite
        else { throw malformed("a number was expected") }
        position = end
        try sink.real(number)
    }

    /// Returns whether these bytes are a number of JSON with a fraction or an exponent. Swift accepts more.
    private func isNumber(_ range: Range<Int>) -> Bool {
        var place = range.lowerBound
        func skipDigits() -> Bool {
            let first = place
            while place < range.upperBound, bytes[place] &- 0x30 < 10 { place += 1 }
            return place > first
        }
        func skip(_ character: Unicode.Scalar) -> Bool {
            guard place < range.upperBound, bytes[place] == UInt8(ascii: character) else { return false }
            place += 1
            return true
        }
        _ = skip("-")
        guard skipDigits() else { return false }
        if skip("."), !skipDigits() { return false }
        if skip("e") {
            if !skip("-") { _ = skip("+") }
            guard skipDigits() else { return false }
        }
        return place == range.upperBound
    }

    // MARK: Texts

    /// Passes the next string's content, in UTF-8.
    mutating func string<Success>(_ body: (UnsafeRawBufferPointer) throws -> Success) throws -> Success {
        try expect("\"")
        let start = position
        var isASCII = true
        while position < bytes.count {
            let byte = bytes[position]
            if byte == UInt8(ascii: "\"") {
                let content = UnsafeRawBufferPointer(rebasing: UnsafeRawBufferPointer(bytes)[start..<position])
                if !isASCII { try validate(content) }
                position += 1
                return try body(content)
            }
            if byte == UInt8(ascii: "\\") { break }
            if byte < 0x20 { throw malformed("a control character is in a string") }
            if byte >= 0x80 { isASCII = false }
            position += 1
        }
        try unescape(from: start)
        return try scratch.withUnsafeBytes { try body($0) }
    }

    /// Returns the next string.
    mutating func string() throws -> String { try string { String(decoding: $0, as: UTF8.self) } }

    /// Reads the rest of a string from its first backslash on, into `scratch`.
    private mutating func unescape(from start: Int) throws {
        scratch.removeAll(keepingCapacity: true)
        scratch.append(contentsOf: bytes[start..<position])
        while position < bytes.count {
            let byte = bytes[position]
            position += 1
            switch byte {
            case UInt8(ascii: "\""):
                try scratch.withUnsafeBytes { try validate($0) }
                return
            case UInt8(ascii: "\\"): try appendEscaped()
            case ..<0x20: throw malformed("a control character is in a string")
            default: scratch.append(byte)
            }
        }
        throw malformed("a string doesn't end")
    }

    private mutating func appendEscaped() throws {
        guard position < bytes.count else { throw malformed("a string doesn't end") }
        let byte = bytes[position]
        position += 1
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): scratch.append(byte)
        case UInt8(ascii: "n"): scratch.append(0x0A)
        case UInt8(ascii: "r"): scratch.append(0x0D)
        case UInt8(ascii: "t"): scratch.append(0x09)
        case UInt8(ascii: "b"): scratch.append(0x08)
        case UInt8(ascii: "f"): scratch.append(0x0C)
        case UInt8(ascii: "u"):
            var code = try hexadecimal()
            if code & 0xFC00 == 0xD800 {
                try expect("\\u")
                let low = try hexadecimal()
                guard low & 0xFC00 == 0xDC00 else { throw malformed("half a surrogate pair") }
                code = 0x10000 + (code & 0x3FF) << 10 + (low & 0x3FF)
            }
            guard let scalar = Unicode.Scalar(code) else { throw malformed("half a surrogate pair") }
            scratch.append(contentsOf: UTF8.encode(scalar) ?? UTF8.encodedReplacementCharacter)
        default: throw malformed("an unknown escape")
        }
    }

    private mutating func hexadecimal() throws -> UInt32 {
        guard bytes.count - position >= 4 else { throw malformed("a string doesn't end") }
        var code: UInt32 = 0
        for _ in 0..<4 {
            guard let digit = Character(Unicode.Scalar(bytes[position])).hexDigitValue else {
                throw malformed("a hexadecimal digit was expected")
            }
            code = code << 4 | UInt32(digit)
            position += 1
        }
        return code
    }

    private func validate(_ content: UnsafeRawBufferPointer) throws {
        guard String(validating: content.bindMemory(to: UInt8.self), as: UTF8.self) != nil else {
            throw malformed("a string isn't valid UTF-8")
        }
    }
}
