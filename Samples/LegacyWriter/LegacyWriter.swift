import GRDB
import Glibc

/// An app before it shared its store: one process with a SQLite database in its own directory.
@main
struct LegacyWriter {
    static func main() {
        do {
            let options = try Options(CommandLine.arguments.dropFirst())
            try write(options)
        } catch {
            say("legacy-writer: \(error)", to: STDERR_FILENO)
            exit(error is Options.Problem ? 64 : 74)
        }
    }

    private static func write(_ options: Options) throws {
        let notes = try DatabaseQueue(path: options.store, configuration: configuration(options))
        try notes.write { database in
            try database.execute(
                sql: """
                    CREATE TABLE IF NOT EXISTS note (
                        id INTEGER PRIMARY KEY, title TEXT NOT NULL, text TEXT NOT NULL,
                        written TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)
                    """)
        }
        for number in 1...options.rows {
            let id = try notes.write { database in
                try database.execute(
                    sql: "INSERT INTO note (title, text) VALUES (?, ?)",
                    arguments: ["Note \(number)", "Written by process \(getpid())"])
                return database.lastInsertedRowID
            }
            // COMMIT has returned: this row must not be lost from here on.
            say("row \(id)", to: STDOUT_FILENO)
            if let pause = options.pause, number < options.rows { usleep(pause) }
        }
        // Ends like a crash: nothing is closed, so the rows stay in the -wal file.
        if options.leavesWAL { _exit(0) }
        try notes.close()
    }

    private static func configuration(_ options: Options) -> Configuration {
        var configuration = Configuration()
        // Beside tight writers a lock can be long in coming: SQLite serves nobody in order.
        configuration.busyMode = .timeout(600)
        configuration.prepareDatabase { database in
            try database.execute(sql: "PRAGMA journal_mode = \(options.journalMode)")
            if options.leavesWAL { try database.execute(sql: "PRAGMA wal_autocheckpoint = 0") }
        }
        return configuration
    }

    /// Writes one line with one write(2), so that readers see it at once and a crash loses none.
    private static func say(_ line: String, to descriptor: CInt) {
        let bytes = Array((line + "\n").utf8)
        _ = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
    }
}
