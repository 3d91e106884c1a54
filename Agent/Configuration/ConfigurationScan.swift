/// What a configuration has no use for, and what can make reading it take for ever: names for parts of it (`*alias`),
/// keys that are no words (`? …`), and lists in lists in lists. Looked for before the file is taken apart.
struct ConfigurationScan {
    struct Finding {
        /// From 1 on.
        let line: Int
        let message: String
    }

    private static let deepest = 8

    private var depth = 0
    private var line = 1
    private var quote: UInt8?
    private var isComment = false
    /// Whether a token may begin here.
    private var isStart = true

    /// Nil when nothing was found.
    static func finding(in text: String) -> Finding? {
        var scan = ConfigurationScan()
        let bytes = Array(text.utf8)
        for (index, byte) in bytes.enumerated() {
            let next = index + 1 < bytes.count ? bytes[index + 1] : UInt8(ascii: "\n")
            if let message = scan.take(byte, before: next) { return Finding(line: scan.line, message: message) }
        }
        return nil
    }

    private mutating func take(_ byte: UInt8, before next: UInt8) -> String? {
        if byte == UInt8(ascii: "\n") { (line, isComment, isStart) = (line + 1, false, true) }
        guard !isComment else { return nil }
        if let quote {
            if byte == quote { self.quote = nil }
            return nil
        }
        let wasStart = isStart
        isStart = Self.isBlank(byte) || Self.opens(byte) || byte == UInt8(ascii: ",")
        switch byte {
        case UInt8(ascii: "'"), UInt8(ascii: "\""): if wasStart { quote = byte }
        case UInt8(ascii: "#"): isComment = wasStart
        case UInt8(ascii: "*"): if wasStart { return "an alias, which a configuration can't have" }
        case UInt8(ascii: "?"): if wasStart, Self.isBlank(next) { return "a key that is no word" }
        case UInt8(ascii: "]"), UInt8(ascii: "}"): depth = max(0, depth - 1)
        case _ where Self.opens(byte):
            depth += 1
            if depth > Self.deepest { return "brackets more than \(Self.deepest) deep" }
        default: break
        }
        return nil
    }

    private static func opens(_ byte: UInt8) -> Bool { byte == UInt8(ascii: "[") || byte == UInt8(ascii: "{") }
    private static func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 || byte == 0x0A || byte == 0x0D }
}
