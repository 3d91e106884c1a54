import LinuxSystem

/// A statement formatted for one line: white space between its tokens becomes one space, while quoted text keeps every
/// character. Control characters are escaped, and a very long statement is cut.
struct TracedSQL: CustomStringConvertible {
    /// A statement with more characters is cut: a value may have megabytes.
    static let limit = 10_000

    let description: String

    init(_ sql: String) {
        // A trigger's statement is a comment as a whole.
        var rest = sql[...]
        while rest.hasPrefix("-- ") { rest = rest.dropFirst(3) }
        let scalars = rest.unicodeScalars
        var line = String.UnicodeScalarView()
        var count = 0
        var quote: Unicode.Scalar?
        var (isBlank, isComment) = (true, false)
        for scalar in scalars where count <= Self.limit {
            if isComment {
                guard scalar == "\n" else { continue }
                isComment = false
                if !isBlank { line.append(" ") }
                isBlank = true
            } else if quote == nil, Self.isBlank(scalar) {
                if !isBlank { line.append(" ") }
                isBlank = true
            } else if quote == nil, scalar == "-", line.last == "-" {
                line.removeLast()
                isBlank = line.last.map { $0 == " " } ?? true
                isComment = true
            } else {
                quote = quote == nil ? Self.closingQuote(of: scalar) : quote == scalar ? nil : quote
                line.append(scalar)
                isBlank = false
                count += 1
            }
        }
        if line.last == " ", quote == nil { line.removeLast() }
        let text = PrintableText(String(line)).description
        description = count > Self.limit ? "\(text)… (\(scalars.count) characters)" : text
    }

    private static func isBlank(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar {
        case " ", "\t", "\n", "\r", "\u{C}": true
        default: false
        }
    }

    private static func closingQuote(of scalar: Unicode.Scalar) -> Unicode.Scalar? {
        switch scalar {
        case "'", "\"", "`": scalar
        case "[": "]"
        default: nil
        }
    }
}
