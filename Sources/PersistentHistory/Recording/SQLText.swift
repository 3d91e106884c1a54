/// What has to be read of statements in `sqlite_schema`: SQLite's pragmas don't tell an index's expressions.
enum SQLText {
    private struct Token {
        let text: Substring
        let isWord: Bool
    }

    /// The expressions of a CREATE INDEX statement, and what stands behind its WHERE.
    static func indexParts(_ sql: String) -> (terms: [String], condition: String?) {
        let (terms, rest) = list(tokens(of: sql)[...])
        let condition = rest.firstIndex { $0.isWord && $0.text.uppercased() == "WHERE" }
        return (
            terms.map { written(withoutOrder($0)) },
            condition.map { written(Array(rest[rest.index(after: $0)...])) }
        )
    }

    /// The expressions of the generated columns of a CREATE TABLE statement, by name in lower case.
    static func generatedColumns(_ sql: String) -> [String: String] {
        var found: [String: String] = [:]
        for definition in list(tokens(of: sql)[...]).terms {
            guard let first = definition.first else { continue }
            var depth = 0
            for (place, token) in definition.enumerated().dropFirst() {
                if token.text == "(" { depth += 1 }
                if token.text == ")" { depth -= 1 }
                guard depth == 0, token.isWord, token.text.uppercased() == "AS" else { continue }
                // One expression in parentheses, which may have commas of its own.
                let parts = list(definition[(place + 1)...]).terms
                found[unquoted(first).lowercased()] = parts.map(written).joined(separator: ", ")
                break
            }
        }
        return found
    }

    /// Whether an expression may depend on the affinity or the collation of what it is about.
    static func compares(_ expression: String) -> Bool {
        let words: Set = [
            "=", "==", "<>", "!=", "<", "<=", ">", ">=", "IN", "BETWEEN", "IS", "CASE", "MIN", "MAX", "NULLIF", "LIKE",
            "GLOB", "MATCH", "REGEXP", "COLLATE",
        ]
        return tokens(of: expression).contains { words.contains($0.text.uppercased()) }
    }

    /// Whether an expression may be an error for some values: text that is no JSON, a number that is too large.
    static func mayFail(_ expression: String) -> Bool {
        tokens(of: expression).contains { token in
            let text = token.text.uppercased()
            return text.hasPrefix("JSON") || ["->", "->>", "ABS"].contains(text)
        }
    }

    /// What stands between the first parentheses, taken apart at its commas, and what follows.
    private static func list(_ tokens: ArraySlice<Token>) -> (terms: [[Token]], rest: ArraySlice<Token>) {
        guard let open = tokens.firstIndex(where: { $0.text == "(" }) else { return ([], []) }
        var terms: [[Token]] = [[]]
        var depth = 0
        var place = open
        while place < tokens.endIndex {
            let text = tokens[place].text
            if text == "(" { depth += 1 }
            if text == ")" { depth -= 1 }
            if depth == 0 { break }
            if depth == 1, text == "," {
                terms.append([])
            } else if place > open {
                terms[terms.count - 1].append(tokens[place])
            }
            place += 1
        }
        return (terms, tokens[min(place + 1, tokens.endIndex)...])
    }

    private static func unquoted(_ token: Token) -> String {
        guard !token.isWord, let first = token.text.first, "\"`['".contains(first) else { return String(token.text) }
        let quote = first == "[" ? "]" : String(first)
        return String(token.text.dropFirst().dropLast()).replacing(quote + quote, with: quote)
    }

    /// The names in an expression in lower case, whatever they mean; quotes taken off.
    static func identifiers(_ sql: String) -> Set<String> {
        Set(
            tokens(of: sql).compactMap { token in
                let isName = token.isWord || "\"`[".contains(token.text.first ?? " ")
                return isName ? unquoted(token).lowercased() : nil
            })
    }

    /// ASC, DESC and COLLATE at the end say nothing of the value; pragma_index_xinfo tells the collation.
    private static func withoutOrder(_ term: [Token]) -> [Token] {
        var term = term
        if let last = term.last, last.isWord, ["ASC", "DESC"].contains(last.text.uppercased()) { term.removeLast() }
        if term.count > 2, term[term.count - 2].isWord, term[term.count - 2].text.uppercased() == "COLLATE" {
            term.removeLast(2)
        }
        return term
    }

    private static func written(_ tokens: [Token]) -> String { tokens.map(\.text).joined(separator: " ") }

    /// Comments and white space are left out (https://sqlite.org/draft/tokenreq.html).
    private static func tokens(of sql: String) -> [Token] {
        var tokens: [Token] = []
        var rest = sql[...]
        while let first = rest.first {
            if first.isWhitespace {
                rest = rest.dropFirst()
            } else if rest.hasPrefix("--") {
                rest = rest.drop { !$0.isNewline }
            } else if rest.hasPrefix("/*") {
                rest = rest.firstRange(of: "*/").map { rest[$0.upperBound...] } ?? ""
            } else {
                let length = first.isWordCharacter ? rest.prefix { $0.isWordCharacter }.count : tokenLength(rest, first)
                tokens.append(Token(text: rest.prefix(length), isWord: first.isWordCharacter))
                rest = rest.dropFirst(length)
            }
        }
        return tokens
    }

    private static func tokenLength(_ rest: Substring, _ first: Character) -> Int {
        if "'\"`[".contains(first) {
            let end: Character = first == "[" ? "]" : first
            var place = rest.index(after: rest.startIndex)
            while place < rest.endIndex {
                let next = rest.index(after: place)
                if rest[place] == end {
                    guard end != "]", next < rest.endIndex, rest[next] == end else {
                        return rest.distance(from: rest.startIndex, to: next)
                    }
                    place = rest.index(after: next)
                } else {
                    place = next
                }
            }
            return rest.count
        }
        let pairs = ["||", "<=", ">=", "<>", "!=", "==", "<<", ">>", "->"]
        if rest.hasPrefix("->>") { return 3 }
        return pairs.contains { rest.hasPrefix($0) } ? 2 : 1
    }
}

extension Character {
    /// Numbers with a fraction too: what belongs together must not be taken apart.
    fileprivate var isWordCharacter: Bool { isLetter || isNumber || self == "_" || self == "$" || self == "." }
}
