import CSQLite
import Glibc
import SystemPackage

/// A SQLite connection that reads or writes through prepared statements. Confined to one thread.
///
/// There are four ways to open a database. `StoreReader` and `ComparisonReader` read; `StoreConnection` writes to a
/// store that other programs may use; `StoreWriter` writes to a file that nobody else uses.
package class SQLiteConnection {
    package let path: FilePath
    let connection: OpaquePointer
    private var observer: Observer?
    private var statementObserver: StatementObserver?
    private var isInTransaction = false
    /// Exists if collations are only known by name.
    var namedCollations: NamedCollations?
    /// The statements that are kept for the next time; nil if none are.
    var statementCache: StatementCache?

    /// - Parameters:
    ///   - name: The path, or a URI (https://sqlite.org/uri.html).
    ///   - acceptsUnknownCollations: True to compare bytes for a collation that only the store's own program defines.
    ///     What is written so may be in the wrong order for that program.
    ///
    /// Throws `StoreError`, which names `path`.
    init(opening name: String, of path: FilePath, flags: Int32, acceptsUnknownCollations: Bool = true) throws {
        self.path = path
        var opened: OpaquePointer?
        let code = sqlite3_open_v2(name, &opened, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nil)
        guard code == SQLITE_OK, let opened else {
            let error = StoreError(
                code: code, message: String(cString: sqlite3_errstr(code)), path: path,
                errno: opened.map(sqlite3_system_errno) ?? 0)
            sqlite3_close_v2(opened)
            throw error
        }
        connection = opened
        if acceptsUnknownCollations { SQLiteLibrary.acceptUnknownCollations(opened) }
        logStatements()
    }

    deinit {
        statementCache = nil
        sqlite3_close_v2(connection)
    }

    func error(_ code: Int32) -> StoreError {
        StoreError(
            code: code, message: String(cString: sqlite3_errmsg(connection)), path: path,
            errno: sqlite3_system_errno(connection))
    }

    /// Prepares one statement, and ignores any that follow it.
    package func prepare(_ sql: String, _ parameters: [SQLiteValue] = []) throws -> SQLiteStatement {
        let statement = try compiled(sql)
        try statement.bind(parameters)
        return statement
    }

    private func compiled(_ sql: String) throws -> SQLiteStatement {
        let key = statementCache == nil ? nil : StatementCache.key(sql)
        if let key, let known = statementCache?.take(key) {
            return SQLiteStatement(known, connection: self, key: key)
        }
        var prepared: OpaquePointer?
        let code = sqlite3_prepare_v2(connection, sql, -1, &prepared, nil)
        guard code == SQLITE_OK, let prepared else { throw error(code) }
        return SQLiteStatement(prepared, connection: self, key: key)
    }

    /// Runs one statement to its end, and ignores any that follow it.
    package func execute(_ sql: String, _ parameters: [SQLiteValue] = []) throws {
        let statement = try prepare(sql, parameters)
        while try statement.step() {}
    }

    /// Runs all statements of a text, up to the first that fails.
    package func execute(script: String) throws {
        try script.withCString { start in
            var next: UnsafePointer<CChar>? = start
            while let sql = next, sql.pointee != 0 {
                var prepared: OpaquePointer?
                let code = sqlite3_prepare_v2(connection, sql, -1, &prepared, &next)
                guard code == SQLITE_OK else { throw error(code) }
                // A comment or an empty statement.
                guard let prepared else { continue }
                let statement = SQLiteStatement(prepared, connection: self)
                while try statement.step() {}
            }
        }
    }

    /// The number of rows that the last INSERT, UPDATE or DELETE changed.
    package var changes: Int64 { sqlite3_changes64(connection) }

    /// The rowid of the last inserted row.
    package var lastInsertedRow: Int64 { sqlite3_last_insert_rowid(connection) }

    /// Returns the first column of the first row, or nil if there is no row.
    package func integer(_ sql: String, _ parameters: [SQLiteValue] = []) throws -> Int64? {
        let statement = try prepare(sql, parameters)
        return try statement.step() ? statement.integer(0) : nil
    }

    /// Returns the first column of the first row, or nil if there is no row or the value is NULL.
    package func text(_ sql: String, _ parameters: [SQLiteValue] = []) throws -> String? {
        let statement = try prepare(sql, parameters)
        return try statement.step() ? statement.text(0) : nil
    }

    // MARK: Transactions

    package enum TransactionKind: String {
        case deferred = "BEGIN"
        case immediate = "BEGIN IMMEDIATE"
    }

    /// Runs `body` in one transaction. If `body` or the COMMIT fails, the transaction is rolled back.
    package func transaction<Success>(_ kind: TransactionKind, _ body: () throws -> Success) throws -> Success {
        try execute(kind.rawValue)
        do {
            isInTransaction = true
            defer { isInTransaction = false }
            let success = try body()
            try checkTransaction()
            if let namedCollations, namedCollations.wereUsed { throw namedCollations.error(path) }
            isInTransaction = false
            try execute("COMMIT")
            return success
        } catch {
            // SQLite rolls back by itself after some errors (https://sqlite.org/lang_transaction.html, §2.3). The
            // first error counts. If the ROLLBACK fails too, closing the connection rolls back.
            if sqlite3_get_autocommit(connection) == 0 { try? execute("ROLLBACK") }
            throw error
        }
    }

    /// Throws if SQLite has rolled the transaction back by itself. The next statement would be a transaction of its
    /// own.
    func checkTransaction() throws {
        guard isInTransaction, sqlite3_get_autocommit(connection) != 0 else { return }
        throw StoreError(code: SQLITE_ABORT, message: "Transaction was aborted", path: path)
    }

    /// Passes the statements to `observer` from now on.
    func observe(_ observer: StatementObserver) {
        observer.observe(connection)
        statementObserver = observer
    }

    // MARK: Cancellation

    private final class Observer {
        let isCancelled: () -> Bool
        init(_ isCancelled: @escaping () -> Bool) { self.isCancelled = isCancelled }
    }

    /// Calls `isCancelled` from time to time. If it returns true, a running statement ends with
    /// `StoreError.isInterruption`.
    ///
    /// - Parameter instructions: The number of SQLite's instructions between two calls.
    package func interrupt(every instructions: Int32 = 20_000, when isCancelled: @escaping () -> Bool) {
        let observer = Observer(isCancelled)
        self.observer = observer
        sqlite3_progress_handler(
            connection, instructions,
            { context in
                guard let context else { return 0 }
                return Unmanaged<Observer>.fromOpaque(context).takeUnretainedValue().isCancelled() ? 1 : 0
            }, Unmanaged.passUnretained(observer).toOpaque())
    }
}

extension FilePath {
    /// The path as an SQLite URI, for `ATTACH` too: a name may be any bytes, and a string only UTF-8.
    package var sqliteURI: String { "file:" + encodedForURI }

    /// The path encoded for SQLite's URIs (https://sqlite.org/uri.html). Bytes with a special meaning, and all
    /// non-ASCII ones, become `%NN`.
    var encodedForURI: String {
        bytes.map { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "/"), UInt8(ascii: "."), UInt8(ascii: "-"),
                UInt8(ascii: "_"):
                String(UnicodeScalar(byte))
            default: "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16)
            }
        }.joined()
    }
}
