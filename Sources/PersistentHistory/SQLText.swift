/// What has to be read of statements in `sqlite_schema`: SQLite's pragmas don't tell an index's expressions.
enum SQLText {
    private struct Token {
        let text: Substring
        let isWord: Bool
    }

    /// The expressions of a CREATE INDEX statement, and what stands behind its WHERE.
    static func indexParts(_ sql: String) -> (terms: [String], condition: String?) {
        let tokens = tokens(of: sql)
        guard let open = tokens.firstIndex(where: { $0.text == "(" }) else { return ([], nil) }
        var terms: [[Token]] = [[]]
        var depth = 0
        var place = open
        while place < tokens.count {
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
        let rest = tokens.dropFirst(place + 1)
        let condition = rest.firstIndex { $0.isWord && $0.text.uppercased() == "WHERE" }
        return (
            terms.map { written(withoutOrder($0)) },
            condition.map { written(Array(rest[rest.index(after: $0)...])) }
        )
    }

    /// The names in an expression in lower case, whatever they mean; quotes taken off.
    static func identifiers(_ sql: String) -> Set<String> {
        Set(
            tokens(of: sql).compactMap { token in
                if token.isWord { return token.text.lowercased() }
                guard let first = token.text.first, "\"`[".contains(first) else { return nil }
                let quote = first == "[" ? "]" : String(first)
                return token.text.dropFirst().dropLast().replacing(quote + quote, with: quote).lowercased()
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
