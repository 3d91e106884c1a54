/// Rejects, before the file is parsed, YAML that a configuration doesn't need and that can make parsing take forever:
/// aliases (`*alias`), complex keys (`? …`) and deeply nested lists.
struct ConfigurationScan {
    struct Finding {
        /// Counted from 1.
        let line: Int
        let message: String
    }

    private static let maximumDepth = 8

    private var depth = 0
    private var line = 1
    private var quote: UInt8?
    private var isComment = false
    /// True if a token may begin here.
    private var isStart = true

    /// Returns the first finding; nil if there is none.
    static func finding(in text: String) -> Finding? {
        var scan = ConfigurationScan()
        let bytes = Array(text.utf8)
        for (index, byte) in bytes.enumerated() {
            let next = index + 1 < bytes.count ? bytes[index + 1] : UInt8(ascii: "\n")
            if let message = scan.process(byte, before: next) { return Finding(line: scan.line, message: message) }
        }
        return nil
    }

    private mutating func process(_ byte: UInt8, before next: UInt8) -> String? {
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
        case UInt8(ascii: "*"): if wasStart { return "a YAML alias, which a configuration can't contain" }
        case UInt8(ascii: "?"): if wasStart, Self.isBlank(next) { return "a key that is not a plain word" }
        case UInt8(ascii: "]"), UInt8(ascii: "}"): depth = max(0, depth - 1)
        case _ where Self.opens(byte):
            depth += 1
            if depth > Self.maximumDepth { return "brackets nested more than \(Self.maximumDepth) deep" }
        default: break
        }
        return nil
    }

    private static func opens(_ byte: UInt8) -> Bool { byte == UInt8(ascii: "[") || byte == UInt8(ascii: "{") }
    private static func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 || byte == 0x0A || byte == 0x0D }
}
