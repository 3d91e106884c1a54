/// The event that fires a trigger (https://sqlite.org/lang_createtrigger.html).
struct TriggerEvent: Equatable {
    enum Operation: String {
        case insert = "INSERT"
        case delete = "DELETE"
        case update = "UPDATE"
    }

    let operation: Operation
    /// The columns of `UPDATE OF`; empty for all columns.
    let columns: [String]

    /// Returns nil if the text isn't a trigger's statement in the form in which SQLite stores it.
    init?(creation: String) {
        let tokens = SQLTokens(creation)
        // CREATE TRIGGER name, then an optional BEFORE, AFTER or INSTEAD OF.
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

/// The tokens of an SQL statement, without comments and white space (https://sqlite.org/draft/tokenreq.html). Written
/// by hand, since SQLite's own tokenizer isn't public.
struct SQLTokens: Sequence, IteratorProtocol {
    struct Token: Equatable {
        /// The token's text, without quotes.
        let text: String
        let isWord: Bool

        /// The text in upper case; empty for a quoted name, which is never a keyword.
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
            } else if first.isWordCharacter {
                let word = rest.prefix { $0.isWordCharacter }
                rest = rest.dropFirst(word.count)
                return Token(text: String(word), isWord: true)
            } else {
                return Token(text: String(rest.removeFirst()), isWord: false)
            }
        }
        return nil
    }

    /// Reads up to the closing quote; a doubled quote stands for the quote itself.
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
    fileprivate var isWordCharacter: Bool { isLetter || isNumber || self == "_" || self == "$" }
}
