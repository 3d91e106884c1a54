import FoundationEssentials

// The grammar of expressions: sums of products of powers of primary expressions.
extension FormatParser {
    mutating func expression() throws(FormatError) -> MappingExpression {
        try nested { (parser) throws(FormatError) in try parser.sum() }
    }

    private mutating func sum() throws(FormatError) -> MappingExpression {
        var found = try product()
        while true {
            if consume("+") {
                found = .function("add:to:", [found, try product()])
            } else if consume("-") {
                found = .function("from:subtract:", [found, try product()])
            } else {
                return found
            }
        }
    }

    private mutating func product() throws(FormatError) -> MappingExpression {
        var found = try power()
        while true {
            if consume("*") {
                found = .function("multiply:by:", [found, try power()])
            } else if consume("/") {
                found = .function("divide:by:", [found, try power()])
            } else {
                return found
            }
        }
    }

    private mutating func power() throws(FormatError) -> MappingExpression {
        let base = try signed()
        guard consume("**") else { return base }
        return .function(
            "raise:toPower:", [base, try nested { (parser) throws(FormatError) in try parser.power() }])
    }

    private mutating func signed() throws(FormatError) -> MappingExpression {
        guard consume("-") else { return try path() }
        let operand = try nested { (parser) throws(FormatError) in try parser.signed() }
        switch operand {
        case .constant(.integer(let value)?): return .constant(.integer(0 &- value))
        case .constant(.real(let value)?): return .constant(.real(-value))
        default: return .function("from:subtract:", [.constant(.integer(0)), operand])
        }
    }

    /// Parses a primary expression and the key path that follows it.
    private mutating func path() throws(FormatError) -> MappingExpression {
        var found = try primary()
        var keys: [String] = []
        while true {
            if consume(".") {
                keys.append(try key())
            } else if consume("[") {
                found = .function("objectFrom:withIndex:", [Self.applying(keys, to: found), try index()])
                keys = []
                try expect("]")
            } else {
                return Self.applying(keys, to: found)
            }
        }
    }

    private static func applying(_ keys: [String], to operand: MappingExpression) -> MappingExpression {
        guard !keys.isEmpty else { return operand }
        let path = keys.joined(separator: ".")
        if case .keyPath(let inner, let first) = operand { return .keyPath(of: inner, first + "." + path) }
        return .keyPath(of: operand, path)
    }

    private mutating func key() throws(FormatError) -> String {
        defer { advance() }
        switch token {
        case .word(let name), .escapedName(let name): return name
        case .pathOperator(let name): return "@" + name
        default: throw error("a key is missing")
        }
    }

    private mutating func index() throws(FormatError) -> MappingExpression {
        if consumeWord("FIRST") { return .constant(.string("FIRST")) }
        if consumeWord("LAST") { return .constant(.string("LAST")) }
        if consumeWord("SIZE") { return .constant(.string("SIZE")) }
        return try expression()
    }

    // MARK: Primary expressions

    private mutating func primary() throws(FormatError) -> MappingExpression {
        let token = token
        switch token {
        case .integer(let value):
            advance()
            return .constant(.integer(value))
        case .real(let value):
            advance()
            return .constant(.real(value))
        case .text(let text):
            advance()
            return .constant(.string(text))
        case .variable(let name):
            advance()
            return .variable(name)
        case .escapedName(let name):
            advance()
            return .keyPath(of: .evaluatedObject, name)
        case .pathOperator(let name):
            advance()
            return .keyPath(of: .evaluatedObject, "@" + name)
        case .sign("("):
            advance()
            let found = try expression()
            try expect(")")
            return found
        case .sign("{"):
            advance()
            return .aggregate(try list(until: "}"))
        case .word(let word):
            advance()
            return self.token == .sign("(") ? try call(word) : Self.name(word)
        case .sign, .end: throw error("a value is missing")
        }
    }

    private static func name(_ word: String) -> MappingExpression {
        switch word.uppercased() {
        case "SELF": .evaluatedObject
        case "YES", "TRUE": .constant(.boolean(true))
        case "NO", "FALSE": .constant(.boolean(false))
        case "NIL", "NULL": .constant(nil)
        default: .keyPath(of: .evaluatedObject, word)
        }
    }

    private mutating func list(until end: String) throws(FormatError) -> [MappingExpression] {
        guard !consume(end) else { return [] }
        var found: [MappingExpression] = []
        repeat { found.append(try expression()) } while consume(",")
        try expect(end)
        return found
    }

    private mutating func call(_ word: String) throws(FormatError) -> MappingExpression {
        try expect("(")
        switch word.uppercased() {
        case "FUNCTION": return try message()
        case "CAST": return Self.cast(try arguments(2, of: word))
        case "TERNARY": return try conditional()
        case "SUBQUERY": return try subquery()
        case "FETCH":
            let found = try arguments(3, of: word)
            return .fetch(found[0], in: found[1], isCountOnly: found[2] == .constant(.boolean(true)))
        default:
            let found = try list(until: ")")
            let selector = word.contains(":") || found.isEmpty ? word : word + ":"
            return .function(selector, found)
        }
    }

    private mutating func arguments(_ count: Int, of word: String) throws(FormatError) -> [MappingExpression] {
        let found = try list(until: ")")
        guard found.count == count else { throw error("\(word.uppercased()) takes \(count) arguments") }
        return found
    }

    /// Returns the constant for a cast that is the language's only notation for it, else the cast itself.
    private static func cast(_ arguments: [MappingExpression]) -> MappingExpression {
        let plain = MappingExpression.function("castObject:toType:", arguments)
        guard case .constant(let value?) = arguments[0], case .constant(.string(let type)?) = arguments[1] else {
            return plain
        }
        switch (type, value) {
        case ("NSDate", .real(let seconds)): return .constant(.date(seconds))
        case ("NSDate", .integer(let seconds)): return .constant(.date(Double(seconds)))
        case ("NSDecimalNumber", .string(let digits)) where Double(digits) != nil: return .constant(.decimal(digits))
        case ("NSUUID", .string(let text)): return UUID(uuidString: text).map { .constant(.uuid($0)) } ?? plain
        case ("NSData", .string(let text)): return [UInt8](hexadecimal: text).map { .constant(.data($0)) } ?? plain
        default: return plain
        }
    }

    private mutating func message() throws(FormatError) -> MappingExpression {
        let found = try list(until: ")")
        guard found.count >= 2, case .constant(.string(let selector)?) = found[1] else {
            throw error("FUNCTION takes a receiver, a selector in quotation marks, and its arguments")
        }
        let arguments = Array(found.dropFirst(2))
        // The message is equivalent to a key path.
        if ["valueForKey:", "valueForKeyPath:"].contains(selector), arguments.count == 1,
            case .constant(.string(let path)?) = arguments[0]
        {
            return Self.applying([path], to: found[0])
        }
        return .message(to: found[0], selector: selector, arguments)
    }

    private mutating func conditional() throws(FormatError) -> MappingExpression {
        let condition = try predicate()
        try expect(",")
        let first = try expression()
        try expect(",")
        let second = try expression()
        try expect(")")
        return .conditional(condition, first, second)
    }

    private mutating func subquery() throws(FormatError) -> MappingExpression {
        let collection = try expression()
        try expect(",")
        guard case .variable(let name) = token else { throw error("SUBQUERY's variable is missing, such as $x") }
        advance()
        try expect(",")
        let condition = try predicate()
        try expect(")")
        return .subquery(collection, variable: name, condition)
    }
}
