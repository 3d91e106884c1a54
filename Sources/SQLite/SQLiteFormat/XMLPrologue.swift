/// The beginning of an XML document, in any encoding whose first characters an XML parser can read without knowing it
/// (www.w3.org/TR/xml, appendix F). Whether the document is well-formed is for a parser to say.
struct XMLPrologue {
    /// The ASCII characters from the document's first one on; others are a question mark.
    private let text: String

    init(_ sample: ArraySlice<UInt8>) {
        let units = Self.units(Array(sample))
        text = String(decoding: units.map { $0 < 0x80 ? UInt8($0) : UInt8(ascii: "?") }, as: UTF8.self)
    }

    /// True if the document's type or its first element is the one of Core Data's XML store, `database`.
    var isCoreDataStore: Bool {
        var rest = Self.withoutSpace(text[...])
        // The XML declaration, other instructions and comments may come first.
        while let (start, end) = Self.skipped.first(where: { rest.hasPrefix($0.start) }) {
            guard let last = rest.dropFirst(start.count).firstRange(of: end) else { return false }
            rest = Self.withoutSpace(rest[last.upperBound...])
        }
        for start in ["<!DOCTYPE", "<"] where rest.hasPrefix(start) {
            let name = Self.withoutSpace(rest.dropFirst(start.count))
            guard name.hasPrefix("database") else { return false }
            return name.dropFirst("database".count).first.map { Self.isSpace($0) || "[>/".contains($0) } ?? false
        }
        return false
    }

    private static let skipped = [(start: "<?", end: "?>"), (start: "<!--", end: "-->")]

    private static func isSpace(_ character: Character) -> Bool { character.isWhitespace }

    private static func withoutSpace(_ text: Substring) -> Substring { text.drop(while: isSpace) }

    /// Returns the code units after a byte order mark. Of the encodings that have no mark, all that are in use for
    /// documents have ASCII's characters in one byte each.
    private static func units(_ bytes: [UInt8]) -> [UInt32] {
        let marks: [(bytes: [UInt8], width: Int, isBigEndian: Bool, isMark: Bool)] = [
            ([0, 0, 0xFE, 0xFF], 4, true, true), ([0xFF, 0xFE, 0, 0], 4, false, true),
            ([0, 0, 0, 0x3C], 4, true, false), ([0x3C, 0, 0, 0], 4, false, false), ([0xFE, 0xFF], 2, true, true),
            ([0xFF, 0xFE], 2, false, true), ([0, 0x3C], 2, true, false), ([0x3C, 0], 2, false, false),
            ([0xEF, 0xBB, 0xBF], 1, true, true),
        ]
        guard let mark = marks.first(where: { bytes.starts(with: $0.bytes) }) else { return bytes.map(UInt32.init) }
        let content = bytes.dropFirst(mark.isMark ? mark.bytes.count : 0)
        return stride(from: content.startIndex, through: content.endIndex - mark.width, by: mark.width).map { start in
            let unit = content[start..<start + mark.width]
            return (mark.isBigEndian ? Array(unit) : unit.reversed()).reduce(0) { $0 << 8 | UInt32($1) }
        }
    }
}
