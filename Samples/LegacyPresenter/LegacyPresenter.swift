import Foundation
import GRDBSQLite
import GroupStore

/// A legacy program that uses SQLite's C interface at its own path, adapted to present its store: only the lines
/// between the two marks are new. It writes a row for each line that it reads, until the end of its input.
///
///     LegacyPresenter group.com.example.notes ~/.local/share/notes/Notes.sqlite
@main
struct LegacyPresenter {
    static func main() async throws {
        guard CommandLine.arguments.count == 3 else {
            say("usage: LegacyPresenter GROUP_ID LEGACY_STORE", to: .standardError)
            exit(64)
        }
        let legacy = URL(filePath: CommandLine.arguments[2])
        let program = OldProgram()

        // New: the program asks for the store's URL instead of assuming it, and closes the database on request.
        let container = try GroupContainer(identifier: CommandLine.arguments[1])
        let store = try SharedStore(legacy.lastPathComponent, in: container, legacy: legacy)
        let presentation = try await store.present(
            open: { try program.open($0.path) }, close: { program.close() })
        // End of the new lines.

        while let line = readLine() {
            let row = try program.insert(line)
            say("row \(row) \(presentation.url.path)")
        }
        try await presentation.end()
    }
}

/// The program as it was before, except for the lock that lets it close between two statements.
///
/// @unchecked: `lock` protects the database.
final class OldProgram: @unchecked Sendable {
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    /// Protected by `lock`. Nil while the database is closed for other programs; statements wait until it is open.
    private var database: OpaquePointer?
    private let lock = NSCondition()

    func open(_ path: String) throws {
        lock.lock()
        defer { lock.unlock() }
        var opened: OpaquePointer?
        guard sqlite3_open_v2(path, &opened, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nil) == SQLITE_OK else {
            defer { sqlite3_close(opened) }
            throw Failure(description: String(cString: sqlite3_errmsg(opened)))
        }
        database = opened
        try execute("PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY, title TEXT)")
        lock.broadcast()
    }

    func close() {
        lock.lock()
        defer { lock.unlock() }
        sqlite3_close(database)
        database = nil
    }

    func insert(_ title: String) throws -> Int64 {
        lock.lock()
        defer { lock.unlock() }
        while database == nil { lock.wait() }
        var statement: OpaquePointer?
        defer { sqlite3_finalize(statement) }
        sqlite3_prepare_v2(database, "INSERT INTO note (title) VALUES (?)", -1, &statement, nil)
        let result = title.withCString { text in
            sqlite3_bind_text(statement, 1, text, -1, nil)
            return sqlite3_step(statement)
        }
        guard result == SQLITE_DONE else { throw Failure(description: String(cString: sqlite3_errmsg(database))) }
        return sqlite3_last_insert_rowid(database)
    }

    private func execute(_ sql: String) throws {
        guard sqlite3_exec(database, sql, nil, nil, nil) == SQLITE_OK else {
            throw Failure(description: String(cString: sqlite3_errmsg(database)))
        }
    }
}

/// Writes a line at once: `print` buffers its output unless it goes to a terminal.
private func say(_ line: String, to file: FileHandle = .standardOutput) { file.write(Data((line + "\n").utf8)) }
