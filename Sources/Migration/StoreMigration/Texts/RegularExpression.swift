/// A regular expression that matches whole texts, as NSPredicate's MATCHES does with ICU: scalar by scalar.
///
/// Hand-written: Foundation's would bring ICU into every program that migrates, and Swift's `Regex` reads many patterns
/// otherwise than ICU.
struct RegularExpression {
    private let program: PatternProgram

    /// Compiles a pattern. Throws if it isn't one, or if it may have another meaning in ICU.
    init(_ pattern: String) throws(PatternError) {
        let (root, captureCount) = try PatternParser.parse(pattern)
        program = try PatternProgram(root, captureCount: captureCount)
    }

    /// Compiles a pattern of LIKE: `*` matches any text, `?` one character. The other characters are folded.
    init(like pattern: String, fold: (String) -> String) throws(PatternError) {
        let parts = pattern.flatMap { character -> [PatternNode] in
            switch character {
            case "*": [.repeated(.any, minimum: 0, maximum: nil, .greedy)]
            case "?": [.any]
            default: fold(String(character)).unicodeScalars.map { .scalars(.scalar($0)) }
            }
        }
        program = try PatternProgram(.sequence(parts), captureCount: 0)
    }

    /// Returns true if the pattern matches the whole text. Throws if finding out takes more than `steps`.
    func matches(_ text: String, steps: Int = PatternMatcher.maximumSteps) throws(PatternError) -> Bool {
        var matcher = PatternMatcher(program, Array(text.unicodeScalars), steps: steps)
        return try matcher.matchesWhole()
    }
}

/// The reason a regular expression can't be used.
struct PatternError: Error, Equatable, CustomStringConvertible {
    let description: String
}
