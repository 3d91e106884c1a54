/// Splits a format string into words, numbers, texts and signs.
struct FormatLexer {
    enum Token: Equatable {
        /// A name or a keyword. A function's selector includes its colons, such as `add:to:`.
        case word(String)
        /// `#name`, which is a name even if it is a keyword.
        case escapedName(String)
        /// A variable's name without the `$`.
        case variable(String)
        /// An operator's name without the `@`.
        case pathOperator(String)
        case integer(Int64)
        case real(Double)
        case text(String)
        case sign(String)
        case end
    }

    private static let maximumLength = 100_000
    private static let signs = [
        "**", "==", "!=", "<>", "<=", "=<", ">=", "=>", "&&", "||", ":=", "=", "<", ">", "!", "+", "-", "*", "/", "(",
        ")", "{", "}", "[", "]", ",", ".",
    ]

    private let characters: [Character]
    private var position = 0

    /// Returns the tokens with their offsets in characters, ending with `end`. Throws `FormatError`.
    static func tokens(_ format: String) throws(FormatError) -> [(token: Token, offset: Int)] {
        guard format.utf8.count <= maximumLength else {
            throw FormatError("the format has more than \(maximumLength) bytes", at: 0)
        }
        var lexer = FormatLexer(characters: Array(format))
        var found: [(Token, Int)] = []
        repeat {
            lexer.skipSpace()
            let start = lexer.position
            found.append((try lexer.next(), start))
        } while found.last.map { $0.0 != .end } ?? false
        return found
    }

    private init(characters: [Character]) { self.characters = characters }

    private var current: Character? { position < characters.count ? characters[position] : nil }

    private mutating func skipSpace() {
        while let character = current, character.isWhitespace { position += 1 }
    }

    private mutating func next() throws(FormatError) -> Token {
        guard let first = current else { return .end }
        switch first {
        case "\"", "'": return .text(try text(quote: first))
        case "$":
            position += 1
            return .variable(try name("a variable's name"))
        case "@":
            position += 1
            return .pathOperator(try name("an operator's name"))
        case "#":
            position += 1
            return .escapedName(try name("a name"))
        case "%": throw FormatError("“%” is not supported, since there are no arguments", at: position)
        default: break
        }
        if first.isNumberCharacter { return try number() }
        if first.isNameCharacter { return .word(word()) }
        for sign in Self.signs where characters[position...].starts(with: sign) {
            position += sign.count
            return .sign(sign)
        }
        throw FormatError("unexpected “\(first)”", at: position)
    }

    private mutating func name(_ subject: String) throws(FormatError) -> String {
        guard let first = current, first.isNameCharacter, !first.isNumberCharacter else {
            throw FormatError("\(subject) is missing", at: position)
        }
        return plainName()
    }

    private mutating func plainName() -> String {
        let start = position
        while let character = current, character.isNameCharacter { position += 1 }
        return String(characters[start..<position])
    }

    /// Reads a word. A colon belongs to it only in a function's selector.
    private mutating func word() -> String {
        var found = plainName()
        let end = position
        var selector = found
        while current == ":", position + 1 >= characters.count || characters[position + 1] != "=" {
            position += 1
            selector += ":" + plainName()
        }
        if selector.hasSuffix(":"), current == "(" { found = selector } else { position = end }
        return found
    }

    private mutating func number() throws(FormatError) -> Token {
        let start = position
        if current == "0", position + 1 < characters.count, let kind = Self.radix(characters[position + 1]) {
            position += 2
            guard let value = Int64(plainName(), radix: kind) else {
                throw FormatError("this is not a number", at: start)
            }
            return .integer(value)
        }
        skipDigits()
        if current == ".", position + 1 < characters.count, characters[position + 1].isNumberCharacter {
            position += 1
            skipDigits()
        }
        skipExponent()
        let digits = String(characters[start..<position])
        if let value = Int64(digits) { return .integer(value) }
        guard let value = Double(digits), current?.isNameCharacter != true else {
            throw FormatError("this is not a number", at: start)
        }
        return .real(value)
    }

    private mutating func skipExponent() {
        guard current == "e" || current == "E" else { return }
        var next = position + 1
        if next < characters.count, ["+", "-"].contains(characters[next]) { next += 1 }
        guard next < characters.count, characters[next].isNumberCharacter else { return }
        position = next
        skipDigits()
    }

    private mutating func skipDigits() {
        while let character = current, character.isNumberCharacter { position += 1 }
    }

    private static func radix(_ letter: Character) -> Int? {
        switch letter {
        case "x", "X": 16
        case "o": 8
        case "b": 2
        default: nil
        }
    }

    private mutating func text(quote: Character) throws(FormatError) -> String {
        let start = position
        position += 1
        var found = ""
        while let character = current {
            position += 1
            if character == quote { return found }
            guard character == "\\" else {
                found.append(character)
                continue
            }
            guard let escaped = current else { break }
            position += 1
            switch escaped {
            case "n": found.append("\n")
            case "t": found.append("\t")
            case "r": found.append("\r")
            default: found.append(escaped)
            }
        }
        throw FormatError("the text has no closing quotation mark", at: start)
    }
}

extension Character {
    fileprivate var isNumberCharacter: Bool { ("0"..."9").contains(self) }
    fileprivate var isNameCharacter: Bool { isLetter || isNumberCharacter || self == "_" }
}
