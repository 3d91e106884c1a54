// The standard library's decomposition is not public, and FoundationEssentials uses it in the same way.
@_spi(_Unicode) import Swift

/// Case and accent folding as Foundation's `folding(options:locale:)` does it without a locale, and capitalization as
/// `capitalized` does it. Core Data's canonical values and text comparisons depend on both.
///
/// Hand-written because Foundation's would bring ICU into every program that migrates. The rules are those of
/// CFStringFold and CFStringCapitalize (CFString.c in Apple's CoreFoundation).
enum TextFolding {
    /// The letters before this scalar, Latin, Greek and Cyrillic, lose their accents.
    private static let firstWithAccents: UInt32 = 0x0510

    static func fold(_ text: String, ignoringCase: Bool, ignoringAccents: Bool) -> String {
        guard ignoringCase || ignoringAccents && text.utf8.contains(where: { $0 >= 0x80 }) else { return text }
        var scalars = text.unicodeScalars[...]
        var folded = String.UnicodeScalarView()
        while let first = scalars.popFirst() {
            let base = foldedLetter(first, ignoringCase: ignoringCase, ignoringAccents: ignoringAccents)
            guard ignoringAccents else {
                folded += base
                continue
            }
            let marks = Array(scalars.prefix(while: isMark))
            scalars = scalars.dropFirst(marks.count)
            folded += withMarks(base, kept(marks, after: base, isChanged: base != [first]))
        }
        return String(folded)
    }

    private static func foldedLetter(_ scalar: Unicode.Scalar, ignoringCase: Bool, ignoringAccents: Bool) -> [Unicode
        .Scalar]
    {
        var base = scalar
        if ignoringAccents, let first = decomposed(scalar).first, first.value < firstWithAccents { base = first }
        guard ignoringCase else { return [base] }
        let lower = caseFolded(base)
        guard ignoringAccents, base.value < firstWithAccents, lower != [base] else { return lower }
        return lower.filter { !isMark($0) }
    }

    /// Returns the marks that follow a letter and stay.
    private static func kept(
        _ marks: [Unicode.Scalar], after base: [Unicode.Scalar], isChanged: Bool
    ) -> [Unicode.Scalar] {
        guard let last = base.last, last.value >= firstWithAccents, let first = marks.first else { return [] }
        // Foundation drops the first mark of a letter that has no other case, if the mark is a Latin one.
        return isChanged || first.value >= firstWithAccents ? marks : Array(marks.dropFirst())
    }

    /// Returns a letter with marks in canonical order.
    private static func withMarks(_ base: [Unicode.Scalar], _ marks: [Unicode.Scalar]) -> [Unicode.Scalar] {
        guard !marks.isEmpty else { return base }
        // At the start of a text, the base may be a mark too.
        return (base + marks.flatMap(decomposed)).sorted {
            $0.properties.canonicalCombiningClass < $1.properties.canonicalCombiningClass
        }
    }

    /// True for a scalar that Foundation counts to the letter before it. Unicode 16 has changed these; Foundation's
    /// tables, and Core Data's canonical values, have the former ones.
    private static func isMark(_ scalar: Unicode.Scalar) -> Bool {
        scalar.properties.isGraphemeExtend && !addedMarks.contains(scalar)
            || skinTones.contains(scalar) || scalar == removedMark
    }

    private static let skinTones: ClosedRange<Unicode.Scalar> = "\u{1F3FB}"..."\u{1F3FF}"
    private static let removedMark: Unicode.Scalar = "\u{1171E}"
    private static let addedMarks: Set<Unicode.Scalar> = [
        "\u{CC0}", "\u{CC7}", "\u{CC8}", "\u{CCA}", "\u{CCB}", "\u{1715}", "\u{1734}", "\u{1B3B}", "\u{1B3D}",
        "\u{1B43}", "\u{1B44}", "\u{1BAA}", "\u{1BF2}", "\u{1BF3}", "\u{A953}", "\u{A9C0}", "\u{111C0}", "\u{11235}",
        "\u{1134D}", "\u{116B6}", "\u{1193D}", "\u{16FF0}", "\u{16FF1}", "\u{1D166}", "\u{1D16D}",
    ]

    private static func decomposed(_ scalar: Unicode.Scalar) -> [Unicode.Scalar] {
        scalar.value < 0xC0 ? [scalar] : Array(String(scalar)._nfd)
    }

    /// Returns Unicode's full case folding of a scalar, which the standard library doesn't have.
    private static func caseFolded(_ scalar: Unicode.Scalar) -> [Unicode.Scalar] {
        switch scalar {
        case "A"..."Z": [Unicode.Scalar(UInt8(scalar.value + 32))]
        case ..."\u{7F}": [scalar]
        // Its upper case is the Latin I.
        case "ı": [scalar]
        case "ẞ": ["s", "s"]
        // Variants of Cyrillic letters, which Foundation doesn't fold.
        case "\u{1C80}"..."\u{1C88}": [scalar]
        default:
            scalar.properties.uppercaseMapping.unicodeScalars.flatMap { $0.properties.lowercaseMapping.unicodeScalars }
        }
    }

    /// Returns the text with each word's first letter in upper case and the others in lower case. A mark or an
    /// apostrophe doesn't end a word.
    static func capitalized(_ text: String) -> String {
        var result = ""
        var isInWord = false
        for scalar in text.unicodeScalars {
            let properties = scalar.properties
            switch properties.generalCategory {
            case .uppercaseLetter, .titlecaseLetter:
                result += isInWord ? properties.lowercaseMapping : String(scalar)
                isInWord = true
            case .lowercaseLetter:
                result += isInWord ? properties.lowercaseMapping : properties.titlecaseMapping
                isInWord = true
            case .nonspacingMark, .enclosingMark, .format, .modifierLetter, .modifierSymbol:
                result.unicodeScalars.append(scalar)
            default:
                result.unicodeScalars.append(scalar)
                if scalar != "'", scalar != "\u{2019}" { isInWord = false }
            }
        }
        return result
    }
}
