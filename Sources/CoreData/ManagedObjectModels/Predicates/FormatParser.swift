/// Parses the format language of predicates and expressions (Predicate Programming Guide, "Predicate Format String
/// Syntax") by recursive descent. Depth and number of steps are bounded. Hand-written because Foundation can't parse
/// formats on Linux.
struct FormatParser {
    private static let maximumDepth = 60
    /// The bound on backtracking: a parenthesis may begin a predicate or an expression, and both are tried.
    private static let maximumSteps = 200_000

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
        guard token == .end else { throw error("unexpected text after the end") }
    }

    /// Consumes a sign if it is the current token.
    mutating func consume(_ sign: String) -> Bool {
        guard token == .sign(sign) else { return false }
        advance()
        return true
    }

    mutating func expect(_ sign: String) throws(FormatError) {
        guard consume(sign) else { throw error("“\(sign)” is missing") }
    }

    /// Consumes a keyword, ignoring case.
    mutating func consumeWord(_ word: String) -> Bool {
        guard case .word(let found) = token, found.uppercased() == word else { return false }
        advance()
        return true
    }

    /// Runs `body` one level deeper.
    mutating func nested<Result>(
        _ body: (inout FormatParser) throws(FormatError) -> Result
    ) throws(FormatError) -> Result {
        steps += 1
        guard depth < Self.maximumDepth else { throw error("it is nested more than \(Self.maximumDepth) deep") }
        guard steps < Self.maximumSteps else { throw error("it is too complicated") }
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
        while consumeWord("OR") || consume("||") { parts.append(try conjunction()) }
        return parts.count == 1 ? parts[0] : .or(parts)
    }

    private mutating func conjunction() throws(FormatError) -> MappingPredicate {
        var parts = [try negation()]
        while consumeWord("AND") || consume("&&") { parts.append(try negation()) }
        return parts.count == 1 ? parts[0] : .and(parts)
    }

    private mutating func negation() throws(FormatError) -> MappingPredicate {
        guard consumeWord("NOT") || consume("!") else { return try condition() }
        return .not(try nested { (parser) throws(FormatError) in try parser.negation() })
    }

    private mutating func condition() throws(FormatError) -> MappingPredicate {
        if consumeWord("TRUEPREDICATE") { return .constant(true) }
        if consumeWord("FALSEPREDICATE") { return .constant(false) }
        if token == .sign("("), let found = try parenthesized() { return found }
        if consumeWord("ANY") || consumeWord("SOME") { return .comparison(try comparison(.any)) }
        if consumeWord("ALL") { return .comparison(try comparison(.all)) }
        if consumeWord("NONE") { return .not(.comparison(try comparison(.any))) }
        return .comparison(try comparison(.direct))
    }

    /// Parses a predicate in parentheses; returns nil if the parenthesis belongs to an expression.
    private mutating func parenthesized() throws(FormatError) -> MappingPredicate? {
        let (start, level) = (position, depth)
        advance()
        // If the predicate fails, the text may be an expression, unless the limit was reached.
        if let found = try? predicate(), consume(")"), !continuesExpression { return found }
        (position, depth) = (start, level)
        guard steps < Self.maximumSteps else { throw error("it is too complicated") }
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
        if consume("[") {
            guard case .word(let options) = token else { throw error("the operator's options are missing") }
            guard options.allSatisfy({ "cdnl".contains($0) }) else { throw error("“[\(options)]” is not an option") }
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
