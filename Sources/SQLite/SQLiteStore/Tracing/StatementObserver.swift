import CSQLite
import LinuxSystem

/// Receives a connection's statements from SQLite (https://sqlite.org/c3ref/trace_v2.html). A connection has one at a
/// time.
final class StatementObserver {
    private let level: StatementLog.Level
    private let began: (_ triggered: String) -> Void
    private let ended: (_ sql: String, _ time: Duration) -> Void

    /// - Parameters:
    ///   - level: From `values` on, the SQL includes the bound values.
    ///   - began: Called with each statement that a trigger begins, from the level `triggers` on.
    ///   - ended: Called with each finished statement and its duration.
    init(
        _ level: StatementLog.Level, began: @escaping (_ triggered: String) -> Void = { _ in },
        ended: @escaping (_ sql: String, _ time: Duration) -> Void
    ) {
        self.level = level
        self.began = began
        self.ended = ended
    }

    /// Receives the connection's statements from now on. The object must outlive the connection.
    func observe(_ connection: OpaquePointer) {
        let events = SQLITE_TRACE_PROFILE | (level >= .triggers ? SQLITE_TRACE_STMT : 0)
        sqlite3_trace_v2(
            connection, UInt32(events),
            { event, context, statement, detail in
                guard let context, let statement, let detail else { return 0 }
                let observer = Unmanaged<StatementObserver>.fromOpaque(context).takeUnretainedValue()
                if Int32(event) == SQLITE_TRACE_PROFILE {
                    observer.statementEnded(OpaquePointer(statement), nanoseconds: detail.load(as: Int64.self))
                } else {
                    observer.statementBegan(String(cString: detail.assumingMemoryBound(to: CChar.self)))
                }
                return 0
            }, Unmanaged.passUnretained(self).toOpaque())
    }

    private func statementBegan(_ sql: String) {
        // SQLite passes a trigger's statement as a comment.
        if sql.hasPrefix("--") { began(sql) }
    }

    private func statementEnded(_ statement: OpaquePointer, nanoseconds: Int64) {
        // Nil if the text would exceed SQLite's limits.
        let expanded = level >= .values ? sqlite3_expanded_sql(statement) : nil
        defer { sqlite3_free(expanded) }
        let sql = expanded.map { String(cString: $0) } ?? sqlite3_sql(statement).map { String(cString: $0) } ?? ""
        ended(sql, .nanoseconds(nanoseconds))
    }
}

extension SQLiteConnection {
    /// Reports each finished statement and its duration. From level 3 on, the SQL includes the bound values. Replaces
    /// the log that the environment asks for.
    package func trace(level: Int, _ report: @escaping (_ sql: String, _ time: Duration) -> Void) {
        observe(StatementObserver(level >= 3 ? .values : .statements, ended: report))
    }

    /// Begins the log that the environment asks for, if it does.
    func logStatements() {
        let log = StatementLog.environment
        guard log.level > .off else { return }
        let name = path.lastComponent?.string ?? path.string
        observe(
            StatementObserver(
                log.level, began: { log.began(triggered: $0, in: name) },
                ended: { log.ended($0, in: name, after: $1) }))
    }
}
