/// Rewrites the strings of a JSON text (RFC 8259) and leaves every other byte as it is. A parser that builds a tree
/// would lose the spelling of numbers, spaces and escapes.
struct JSONRewriter {
    private let bytes: [UInt8]
    private let rewriter: PathRewriter
    private let depth: Int
    private var index = 0
    private var changes = PathRewriter.Changes()

    /// Returns the changes of the text; none if it isn't JSON or holds no old path. Keys don't count.
    static func changes(_ bytes: [UInt8], by rewriter: PathRewriter, depth: Int) -> PathRewriter.Changes {
        var run = JSONRewriter(bytes: bytes, rewriter: rewriter, depth: depth)
        guard run.value() else { return PathRewriter.Changes() }
        run.skipSpace()
        return run.index == bytes.count ? run.changes : PathRewriter.Changes()
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

    /// Reads a value with all that is in it. A stack instead of recursion: any nesting is read.
    private mutating func value() -> Bool {
        // What closes each list and object that is open.
        var open: [UInt8] = []
        while true {
            skipSpace()
            guard index < bytes.count else { return false }
            switch bytes[index] {
            case UInt8(ascii: "\""):
                guard string(isKey: false) else { return false }
            case UInt8(ascii: "{"):
                index += 1
                if take(UInt8(ascii: "}")) { break }
                open.append(UInt8(ascii: "}"))
                guard key() else { return false }
                continue
            case UInt8(ascii: "["):
                index += 1
                if take(UInt8(ascii: "]")) { break }
                open.append(UInt8(ascii: "]"))
                continue
            default:
                guard word() else { return false }
            }
            while let end = open.last, take(end) { open.removeLast() }
            guard let end = open.last else { return true }
            guard take(UInt8(ascii: ",")), end == UInt8(ascii: "]") || key() else { return false }
        }
    }

    private mutating func key() -> Bool {
        skipSpace()
        return string(isKey: true) && take(UInt8(ascii: ":"))
    }

    /// A literal name or a number.
    private mutating func word() -> Bool {
        let name: StaticString? =
            switch bytes[index] {
            case UInt8(ascii: "t"): "true"
            case UInt8(ascii: "f"): "false"
            case UInt8(ascii: "n"): "null"
            default: nil
            }
        if let name {
            let end = index + name.utf8CodeUnitCount
            guard end <= bytes.count, name.withUTF8Buffer({ $0.elementsEqual(bytes[index..<end]) }) else {
                return false
            }
            index = end
            return true
        }
        if bytes[index] == UInt8(ascii: "-") { index += 1 }
        // Another digit after a first zero belongs to no number, and to nothing else.
        if index < bytes.count, bytes[index] == UInt8(ascii: "0") {
            index += 1
        } else if !decimals() {
            return false
        }
        if index < bytes.count, bytes[index] == UInt8(ascii: ".") {
            index += 1
            guard decimals() else { return false }
        }
        guard index < bytes.count, bytes[index] | 0x20 == UInt8(ascii: "e") else { return true }
        index += 1
        if index < bytes.count, "+-".utf8.contains(bytes[index]) { index += 1 }
        return decimals()
    }

    private mutating func decimals() -> Bool {
        let start = index
        while index < bytes.count, (0x30...0x39).contains(bytes[index]) { index += 1 }
        return index > start
    }

    private mutating func string(isKey: Bool) -> Bool {
        guard index < bytes.count, bytes[index] == UInt8(ascii: "\"") else { return false }
        let start = index + 1
        var text: [UInt8] = []
        // Where a run without an escape begins: in the decoded text, and here.
        var runs = [(text: 0, bytes: start)]
        index = start
        while index < bytes.count, bytes[index] != UInt8(ascii: "\"") {
            guard bytes[index] >= 0x20 else { return false }
            if bytes[index] == UInt8(ascii: "\\") {
                guard let decoded = escape() else { return false }
                text += decoded
                runs.append((text.count, index))
            } else {
                text.append(bytes[index])
                index += 1
            }
        }
        guard index < bytes.count else { return false }
        if !isKey {
            func place(_ position: Int) -> Int {
                let run = runs.last { $0.text <= position } ?? (0, start)
                return run.bytes + position - run.text
            }
            let token = bytes[start..<index]
            let found = rewriter.changes(text, depth: depth)
            changes.edits += found.edits.map { edit in
                let range = place(edit.range.lowerBound)..<place(edit.range.upperBound)
                return PathRewriter.Edit(range: range, new: Self.escaped(edit.new, like: token))
            }
            if found.isTooDeep { changes.isTooDeep = true }
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
        guard let first = unit() else { return nil }
        if UTF16.isLeadSurrogate(first), index + 1 < bytes.count, bytes[index] == UInt8(ascii: "\\"),
            bytes[index + 1] == UInt8(ascii: "u")
        {
            let end = index
            index += 2
            guard let second = unit() else { return nil }
            if let pair = String(validating: [first, second], as: UTF16.self) { return Array(pair.utf8) }
            index = end
        }
        guard UTF16.isSurrogate(first) else {
            return String(validating: [first], as: UTF16.self).map { Array($0.utf8) }
        }
        // One alone is no character: three bytes that no UTF-8 text has.
        return [0xED, 0x80 | UInt8(first >> 6 & 0x3F), 0x80 | UInt8(first & 0x3F)]
    }

    private mutating func unit() -> UInt16? {
        guard index + 4 <= bytes.count else { return nil }
        defer { index += 4 }
        let digits = String(decoding: bytes[index..<index + 4], as: UTF8.self)
        return digits.first == "+" || digits.first == "-" ? nil : UInt16(digits, radix: 16)
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
