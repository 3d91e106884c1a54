import Glibc
import LinuxSystem

/// A log of the statements of connections: what is printed of each, and where.
///
/// The environment variable `GROUPSTORE_SQL_DEBUG` turns it on for every connection of a process, as Core Data's
/// `-com.apple.CoreData.SQLDebug` does.
package struct StatementLog: Sendable {
    /// Each level includes those below it.
    package enum Level: Int, CaseIterable, Comparable, Sendable {
        case off
        /// Each statement, with its time.
        case statements
        /// Also the statements that triggers run.
        case triggers
        /// Each statement with its values in the places of its parameters.
        case values

        package static func < (one: Level, other: Level) -> Bool { one.rawValue < other.rawValue }
    }

    package let level: Level
    let print: @Sendable (String) -> Void

    package init(_ level: Level, print: @escaping @Sendable (String) -> Void = StatementLog.printError) {
        self.level = level
        self.print = print
    }

    /// The name of the environment variable: 0 to 3.
    package static let variable = "GROUPSTORE_SQL_DEBUG"

    /// The log that the process's environment asks for. It is read once; a value that is no level is named on
    /// standard error.
    package static let environment: StatementLog = {
        guard let value = getenv(variable).map({ String(cString: $0) }), !value.isEmpty else {
            return StatementLog(.off)
        }
        guard let level = Int(value).flatMap({ Level(rawValue: $0) }) else {
            printError("GroupStore: sql: \(variable) is \(PrintableText(value)); it takes a level from 0 to 3")
            return StatementLog(.off)
        }
        return StatementLog(level)
    }()

    /// Writes a line to standard error in one call, so that lines of several threads don't mix.
    @Sendable package static func printError(_ line: String) {
        let bytes = Array((line + "\n").utf8)
        _ = write(STDERR_FILENO, bytes, bytes.count)
    }

    /// Prints a statement that has ended.
    ///
    /// - Parameters:
    ///   - sql: The statement, with its values if `level` wants them.
    ///   - database: The database's file name.
    package func ended(_ sql: String, in database: String, after duration: Duration) {
        let microseconds = duration.components.seconds * 1_000_000 + duration.components.attoseconds / 1_000_000_000_000
        let fraction = String(microseconds % 1_000_000)
        let time = "\(microseconds / 1_000_000)." + String(repeating: "0", count: 6 - fraction.count) + fraction
        print("GroupStore: sql: \(time)s \(PrintableText(database)): \(TracedSQL(sql))")
    }

    /// Prints a statement that a trigger begins. SQLite passes it as a comment
    /// (https://sqlite.org/c3ref/c_trace.html).
    package func began(triggered comment: String, in database: String) {
        print("GroupStore: sql: trigger \(PrintableText(database)): \(TracedSQL(comment))")
    }
}
