/// Rewrites the strings of a JSON text (RFC 8259) and leaves every other byte as it is. A parser that builds a tree
/// would lose the spelling of numbers, spaces and escapes.
struct JSONRewriter {
    private let bytes: [UInt8]
    private let rewriter: PathRewriter
    private let depth: Int
    private var index = 0
    private var result: [UInt8] = []
    /// The end of what is in `result`.
    private var copied = 0
    private var nesting = 0
    private static let maximumNesting = 200

    /// Returns nil if the text isn't JSON or holds no old path. Keys don't count.
    static func rewritten(_ bytes: [UInt8], by rewriter: PathRewriter, depth: Int) -> [UInt8]? {
        var run = JSONRewriter(bytes: bytes, rewriter: rewriter, depth: depth)
        guard run.value() else { return nil }
        run.skipSpace()
        guard run.index == bytes.count, run.copied > 0 else { return nil }
        return run.result + bytes[run.copied...]
    }

    private init(bytes: [UInt8], rewriter: PathRewriter, depth: Int) {
        (self.bytes, self.rewriter, self.depth) = (bytes, rewriter, depth)
    }

    static func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 || byte == 0x0A || byte == 0x0D }

    private mutating func skipSpace() { while index < bytes.count, Self.isSpace(bytes[index]) { index += 1 } }

    private mutating func take(_ character: UInt8) -> Bool {
        skipSpace()
        guard index < bytes.count, bytes[index] == character else { return false }
        index += 1
        return true
    }

    // MARK: - The grammar

    private mutating func value() -> Bool {
        skipSpace()
        guard index < bytes.count else { return false }
        switch bytes[index] {
        case UInt8(ascii: "\""): return string(isKey: false)
        case UInt8(ascii: "{"):
            return list(from: UInt8(ascii: "{"), to: UInt8(ascii: "}")) { run in
                run.skipSpace()
                return run.string(isKey: true) && run.take(UInt8(ascii: ":")) && run.value()
            }
        case UInt8(ascii: "["):
            return list(from: UInt8(ascii: "["), to: UInt8(ascii: "]")) { $0.value() }
        default: return word()
        }
    }

    private mutating func list(from: UInt8, to: UInt8, _ element: (inout JSONRewriter) -> Bool) -> Bool {
        nesting += 1
        defer { nesting -= 1 }
        guard nesting <= Self.maximumNesting, take(from) else { return false }
        if take(to) { return true }
        repeat { guard element(&self) else { return false } } while take(UInt8(ascii: ","))
        return take(to)
    }

    /// A number or a literal name.
    private mutating func word() -> Bool {
        let start = index
        while index < bytes.count, "+-.0123456789eEtrufalsn".utf8.contains(bytes[index]) { index += 1 }
        return index > start
    }

    private mutating func string(isKey: Bool) -> Bool {
        guard index < bytes.count, bytes[index] == UInt8(ascii: "\"") else { return false }
        let start = index + 1
        var text: [UInt8] = []
        index = start
        while index < bytes.count, bytes[index] != UInt8(ascii: "\"") {
            guard bytes[index] >= 0x20 else { return false }
            if bytes[index] == UInt8(ascii: "\\") {
                guard let decoded = escape() else { return false }
                text += decoded
            } else {
                text.append(bytes[index])
                index += 1
            }
        }
        guard index < bytes.count else { return false }
        let token = bytes[start..<index]
        if !isKey, let changed = rewriter.rewritten(text, depth: depth) {
            result += bytes[copied..<start]
            result += Self.escaped(changed, like: token)
            copied = index
        }
        index += 1
        return true
    }

    // MARK: - Escapes

    /// Decodes the escape at the index, and moves behind it.
    private mutating func escape() -> [UInt8]? {
        guard index + 1 < bytes.count else { return nil }
        let letter = bytes[index + 1]
        index += 2
        switch letter {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return [letter]
        case UInt8(ascii: "b"): return [0x08]
        case UInt8(ascii: "f"): return [0x0C]
        case UInt8(ascii: "n"): return [0x0A]
        case UInt8(ascii: "r"): return [0x0D]
        case UInt8(ascii: "t"): return [0x09]
        case UInt8(ascii: "u"): break
        default: return nil
        }
        guard var units = unit().map({ [$0] }) else { return nil }
        if UTF16.isLeadSurrogate(units[0]), index + 1 < bytes.count, bytes[index] == UInt8(ascii: "\\"),
            bytes[index + 1] == UInt8(ascii: "u")
        {
            index += 2
            guard let second = unit() else { return nil }
            units.append(second)
        }
        return String(validating: units, as: UTF16.self).map { Array($0.utf8) }
    }

    private mutating func unit() -> UInt16? {
        guard index + 4 <= bytes.count else { return nil }
        defer { index += 4 }
        return UInt16(String(decoding: bytes[index..<index + 4], as: UTF8.self), radix: 16)
    }

    /// Encodes a text with the escapes that its former token uses: `\/` for a slash, and `\u` for what isn't ASCII.
    private static func escaped(_ text: [UInt8], like token: ArraySlice<UInt8>) -> [UInt8] {
        let pairs = Array(zip(token, token.dropFirst()))
        let escapesSlash = pairs.contains { $0 == (UInt8(ascii: "\\"), UInt8(ascii: "/")) }
        let escapesOthers = pairs.contains { $0 == (UInt8(ascii: "\\"), UInt8(ascii: "u")) }
        guard escapesOthers, let string = String(validating: text, as: UTF8.self) else {
            return text.flatMap { escaped($0, escapesSlash) }
        }
        return string.utf16.flatMap { unit in
            unit < 0x80 ? escaped(UInt8(unit), escapesSlash) : Array("\\u\(digits(unit))".utf8)
        }
    }

    private static func escaped(_ byte: UInt8, _ escapesSlash: Bool) -> [UInt8] {
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"): [UInt8(ascii: "\\"), byte]
        case UInt8(ascii: "/") where escapesSlash: [UInt8(ascii: "\\"), byte]
        case 0x0A: Array("\\n".utf8)
        case 0x09: Array("\\t".utf8)
        case 0x0D: Array("\\r".utf8)
        case ..<0x20: Array("\\u\(digits(UInt16(byte)))".utf8)
        default: [byte]
        }
    }

    private static func digits(_ unit: UInt16) -> String {
        let text = String(unit, radix: 16)
        return String(repeating: "0", count: 4 - text.utf8.count) + text
    }
}
