import SQLiteFormat

/// Which virtual tables show what another table holds. They have no pages of their own.
struct VirtualTables {
    private struct Table {
        let name: String
        let module: String
        /// Names end at its ends too.
        let sql: String
    }

    private let tables: [Table]

    init(_ entries: [SchemaEntry]) {
        tables = entries.compactMap { entry in
            guard entry.type == "table", entry.root == 0, !entry.sql.isEmpty else { return nil }
            let sql = entry.sql.lowercased()
            return Table(name: entry.name, module: Self.module(sql), sql: Self.unquoted(sql))
        }
    }

    /// Those that change when `table` does.
    func dependents(of table: String) -> Set<String> {
        guard !tables.isEmpty else { return [] }
        var found: Set<String> = []
        var next = [table]
        while let name = next.popLast() {
            for virtual in tables where virtual.name != table && !found.contains(virtual.name) {
                guard Self.shows(virtual, name.lowercased()) else { continue }
                found.insert(virtual.name)
                next.append(virtual.name)
            }
        }
        return found
    }

    /// The shadow tables of the modules that SQLite comes with; of any other one, each table with its name in front.
    private static let shadows: [String: Set<String>] = [
        "fts3": ["content", "segments", "segdir", "docsize", "stat"],
        "fts4": ["content", "segments", "segdir", "docsize", "stat"],
        "fts5": ["data", "idx", "content", "docsize", "config"],
        "rtree": ["node", "rowid", "parent"], "rtree_i32": ["node", "rowid", "parent"],
        "geopoly": ["node", "rowid", "parent"],
    ]

    private static func shows(_ virtual: Table, _ table: String) -> Bool {
        let prefix = virtual.name.lowercased() + "_"
        let known = shadows[virtual.module]
        if table.hasPrefix(prefix), known?.contains(String(table.dropFirst(prefix.count))) != false { return true }
        switch virtual.module {
        case "rtree", "rtree_i32", "geopoly": return false
        case "fts3", "fts4", "fts5":
            // An external content table (https://sqlite.org/fts5.html, §4.4.3).
            guard let option = contentOption(virtual.sql) else { return false }
            return mentions(option, table)
        // `fts5vocab`, or a module nobody here knows: what it is given may name a table.
        default: return mentions(virtual.sql[...], table)
        }
    }

    private static func module(_ sql: String) -> String {
        let words = sql.split { $0.isWhitespace || $0 == "(" || $0 == "\"" || $0 == "]" || $0 == "'" || $0 == "`" }
        // A table may be called "using", too: then nothing is taken for known.
        guard let using = words.firstIndex(of: "using"), words.lastIndex(of: "using") == using,
            using + 1 < words.count
        else { return "" }
        return String(words[using + 1])
    }

    /// From `content =` on.
    private static func contentOption(_ sql: String) -> Substring? {
        var rest = sql[...]
        while let range = rest.firstRange(of: "content") {
            let behind = rest[range.upperBound...].drop { $0.isWhitespace }
            if behind.first == "=" { return behind }
            rest = rest[range.upperBound...]
        }
        return nil
    }

    /// Quotes may be doubled within a name, and each of four kinds may stand around it.
    private static func unquoted(_ text: String) -> String { text.filter { !"'\"`[]".contains($0) } }

    private static func mentions(_ text: Substring, _ quoted: String) -> Bool {
        let name = unquoted(quoted)
        var rest = text
        while let range = rest.firstRange(of: name) {
            let before = range.lowerBound > text.startIndex ? text[text.index(before: range.lowerBound)] : " "
            let after = range.upperBound < text.endIndex ? text[range.upperBound] : " "
            if !isPartOfName(before), !isPartOfName(after) { return true }
            rest = rest[rest.index(after: range.lowerBound)...]
        }
        return false
    }

    private static func isPartOfName(_ character: Character) -> Bool {
        character.isLetter || character.isNumber || character == "_" || character == "$"
    }
}
