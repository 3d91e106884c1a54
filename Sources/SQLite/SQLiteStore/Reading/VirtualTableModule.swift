/// The module of a virtual table, parsed from the statement that declares it.
///
/// SQLite stores that statement as it was given, from the table's name on: `CREATE VIRTUAL TABLE "a name" USING
/// fts5(…)` (https://sqlite.org/schematab.html).
package enum VirtualTableModule {
    /// Returns the module's name in lower case, or nil if the statement declares no virtual table or can't be parsed.
    package static func name(declaredIn sql: String) -> String? { parse(sql)?.name }

    /// Returns the arguments between the module's parentheses, without the white space around each; empty if there are
    /// none.
    package static func arguments(declaredIn sql: String) -> [String] {
        guard var rest = parse(sql)?.rest.drop(while: { [0x20, 0x09, 0x0A, 0x0D].contains($0) }),
            rest.popFirst() == UInt8(ascii: "(")
        else { return [] }
        var arguments: [[UInt8]] = [[]]
        var (depth, quote) = (0, UInt8(0))
        for byte in rest {
            if quote != 0 {
                if byte == quote { quote = 0 }
            } else if "\"'`[".utf8.contains(byte) {
                quote = byte == UInt8(ascii: "[") ? UInt8(ascii: "]") : byte
            } else if byte == UInt8(ascii: "(") {
                depth += 1
            } else if byte == UInt8(ascii: ")") {
                depth -= 1
                if depth < 0 { break }
            } else if byte == UInt8(ascii: ","), depth == 0 {
                arguments.append([])
                continue
            }
            arguments[arguments.count - 1].append(byte)
        }
        return arguments.map { argument in
            let isBlank = { (byte: UInt8) in byte <= 0x20 }
            let start = argument.drop(while: isBlank)
            let blanks = start.reversed().prefix(while: isBlank).count
            return String(decoding: start.dropLast(blanks), as: UTF8.self)
        }
    }

    /// Returns the value of an option among a module's arguments, without its quotation marks; nil if it isn't set.
    package static func value(of option: String, in arguments: [String]) -> String? {
        for argument in arguments {
            guard let sign = argument.firstIndex(of: "="),
                argument[..<sign].filter({ !$0.isWhitespace }).lowercased() == option
            else { continue }
            let value = argument[argument.index(after: sign)...].drop(while: \.isWhitespace)
            guard let first = value.first, "\"'`[".contains(first) else { return String(value) }
            let quote = first == "[" ? "]" : String(first)
            return String(value.dropFirst().dropLast()).replacing(quote + quote, with: quote)
        }
        return nil
    }

    private static func parse(_ sql: String) -> (name: String, rest: ArraySlice<UInt8>)? {
        var words = DeclarationWords(sql)
        guard words.next()?.isKeyword("create") == true, words.next()?.isKeyword("virtual") == true,
            words.next()?.isKeyword("table") == true, words.next() != nil,
            words.next()?.isKeyword("using") == true
        else { return nil }
        guard let name = words.next() else { return nil }
        return (name.text.lowercased(), words.remaining)
    }
}

/// The words of a declaration: names in any of SQLite's four quotes, and unquoted words between them.
private struct DeclarationWords {
    struct Word {
        let text: String
        let isQuoted: Bool

        func isKeyword(_ keyword: String) -> Bool { !isQuoted && text.lowercased() == keyword }
    }

    private(set) var remaining: ArraySlice<UInt8>

    init(_ sql: String) { remaining = Array(sql.utf8)[...] }

    /// Returns the next word, or nil at the end or before anything that is no word, such as a parenthesis.
    mutating func next() -> Word? {
        skipBlanks()
        guard let first = remaining.first else { return nil }
        switch first {
        case UInt8(ascii: "\""), UInt8(ascii: "'"), UInt8(ascii: "`"): return quoted(by: first, doubled: true)
        case UInt8(ascii: "["): return quoted(by: UInt8(ascii: "]"), doubled: false)
        default: break
        }
        let word = remaining.prefix(while: Self.isPartOfWord)
        guard !word.isEmpty else { return nil }
        remaining = remaining.dropFirst(word.count)
        return Word(text: String(decoding: word, as: UTF8.self), isQuoted: false)
    }

    private mutating func quoted(by quote: UInt8, doubled: Bool) -> Word? {
        remaining = remaining.dropFirst()
        var text: [UInt8] = []
        while let byte = remaining.popFirst() {
            guard byte == quote else {
                text.append(byte)
                continue
            }
            guard doubled, remaining.first == quote else {
                return Word(text: String(decoding: text, as: UTF8.self), isQuoted: true)
            }
            text.append(quote)
            remaining = remaining.dropFirst()
        }
        return nil
    }

    /// Skips whitespace and comments (https://sqlite.org/lang_comment.html).
    private mutating func skipBlanks() {
        while let first = remaining.first {
            if remaining.starts(with: "--".utf8) {
                remaining = remaining.drop { $0 != UInt8(ascii: "\n") }
            } else if remaining.starts(with: "/*".utf8) {
                remaining = remaining.dropFirst(2)
                while !remaining.isEmpty, !remaining.starts(with: "*/".utf8) { remaining = remaining.dropFirst() }
                remaining = remaining.dropFirst(2)
            } else if [0x20, 0x09, 0x0A, 0x0C, 0x0D].contains(first) {
                remaining = remaining.dropFirst()
            } else {
                return
            }
        }
    }

    /// True for the characters of an identifier in SQLite's tokenizer: letters, digits, `_`, `$`, and all non-ASCII
    /// bytes.
    private static func isPartOfWord(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "$"), 0x80...0xFF:
            true
        default: false
        }
    }
}
