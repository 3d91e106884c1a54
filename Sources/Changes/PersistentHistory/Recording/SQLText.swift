import SQLiteStore

/// Parses parts of the statements in `sqlite_schema`: SQLite's pragmas don't report an index's expressions. SQLite has
/// no public parser, so this tokenizer is hand-written.
enum SQLText {
    private struct Token {
        let text: Substring
        let isWord: Bool
    }

    /// Returns the expressions of a CREATE INDEX statement, and the text after its WHERE.
    static func indexParts(_ sql: String) -> (terms: [String], condition: String?) {
        let (terms, rest) = list(tokens(of: sql)[...])
        let condition = rest.firstIndex { $0.isWord && $0.text.uppercased() == "WHERE" }
        return (
            terms.map { joined(withoutOrder($0)) },
            condition.map { joined(Array(rest[rest.index(after: $0)...])) }
        )
    }

    /// Returns the expressions of the generated columns of a CREATE TABLE statement, by `DatabaseSchema.key(of:)`
    /// of the name.
    static func generatedColumns(_ sql: String) -> [String: String] {
        var found: [String: String] = [:]
        for definition in list(tokens(of: sql)[...]).terms {
            guard let first = definition.first else { continue }
            var depth = 0
            for (position, token) in definition.enumerated().dropFirst() {
                if token.text == "(" { depth += 1 }
                if token.text == ")" { depth -= 1 }
                guard depth == 0, token.isWord, token.text.uppercased() == "AS" else { continue }
                // One expression in parentheses, which may contain commas.
                let parts = list(definition[(position + 1)...]).terms
                found[DatabaseSchema.key(of: unquoted(first))] = parts.map(joined).joined(separator: ", ")
                break
            }
        }
        return found
    }

    /// Returns the first column in the OF clause of a CREATE TRIGGER statement; nil if it has none.
    static func assignedColumn(ofTrigger sql: String) -> String? {
        let tokens = tokens(of: sql)
        let clause = tokens.firstIndex { $0.isWord && $0.text.uppercased() == "OF" }
        return clause.flatMap { tokens.dropFirst($0 + 1).first.map(unquoted) }
    }

    /// Returns whether an expression may depend on the affinity or collation of its operands.
    static func compares(_ expression: String) -> Bool {
        let words: Set = [
            "=", "==", "<>", "!=", "<", "<=", ">", ">=", "IN", "BETWEEN", "IS", "CASE", "MIN", "MAX", "NULLIF", "LIKE",
            "GLOB", "MATCH", "REGEXP", "COLLATE",
        ]
        return tokens(of: expression).contains { words.contains($0.text.uppercased()) }
    }

    /// Returns whether an expression may fail for some values, such as text that isn't JSON or a number that is too
    /// large.
    static func mayFail(_ expression: String) -> Bool {
        tokens(of: expression).contains { token in
            let text = token.text.uppercased()
            return text.hasPrefix("JSON") || ["->", "->>", "ABS"].contains(text)
        }
    }

    /// Returns the content of the first parentheses, split at its commas, and the tokens that follow.
    private static func list(_ tokens: ArraySlice<Token>) -> (terms: [[Token]], rest: ArraySlice<Token>) {
        guard let open = tokens.firstIndex(where: { $0.text == "(" }) else { return ([], []) }
        var terms: [[Token]] = [[]]
        var depth = 0
        var position = open
        while position < tokens.endIndex {
            let text = tokens[position].text
            if text == "(" { depth += 1 }
            if text == ")" { depth -= 1 }
            if depth == 0 { break }
            if depth == 1, text == "," {
                terms.append([])
            } else if position > open {
                terms[terms.count - 1].append(tokens[position])
            }
            position += 1
        }
        return (terms, tokens[min(position + 1, tokens.endIndex)...])
    }

    private static func unquoted(_ token: Token) -> String {
        guard !token.isWord, let first = token.text.first, "\"`['".contains(first) else { return String(token.text) }
        let quote = first == "[" ? "]" : String(first)
        return String(token.text.dropFirst().dropLast()).replacing(quote + quote, with: quote)
    }

    /// Returns the names in an expression without quotes, by `DatabaseSchema.key(of:)`, whatever they refer to.
    static func identifiers(_ sql: String) -> Set<String> {
        Set(
            tokens(of: sql).compactMap { token in
                let isName = token.isWord || "\"`[".contains(token.text.first ?? " ")
                return isName ? DatabaseSchema.key(of: unquoted(token)) : nil
            })
    }

    /// Returns an index term without a trailing ASC, DESC or COLLATE, which don't affect the value; pragma_index_xinfo
    /// reports the collation.
    private static func withoutOrder(_ term: [Token]) -> [Token] {
        var term = term
        if let last = term.last, last.isWord, ["ASC", "DESC"].contains(last.text.uppercased()) { term.removeLast() }
        if term.count > 2, term[term.count - 2].isWord, term[term.count - 2].text.uppercased() == "COLLATE" {
            term.removeLast(2)
        }
        return term
    }

    private static func joined(_ tokens: [Token]) -> String { tokens.map(\.text).joined(separator: " ") }

    /// Returns the tokens of a statement without comments and white space (https://sqlite.org/draft/tokenreq.html).
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
            var position = rest.index(after: rest.startIndex)
            while position < rest.endIndex {
                let next = rest.index(after: position)
                if rest[position] == end {
                    guard end != "]", next < rest.endIndex, rest[next] == end else {
                        return rest.distance(from: rest.startIndex, to: next)
                    }
                    position = rest.index(after: next)
                } else {
                    position = next
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
    /// True for characters of names and numbers, including the point of a fraction, so that a number stays one token.
    fileprivate var isWordCharacter: Bool { isLetter || isNumber || self == "_" || self == "$" || self == "." }
}
