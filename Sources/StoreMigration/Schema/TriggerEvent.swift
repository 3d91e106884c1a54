/// What a trigger waits for (https://sqlite.org/lang_createtrigger.html).
struct TriggerEvent: Equatable {
    enum Operation: String {
        case insert = "INSERT"
        case delete = "DELETE"
        case update = "UPDATE"
    }

    let operation: Operation
    /// Those of `UPDATE OF`; none: all.
    let columns: [String]

    /// Nil for what isn't a trigger's statement, as SQLite keeps it.
    init?(creation: String) {
        let tokens = SQLTokens(creation)
        // CREATE TRIGGER name, then perhaps BEFORE, AFTER or INSTEAD OF.
        var rest = Array(tokens).dropFirst(3)
        while let token = rest.first, token.isWord, ["BEFORE", "AFTER", "INSTEAD", "OF"].contains(token.keyword) {
            rest.removeFirst()
        }
        guard let operation = rest.popFirst().flatMap({ Operation(rawValue: $0.keyword) }) else { return nil }
        self.operation = operation
        guard operation == .update, rest.first?.keyword == "OF" else {
            columns = []
            return
        }
        columns = rest.dropFirst().prefix { $0.keyword != "ON" }.filter { $0.text != "," }.map(\.text)
    }
}

/// The words, names and signs of a statement; comments and white space are left out
/// (https://sqlite.org/draft/tokenreq.html).
struct SQLTokens: Sequence, IteratorProtocol {
    struct Token: Equatable {
        /// Of a quoted name, what is quoted.
        let text: String
        let isWord: Bool

        /// Empty for a quoted name, which is never a keyword.
        var keyword: String { isWord ? text.uppercased() : "" }
    }

    private static let quotes: [Character: Character] = ["\"": "\"", "`": "`", "'": "'", "[": "]"]
    private var rest: Substring

    init(_ sql: String) { rest = sql[...] }

    mutating func next() -> Token? {
        while let first = rest.first {
            if first.isWhitespace {
                rest.removeFirst()
            } else if rest.hasPrefix("--") {
                rest = rest.drop { !$0.isNewline }
            } else if rest.hasPrefix("/*") {
                rest = rest.firstRange(of: "*/").map { rest[$0.upperBound...] } ?? ""
            } else if let end = Self.quotes[first] {
                return quoted(upTo: end)
            } else if first.isPartOfAWord {
                let word = rest.prefix { $0.isPartOfAWord }
                rest = rest.dropFirst(word.count)
                return Token(text: String(word), isWord: true)
            } else {
                return Token(text: String(rest.removeFirst()), isWord: false)
            }
        }
        return nil
    }

    /// A quote that is doubled stands for itself.
    private mutating func quoted(upTo end: Character) -> Token {
        rest.removeFirst()
        var text = ""
        while let character = rest.popFirst() {
            if character == end {
                guard end != "]", rest.first == end else { break }
                rest.removeFirst()
            }
            text.append(character)
        }
        return Token(text: text, isWord: false)
    }
}

extension Character {
    fileprivate var isPartOfAWord: Bool { isLetter || isNumber || self == "_" || self == "$" }
}
