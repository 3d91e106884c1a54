/// A set of Unicode scalars.
indirect enum ScalarSet: Sendable {
    case range(ClosedRange<Unicode.Scalar>)
    case property(@Sendable (Unicode.Scalar.Properties) -> Bool)
    case inverted(ScalarSet)
    case union([ScalarSet])
    case intersection(ScalarSet, ScalarSet)

    static func scalar(_ scalar: Unicode.Scalar) -> ScalarSet { .range(scalar...scalar) }

    /// The scalar, if the set has only one.
    var onlyScalar: Unicode.Scalar? {
        guard case .range(let range) = self, range.lowerBound == range.upperBound else { return nil }
        return range.lowerBound
    }

    func contains(_ scalar: Unicode.Scalar) -> Bool {
        switch self {
        case .range(let range): range.contains(scalar)
        case .property(let isMember): isMember(scalar.properties)
        case .inverted(let set): !set.contains(scalar)
        case .union(let sets): sets.contains { $0.contains(scalar) }
        case .intersection(let first, let second): first.contains(scalar) && second.contains(scalar)
        }
    }
}

extension ScalarSet {
    static let all = ScalarSet.range("\u{0}"..."\u{10FFFF}")
    /// `\v`, which also end a line.
    static let lineTerminators = union([.range("\n"..."\r"), .scalar("\u{85}"), .range("\u{2028}"..."\u{2029}")])
    static let digits = category(.decimalNumber)
    static let whitespace = property { $0.isWhitespace }
    static let horizontalSpace = union([.scalar("\t"), category(.spaceSeparator)])
    static let wordCharacters = union([
        property {
            $0.isAlphabetic
                || [.nonspacingMark, .enclosingMark, .spacingMark, .decimalNumber, .connectorPunctuation]
                    .contains($0.generalCategory)
        },
        .range("\u{200C}"..."\u{200D}"),
    ])

    static func category(_ categories: Unicode.GeneralCategory...) -> ScalarSet {
        property { categories.contains($0.generalCategory) }
    }

    /// Returns the set of `\p{name}`; nil if the name is unknown here. Scripts and blocks are, since the standard
    /// library doesn't have them.
    static func named(_ name: String) -> ScalarSet? {
        sets[name.lowercased().filter { !" _-".contains($0) }]
    }

    private static let sets: [String: ScalarSet] = [
        "l": category(.uppercaseLetter, .lowercaseLetter, .titlecaseLetter, .modifierLetter, .otherLetter),
        "letter": category(.uppercaseLetter, .lowercaseLetter, .titlecaseLetter, .modifierLetter, .otherLetter),
        "lu": category(.uppercaseLetter), "uppercaseletter": category(.uppercaseLetter),
        "ll": category(.lowercaseLetter), "lowercaseletter": category(.lowercaseLetter),
        "lt": category(.titlecaseLetter), "lm": category(.modifierLetter), "lo": category(.otherLetter),
        "m": category(.nonspacingMark, .spacingMark, .enclosingMark),
        "mark": category(.nonspacingMark, .spacingMark, .enclosingMark),
        "mn": category(.nonspacingMark), "mc": category(.spacingMark), "me": category(.enclosingMark),
        "n": category(.decimalNumber, .letterNumber, .otherNumber),
        "number": category(.decimalNumber, .letterNumber, .otherNumber),
        "nd": digits, "nl": category(.letterNumber), "no": category(.otherNumber),
        "p": punctuation, "punctuation": punctuation, "punct": punctuation,
        "pc": category(.connectorPunctuation), "pd": category(.dashPunctuation), "ps": category(.openPunctuation),
        "pe": category(.closePunctuation), "pi": category(.initialPunctuation), "pf": category(.finalPunctuation),
        "po": category(.otherPunctuation),
        "s": category(.mathSymbol, .currencySymbol, .modifierSymbol, .otherSymbol),
        "symbol": category(.mathSymbol, .currencySymbol, .modifierSymbol, .otherSymbol),
        "sm": category(.mathSymbol), "sc": category(.currencySymbol), "sk": category(.modifierSymbol),
        "so": category(.otherSymbol),
        "z": category(.spaceSeparator, .lineSeparator, .paragraphSeparator), "zs": category(.spaceSeparator),
        "separator": category(.spaceSeparator, .lineSeparator, .paragraphSeparator),
        "zl": category(.lineSeparator), "zp": category(.paragraphSeparator), "cc": category(.control),
        "cf": category(.format), "alphabetic": property { $0.isAlphabetic }, "alpha": property { $0.isAlphabetic },
        "uppercase": property { $0.isUppercase }, "upper": property { $0.isUppercase },
        "lowercase": property { $0.isLowercase }, "lower": property { $0.isLowercase },
        "whitespace": whitespace, "space": whitespace, "digit": digits,
        "alnum": union([property { $0.isAlphabetic }, digits]),
        "ascii": range("\u{0}"..."\u{7F}"), "any": all,
        "xdigit": union([digits, property { $0.isHexDigit }]),
    ]

    private static let punctuation = category(
        .connectorPunctuation, .dashPunctuation, .openPunctuation, .closePunctuation, .initialPunctuation,
        .finalPunctuation, .otherPunctuation)
}
