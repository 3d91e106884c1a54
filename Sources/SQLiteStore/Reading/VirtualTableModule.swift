/// The module of a virtual table, read from the statement that declares it.
///
/// SQLite keeps that statement as it was given, from the table's name on: `CREATE VIRTUAL TABLE "a name" USING fts5(…)`
/// (https://sqlite.org/schematab.html).
enum VirtualTableModule {
    /// The module's name in lower case; nil where the statement declares no virtual table that can be understood.
    static func name(declaredIn sql: String) -> String? {
        var words = DeclarationWords(sql)
        guard words.next()?.isKeyword("create") == true, words.next()?.isKeyword("virtual") == true,
            words.next()?.isKeyword("table") == true, words.next() != nil,
            words.next()?.isKeyword("using") == true
        else { return nil }
        return words.next().map { $0.text.lowercased() }
    }
}

/// The words of a declaration, one by one: names in any of SQLite's four quotes, and what stands unquoted between them.
private struct DeclarationWords {
    struct Word {
        let text: String
        let isQuoted: Bool

        func isKeyword(_ keyword: String) -> Bool { !isQuoted && text.lowercased() == keyword }
    }

    private var rest: ArraySlice<UInt8>

    init(_ sql: String) { rest = Array(sql.utf8)[...] }

    /// Nil at the end, and where something stands that is no word, such as a parenthesis.
    mutating func next() -> Word? {
        skipBlanks()
        guard let first = rest.first else { return nil }
        switch first {
        case UInt8(ascii: "\""), UInt8(ascii: "'"), UInt8(ascii: "`"): return quoted(by: first, doubled: true)
        case UInt8(ascii: "["): return quoted(by: UInt8(ascii: "]"), doubled: false)
        default: break
        }
        let word = rest.prefix(while: Self.isPartOfWord)
        guard !word.isEmpty else { return nil }
        rest = rest.dropFirst(word.count)
        return Word(text: String(decoding: word, as: UTF8.self), isQuoted: false)
    }

    private mutating func quoted(by quote: UInt8, doubled: Bool) -> Word? {
        rest = rest.dropFirst()
        var text: [UInt8] = []
        while let byte = rest.popFirst() {
            guard byte == quote else {
                text.append(byte)
                continue
            }
            guard doubled, rest.first == quote else {
                return Word(text: String(decoding: text, as: UTF8.self), isQuoted: true)
            }
            text.append(quote)
            rest = rest.dropFirst()
        }
        return nil
    }

    /// Whitespace and comments (https://sqlite.org/lang_comment.html).
    private mutating func skipBlanks() {
        while let first = rest.first {
            if rest.starts(with: "--".utf8) {
                rest = rest.drop { $0 != UInt8(ascii: "\n") }
            } else if rest.starts(with: "/*".utf8) {
                rest = rest.dropFirst(2)
                while !rest.isEmpty, !rest.starts(with: "*/".utf8) { rest = rest.dropFirst() }
                rest = rest.dropFirst(2)
            } else if [0x20, 0x09, 0x0A, 0x0C, 0x0D].contains(first) {
                rest = rest.dropFirst()
            } else {
                return
            }
        }
    }

    /// As SQLite's tokenizer has it: letters, digits, `_`, `$`, and all that isn't ASCII.
    private static func isPartOfWord(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "$"), 0x80...0xFF:
            true
        default: false
        }
    }
}
