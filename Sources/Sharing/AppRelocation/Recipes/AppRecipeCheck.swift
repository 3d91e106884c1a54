import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage

/// The rows of a table that a recipe has counted.
package struct CheckedTable: Sendable, Equatable {
    package let check: AppRecipe.Check
    package let rows: Int64
}

extension AppRecipe {
    /// Looks at a directory as a move with this recipe would. Changes nothing. Throws `RelocationFailure` if the
    /// directory isn't the program's, and `SystemError`.
    package func report(on place: FilePath) throws -> (tables: [CheckedTable], notes: [String]) {
        let root = try Directory(resolving: place)
        let survey = try AppSurvey(root, .files)
        try check(survey, of: place)
        return (try count(in: root, at: place), notes(survey, isCopy: true))
    }

    /// Throws `RelocationFailure` if the directory isn't the program's, a key is missing, or a copy would leave out
    /// what the recipe itself counts as the program's content.
    func check(_ survey: AppSurvey, of source: FilePath) throws(RelocationFailure) {
        if let pattern = stores.first(where: { pattern in !survey.stores.contains(where: pattern.matches) }) {
            throw .app(
                .badData, "recipe", "\(PrintablePath(source)) has no SQLite store \(pattern.text), which \(name) has",
                "name the directory of \(about), or leave --recipe out")
        }
        if let pattern = keys.first(where: { pattern in !survey.files.contains(where: pattern.matches) }) {
            throw .app(
                .badData, "recipe",
                "\(PrintablePath(source)) has no \(pattern.text), without which the stores of \(name) can't be used",
                "put it there first, or leave --recipe out")
        }
        if let check = after.first(where: { !survey.files.contains($0.store) }) {
            throw .app(
                .badData, "recipe",
                "\(PrintablePath(source)) has no \(PrintablePath(check.store)), whose table \(check.table) is to be checked "
                    + "after the move", "put it there first, or leave --recipe out")
        }
        let lost = survey.files.first { isLeft($0) && isContent($0, survey) }
        if let lost = lost
            ?? survey.others.first(where: { isLeft($0) && (isContent($0, survey) || survey.isLinkToStore($0)) })
        {
            throw .app(
                .badData, "recipe", "\(PrintablePath(lost)) would be left out and removed, and is content of \(name)",
                "narrow the pattern under leave in the recipe")
        }
    }

    private func isLeft(_ file: FilePath) -> Bool { leave.contains { $0.matches(file) } }

    /// True for a store, a key, and what belongs to a store that is copied: its log or journal, which may hold the last
    /// commits, and its external data. A file with SQLite's header is a store whether the recipe names it or not, and
    /// one without may be encrypted, if it has a log.
    private func isContent(_ file: FilePath, _ survey: AppSurvey) -> Bool {
        if survey.stores.contains(file) || (stores + keys).contains(where: { $0.matches(file) }) { return true }
        if survey.logs.contains(file) { return true }
        let copied = survey.stores.filter { !isLeft($0) }
        if let database = file.databaseOfSideFile, copied.contains(database) { return true }
        return copied.contains { store in
            let support = store.lastComponent.flatMap(StoreName.existing)?.support
            return support.map { file.starts(with: store.removingLastComponent().appending($0)) } ?? false
        }
    }

    /// Returns sentences about the files that the recipe leaves out or doesn't know.
    func notes(_ survey: AppSurvey, isCopy: Bool) -> [String] {
        let left = isCopy ? (survey.files + survey.others).filter(isLeft) : []
        let unknown = survey.files.filter { !knows($0) }
        return [
            Self.note(leftOut: left),
            Self.list(
                unknown, "is unknown to the recipe, and moves along", "are unknown to the recipe, and move along"),
        ].compactMap { $0 }
    }

    /// Returns a sentence about files that a copy leaves out; nil if there are none.
    static func note(leftOut files: [FilePath]) -> String? {
        list(files, "is left out and removed: the program makes it again", "are left out and removed")
    }

    static func list(_ files: [FilePath], _ one: String, _ several: String) -> String? {
        let files = files.sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }
        guard let first = files.first else { return nil }
        guard files.count > 1 else { return "\(PrintablePath(first)) \(one)" }
        let names = files.prefix(5).map { "\(PrintablePath($0))" }.joined(separator: ", ")
        return "\(Counted(files.count, "file")) \(several): \(names)\(files.count > 5 ? " and others" : "")"
    }

    /// Throws `RelocationFailure` if a checked table of a directory in use isn't there. A store that is busy is checked
    /// once its programs have closed it.
    func checkTables(in root: Directory, at place: FilePath) throws {
        for check in after {
            do { _ = try count(check, in: root, at: place) } catch StoreError.busy {}
        }
    }

    /// Counts the rows of each checked table in a directory. Throws `RelocationFailure` for a store that doesn't open
    /// or has no such table; a store that isn't there has none.
    func count(in root: Directory, at place: FilePath) throws -> [CheckedTable] {
        try after.compactMap { try count($0, in: root, at: place) }
    }

    private func count(_ check: Check, in root: Directory, at place: FilePath) throws -> CheckedTable? {
        guard let last = check.store.lastComponent, let name = StoreName.existing(last),
            let directory = try? root.descendant(check.store.removingLastComponent()),
            try directory.status(last) != nil
        else { return nil }
        let location = StoreLocation(directory: directory, name: name)
        return try Self.counting(check, place) {
            try StoreReader.read(location) { try Self.rows(check, $0) }
        }
    }

    private struct MissingTable: Error {}

    /// Counts the rows of a table or view. That there is none is no `StoreError`: that would count as one of a store
    /// that its program has changed meanwhile.
    static func rows(_ check: Check, _ store: SQLiteConnection) throws -> CheckedTable {
        let sql = "SELECT 1 FROM sqlite_schema WHERE type IN ('table', 'view') AND name = ?1 COLLATE NOCASE"
        let isSchema = check.table.lowercased().hasPrefix("sqlite_")
        guard try isSchema || store.integer(sql, [.text(check.table)]) != nil else { throw MissingTable() }
        let rows = try store.integer("SELECT count(*) FROM main.\(check.table.sqlName)") ?? 0
        return CheckedTable(check: check, rows: rows)
    }

    static func counting<Result>(_ check: Check, _ place: FilePath, _ body: () throws -> Result) throws -> Result {
        func failure(_ reason: String) -> RelocationFailure {
            .app(
                .badData, "check", "table \(check.table) of \(PrintablePath(check.store)) can't be read: \(reason)",
                "see what it is: groupstore inspect \(place.pushing(check.store).shellWord)")
        }
        do {
            return try body()
        } catch is MissingTable {
            throw failure("no such table")
        } catch let error as StoreError {
            if case .busy = error { throw error }
            throw failure("\(error)")
        }
    }
}
