/// Reads the format language of predicates and expressions (Predicate Programming Guide, "Predicate Format String
/// Syntax"), by recursive descent; how deep and how long it may take are bounded.
struct FormatParser {
    private static let deepest = 60
    /// A parenthesis may begin a predicate or an expression, and both are tried.
    private static let mostSteps = 200_000

    private let tokens: [(token: FormatLexer.Token, offset: Int)]
    private var position = 0
    private var depth = 0
    private var steps = 0

    init(_ format: String) throws(FormatError) { tokens = try FormatLexer.tokens(format) }

    mutating func wholePredicate() throws(FormatError) -> MappingPredicate {
        let found = try predicate()
        try expectEnd()
        return found
    }

    mutating func wholeExpression() throws(FormatError) -> MappingExpression {
        let found = try expression()
        try expectEnd()
        return found
    }

    // MARK: Tokens

    var token: FormatLexer.Token { tokens[min(position, tokens.count - 1)].token }

    func error(_ message: String) -> FormatError {
        FormatError(message, at: tokens[min(position, tokens.count - 1)].offset)
    }

    mutating func advance() { position += 1 }

    private func expectEnd() throws(FormatError) {
        guard token == .end else { throw error("something follows the end") }
    }

    mutating func take(_ sign: String) -> Bool {
        guard token == .sign(sign) else { return false }
        advance()
        return true
    }

    mutating func expect(_ sign: String) throws(FormatError) {
        guard take(sign) else { throw error("“\(sign)” is missing") }
    }

    /// Takes the word of the language, whatever its case.
    mutating func takeWord(_ word: String) -> Bool {
        guard case .word(let found) = token, found.uppercased() == word else { return false }
        advance()
        return true
    }

    /// Goes down by one, and comes back when `body` has ended.
    mutating func nested<Result>(
        _ body: (inout FormatParser) throws(FormatError) -> Result
    ) throws(FormatError) -> Result {
        steps += 1
        guard depth < Self.deepest else { throw error("it is nested more than \(Self.deepest) deep") }
        guard steps < Self.mostSteps else { throw error("it is too complicated") }
        depth += 1
        let found = try body(&self)
        depth -= 1
        return found
    }

    // MARK: Predicates

    mutating func predicate() throws(FormatError) -> MappingPredicate {
        try nested { (parser) throws(FormatError) in try parser.disjunction() }
    }

    private mutating func disjunction() throws(FormatError) -> MappingPredicate {
        var parts = [try conjunction()]
        while takeWord("OR") || take("||") { parts.append(try conjunction()) }
        return parts.count == 1 ? parts[0] : .or(parts)
    }

    private mutating func conjunction() throws(FormatError) -> MappingPredicate {
        var parts = [try negation()]
        while takeWord("AND") || take("&&") { parts.append(try negation()) }
        return parts.count == 1 ? parts[0] : .and(parts)
    }

    private mutating func negation() throws(FormatError) -> MappingPredicate {
        guard takeWord("NOT") || take("!") else { return try condition() }
        return .not(try nested { (parser) throws(FormatError) in try parser.negation() })
    }

    private mutating func condition() throws(FormatError) -> MappingPredicate {
        if takeWord("TRUEPREDICATE") { return .constant(true) }
        if takeWord("FALSEPREDICATE") { return .constant(false) }
        if token == .sign("("), let found = try parenthesized() { return found }
        if takeWord("ANY") || takeWord("SOME") { return .comparison(try comparison(.any)) }
        if takeWord("ALL") { return .comparison(try comparison(.all)) }
        if takeWord("NONE") { return .not(.comparison(try comparison(.any))) }
        return .comparison(try comparison(.direct))
    }

    /// Nil where the parenthesis is an expression's.
    private mutating func parenthesized() throws(FormatError) -> MappingPredicate? {
        let (start, level) = (position, depth)
        advance()
        // What fails as a predicate may be an expression; what takes too long is neither.
        if let found = try? predicate(), take(")"), !continuesExpression { return found }
        (position, depth) = (start, level)
        guard steps < Self.mostSteps else { throw error("it is too complicated") }
        return nil
    }

    private var continuesExpression: Bool {
        switch token {
        case .sign(let sign): !["(", ")", "{", "}", ",", "&&", "||", "]"].contains(sign)
        case .word(let word): Self.operators[word.uppercased()] != nil
        default: false
        }
    }

    private static let operators: [String: MappingPredicate.Comparison.Operator] = [
        "IN": .isIn, "CONTAINS": .contains, "BEGINSWITH": .beginsWith, "ENDSWITH": .endsWith, "LIKE": .like,
        "MATCHES": .matches, "BETWEEN": .between,
    ]

    private static let signs: [String: MappingPredicate.Comparison.Operator] = [
        "=": .equal, "==": .equal, "!=": .notEqual, "<>": .notEqual, "<": .lessThan, "<=": .lessThanOrEqual,
        "=<": .lessThanOrEqual, ">": .greaterThan, ">=": .greaterThanOrEqual, "=>": .greaterThanOrEqual,
    ]

    private mutating func comparison(
        _ modifier: MappingPredicate.Comparison.Modifier
    ) throws(FormatError) -> MappingPredicate.Comparison {
        let left = try expression()
        let `operator` = try comparisonOperator()
        var comparison = MappingPredicate.Comparison(left, `operator`, .evaluatedObject, modifier: modifier)
        if take("[") {
            guard case .word(let options) = token else { throw error("the operator's options are missing") }
            guard options.allSatisfy({ "cdnl".contains($0) }) else { throw error("“[\(options)]” is no option") }
            advance()
            try expect("]")
            comparison.isCaseInsensitive = options.contains("c")
            comparison.isDiacriticInsensitive = options.contains("d")
        }
        comparison.right = try expression()
        return comparison
    }

    private mutating func comparisonOperator() throws(FormatError) -> MappingPredicate.Comparison.Operator {
        let found: MappingPredicate.Comparison.Operator?
        switch token {
        case .sign(let sign): found = Self.signs[sign]
        case .word(let word): found = Self.operators[word.uppercased()]
        default: found = nil
        }
        guard let found else { throw error("a comparison is missing, such as ==") }
        advance()
        return found
    }
}
