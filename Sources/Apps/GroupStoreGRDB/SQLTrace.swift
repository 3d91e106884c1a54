import GRDB
import SQLiteStore

/// The trace of the statements that a ``SharedDatabase`` runs: one line for each, printed when the statement ends.
///
///     let notes = try await SharedDatabasePool.load(
///         "Notes.sqlite", in: "group.com.example.notes", sqlTrace: SQLTrace(.values))
///
///     GroupStore: sql: 0.000412s Notes.sqlite: INSERT INTO note (title) VALUES ('New')
///
/// It is what Core Data's `SQLDebug` prints. Without a `sqlTrace`, the environment variable `GROUPSTORE_SQL_DEBUG`
/// chooses the level, from 0 to 3, for every shared database of a process, and for the statements of
/// `ModelBundle.prepareStore(at:)` and of the `groupstore` program.
///
/// GRDB keeps one trace for each connection: this one replaces one that `Configuration.prepareDatabase` has begun, and
/// `Database.trace(options:_:)` in an access replaces this one.
///
/// - Important: At the level ``Level/values``, the lines contain what people have written. Don't turn it on in a
///   program that is handed out.
public struct SQLTrace: Sendable {
    /// What is printed. Each level includes those below it.
    public enum Level: Int, CaseIterable, Comparable, Sendable {
        /// Nothing.
        case off
        /// Each statement, with the time that it took.
        case statements
        /// Also the statements that triggers run, when they begin.
        case triggers
        /// Each statement with its values in the places of its parameters.
        case values

        /// Returns true if `one` prints less than `other`.
        public static func < (one: Level, other: Level) -> Bool { one.rawValue < other.rawValue }
    }

    /// What is printed.
    public var level: Level { Level(rawValue: log.level.rawValue) ?? .off }
    private let log: StatementLog

    /// Creates a trace.
    ///
    /// - Parameters:
    ///   - level: What is printed.
    ///   - print: Called with each line, on the connection's thread. The line has no control characters.
    public init(_ level: Level, print: (@Sendable (String) -> Void)? = nil) {
        log = StatementLog(
            StatementLog.Level(rawValue: level.rawValue) ?? .off, print: print ?? StatementLog.printError)
    }

    private init(_ log: StatementLog) { self.log = log }

    /// The trace that the environment variable `GROUPSTORE_SQL_DEBUG` asks for, on standard error.
    public static let environment = SQLTrace(StatementLog.environment)

    /// Returns the configuration with this trace for each connection to the database called `name`.
    func added(to configuration: GRDB.Configuration, of name: String) -> GRDB.Configuration {
        guard level > .off else { return configuration }
        var configuration = configuration
        configuration.prepareDatabase { [self] database in
            database.trace(options: level >= .triggers ? [.profile, .statement] : .profile) { event in
                switch event {
                case .statement(let statement):
                    // SQLite passes a trigger's statement as a comment.
                    if statement.sql.hasPrefix("--") { log.began(triggered: statement.sql, in: name) }
                case .profile(let statement, let duration):
                    let expanded = level >= .values ? statement.expandedSQL : ""
                    log.ended(
                        expanded.isEmpty ? statement.sql : expanded, in: name,
                        after: .nanoseconds(Int64(duration * 1e9)))
                }
            }
        }
        return configuration
    }
}
