/// Untrusted text made safe for one line of a terminal or log. Characters that move the cursor, change the terminal's
/// state, break the line or reorder text are written as `\u{…}`: control characters, line and paragraph separators, and
/// direction controls (https://www.unicode.org/reports/tr9/).
package struct PrintableText: CustomStringConvertible, Sendable {
    package let description: String

    package init(_ text: String) {
        description =
            Self.isPlain(text)
            ? text
            : text.unicodeScalars.reduce(into: "") { escaped, scalar in
                if Self.isSpecial(scalar) {
                    escaped += "\\u{\(String(scalar.value, radix: 16))}"
                } else {
                    escaped.unicodeScalars.append(scalar)
                }
            }
    }

    package static func isPlain(_ text: String) -> Bool { !text.unicodeScalars.contains(where: isSpecial) }

    private static func isSpecial(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case ..<0x20, 0x7F..<0xA0, 0x061C, 0x200E...0x200F, 0x2028...0x202E, 0x2066...0x2069: true
        default: false
        }
    }
}
