import SQLiteFormat

/// The virtual tables that show another table's content. They have no pages of their own.
struct ExternalContentTables {
    private struct Table {
        let name: ExactName
        let module: String
        /// The lowercased SQL without quotes, so that names end where it ends too.
        let sql: String
    }

    private let tables: [Table]

    init(_ entries: [SchemaEntry]) {
        tables = entries.compactMap { entry in
            guard entry.type == "table", entry.root == 0, !entry.sql.isEmpty else { return nil }
            let sql = entry.sql.lowercased()
            return Table(name: ExactName(entry.name), module: Self.module(sql), sql: Self.unquoted(sql))
        }
    }

    /// Returns the virtual tables that change when `table` does.
    func dependents(of table: ExactName) -> Set<ExactName> {
        guard !tables.isEmpty else { return [] }
        var found: Set<ExactName> = []
        var next = [table]
        while let name = next.popLast() {
            for virtual in tables where virtual.name != table && !found.contains(virtual.name) {
                guard Self.shows(virtual, name.text.lowercased()) else { continue }
                found.insert(virtual.name)
                next.append(virtual.name)
            }
        }
        return found
    }

    /// The shadow tables of SQLite's own modules. For any other module, each table with the virtual table's name as a
    /// prefix counts.
    private static let shadows: [String: Set<String>] = [
        "fts3": ["content", "segments", "segdir", "docsize", "stat"],
        "fts4": ["content", "segments", "segdir", "docsize", "stat"],
        "fts5": ["data", "idx", "content", "docsize", "config"],
        "rtree": ["node", "rowid", "parent"], "rtree_i32": ["node", "rowid", "parent"],
        "geopoly": ["node", "rowid", "parent"],
    ]

    private static func shows(_ virtual: Table, _ table: String) -> Bool {
        let prefix = virtual.name.text.lowercased() + "_"
        let known = shadows[virtual.module]
        if table.hasPrefix(prefix), known?.contains(String(table.dropFirst(prefix.count))) != false { return true }
        switch virtual.module {
        case "rtree", "rtree_i32", "geopoly": return false
        case "fts3", "fts4", "fts5":
            // An external content table (https://sqlite.org/fts5.html, §4.4.3).
            guard let option = contentOption(virtual.sql) else { return false }
            return mentions(option, table)
        // `fts5vocab` or an unknown module: its arguments may name a table.
        default: return mentions(virtual.sql[...], table)
        }
    }

    private static func module(_ sql: String) -> String {
        let words = sql.split { $0.isWhitespace || $0 == "(" || $0 == "\"" || $0 == "]" || $0 == "'" || $0 == "`" }
        // A table may itself be named "using". The module counts as unknown then.
        guard let using = words.firstIndex(of: "using"), words.lastIndex(of: "using") == using,
            using + 1 < words.count
        else { return "" }
        return String(words[using + 1])
    }

    /// Returns the text after `content =`.
    private static func contentOption(_ sql: String) -> Substring? {
        var remaining = sql[...]
        while let range = remaining.firstRange(of: "content") {
            let value = remaining[range.upperBound...].drop { $0.isWhitespace }
            if value.first == "=" { return value }
            remaining = remaining[range.upperBound...]
        }
        return nil
    }

    /// Removes the four kinds of quotes, which may be doubled within a name.
    private static func unquoted(_ text: String) -> String { text.filter { !"'\"`[]".contains($0) } }

    private static func mentions(_ text: Substring, _ quoted: String) -> Bool {
        let name = unquoted(quoted)
        var remaining = text
        while let range = remaining.firstRange(of: name) {
            let before = range.lowerBound > text.startIndex ? text[text.index(before: range.lowerBound)] : " "
            let after = range.upperBound < text.endIndex ? text[range.upperBound] : " "
            if !isPartOfName(before), !isPartOfName(after) { return true }
            remaining = remaining[remaining.index(after: range.lowerBound)...]
        }
        return false
    }

    private static func isPartOfName(_ character: Character) -> Bool {
        character.isLetter || character.isNumber || character == "_" || character == "$"
    }
}
