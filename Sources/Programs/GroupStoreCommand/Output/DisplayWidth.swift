/// The number of a terminal's columns that text takes.
///
/// Hand-written because wcwidth(3) knows only the characters of the process's locale, which may be C.
enum DisplayWidth {
    /// The scalars of two columns: the wide ones of the East Asian Width property
    /// (https://www.unicode.org/reports/tr11/), and emoji.
    private static let wide: [ClosedRange<UInt32>] = [
        0x1100...0x115F, 0x231A...0x231B, 0x23E9...0x23EC, 0x2614...0x2615, 0x2648...0x2653, 0x26A1...0x26A1,
        0x2705...0x2705, 0x2728...0x2728, 0x274C...0x274C, 0x2753...0x2757, 0x2795...0x2797, 0x2B50...0x2B55,
        0x2E80...0x303E, 0x3041...0x33FF, 0x3400...0x4DBF, 0x4E00...0x9FFF, 0xA000...0xA4CF, 0xA960...0xA97F,
        0xAC00...0xD7A3, 0xF900...0xFAFF, 0xFE10...0xFE19, 0xFE30...0xFE6F, 0xFF00...0xFF60, 0xFFE0...0xFFE6,
        0x16FE0...0x18CFF, 0x1AFF0...0x1B2FF, 0x1F004...0x1F004, 0x1F0CF...0x1F0CF, 0x1F18E...0x1F19A,
        0x1F1E6...0x1F320, 0x1F32D...0x1F64F, 0x1F680...0x1F6FF, 0x1F7E0...0x1F7EB, 0x1F90C...0x1F9FF,
        0x1FA70...0x1FAFF, 0x20000...0x3FFFD,
    ]

    static func of(_ text: String) -> Int { text.unicodeScalars.reduce(0) { $0 + of($1) } }

    private static func of(_ scalar: Unicode.Scalar) -> Int {
        if scalar.isASCII { return 1 }
        switch scalar.properties.generalCategory {
        case .nonspacingMark, .enclosingMark, .format: return 0
        default: return wide.contains { $0.contains(scalar.value) } ? 2 : 1
        }
    }

    /// Returns the text cut to that many columns; the last one is then `…`.
    static func cut(_ text: String, to columns: Int) -> String {
        guard columns > 0 else { return "" }
        guard of(text) > columns else { return text }
        var (kept, width) = ("", 0)
        for character in text {
            let next = of(String(character))
            guard width + next < columns else { break }
            kept.append(character)
            width += next
        }
        return kept + "…"
    }

    /// Returns the end of the text in that many columns; the first one is then `…`.
    static func cutStart(_ text: String, to columns: Int) -> String {
        guard columns > 0 else { return "" }
        guard of(text) > columns else { return text }
        var (kept, width) = ([Character](), 0)
        for character in text.reversed() {
            let next = of(String(character))
            guard width + next < columns else { break }
            kept.append(character)
            width += next
        }
        return "…" + String(kept.reversed())
    }

    /// Returns the text in exactly that many columns.
    static func fit(_ text: String, to columns: Int, rightAligned: Bool = false) -> String {
        let cut = cut(text, to: columns)
        let padding = String(repeating: " ", count: max(0, columns - of(cut)))
        return rightAligned ? padding + cut : cut + padding
    }
}
