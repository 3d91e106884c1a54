import GRDBSQLite
import Glibc
import SystemPackage

/// A SQLite connection that reads or writes through prepared statements. Confined to one thread.
package class SQLiteConnection {
    package let path: FilePath
    let connection: OpaquePointer
    private var observer: Observer?

    /// - Parameter name: The path, or a URI (https://sqlite.org/uri.html).
    ///
    /// Throws `StoreError`, which names `path`.
    init(opening name: String, of path: FilePath, flags: Int32) throws {
        self.path = path
        var opened: OpaquePointer?
        let code = sqlite3_open_v2(name, &opened, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nil)
        guard code == SQLITE_OK, let opened else {
            let message = String(cString: sqlite3_errstr(code))
            sqlite3_close_v2(opened)
            throw StoreError(code: code, message: message, path: path)
        }
        connection = opened
        SQLiteLibrary.acceptUnknownCollations(opened)
    }

    deinit { sqlite3_close_v2(connection) }

    func error(_ code: Int32) -> StoreError {
        StoreError(code: code, message: String(cString: sqlite3_errmsg(connection)), path: path)
    }

    package func prepare(_ sql: String, _ parameters: [SQLiteValue] = []) throws -> SQLiteStatement {
        var prepared: OpaquePointer?
        let code = sqlite3_prepare_v2(connection, sql, -1, &prepared, nil)
        guard code == SQLITE_OK, let prepared else { throw error(code) }
        let statement = SQLiteStatement(prepared, connection: self)
        try statement.bind(parameters)
        return statement
    }

    /// Runs one statement to its end.
    package func execute(_ sql: String, _ parameters: [SQLiteValue] = []) throws {
        let statement = try prepare(sql, parameters)
        while try statement.step() {}
    }

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

    // MARK: Cancellation

    private final class Observer {
        let isCancelled: () -> Bool
        init(_ isCancelled: @escaping () -> Bool) { self.isCancelled = isCancelled }
    }

    /// Calls `isCancelled` from time to time. If it returns true, a running statement ends with
    /// `StoreError.isInterruption`.
    package func interrupt(when isCancelled: @escaping () -> Bool) {
        let observer = Observer(isCancelled)
        self.observer = observer
        sqlite3_progress_handler(
            connection, 20_000,
            { context in
                guard let context else { return 0 }
                return Unmanaged<Observer>.fromOpaque(context).takeUnretainedValue().isCancelled() ? 1 : 0
            }, Unmanaged.passUnretained(observer).toOpaque())
    }
}

extension FilePath {
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
