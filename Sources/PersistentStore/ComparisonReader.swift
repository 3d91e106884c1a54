import GRDBSQLite
import Glibc
import SystemPackage

/// Reads a database, and a second one under the name `was`, on one connection. One thread's.
///
/// Both are opened with `immutable=1`: nothing is created beside them, no lock is taken, and a log beside them is not
/// looked at. So nobody may write to either meanwhile, and neither may have a log with content.
package final class ComparisonReader: SQLiteSession {
    private final class Observer {
        let isCancelled: () -> Bool
        init(_ isCancelled: @escaping () -> Bool) { self.isCancelled = isCancelled }
    }

    package let path: FilePath
    private let connection: OpaquePointer
    private var observer: Observer?

    /// Throws `StoreError`.
    package init(_ path: FilePath, beside earlier: FilePath) throws {
        self.path = path
        var opened: OpaquePointer?
        let flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE
        let code = sqlite3_open_v2(path.immutableURI, &opened, flags, nil)
        guard code == SQLITE_OK, let opened else {
            let message = String(cString: sqlite3_errstr(code))
            sqlite3_close_v2(opened)
            throw StoreError(code: code, message: message, path: path)
        }
        connection = opened
        SQLiteLibrary.acceptUnknownCollations(opened)
        // What the files say is not trusted to have side effects; what doesn't fit into memory goes to a temporary file.
        for pragma in ["trusted_schema = OFF", "cell_size_check = ON", "cache_size = -8192", "temp_store = FILE"] {
            try execute("PRAGMA " + pragma)
        }
        try execute("ATTACH ?1 AS was", [.text(earlier.immutableURI)])
        try execute("PRAGMA was.cache_size = -8192")
    }

    deinit { sqlite3_close_v2(connection) }

    func error(_ code: Int32) -> StoreError {
        StoreError(code: code, message: String(cString: sqlite3_errmsg(connection)), path: path)
    }

    package func prepare(_ sql: String, _ parameters: [SQLiteValue] = []) throws -> SQLiteStatement {
        var prepared: OpaquePointer?
        let code = sqlite3_prepare_v2(connection, sql, -1, &prepared, nil)
        guard code == SQLITE_OK, let prepared else { throw error(code) }
        let statement = SQLiteStatement(prepared, reader: self)
        try statement.bind(parameters)
        return statement
    }

    private func execute(_ sql: String, _ parameters: [SQLiteValue] = []) throws {
        let statement = try prepare(sql, parameters)
        while try statement.step() {}
    }

    /// Asks now and then whether to go on; a statement under way ends with `StoreError.isInterruption` when not.
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
    /// SQLite's URI of the file (https://sqlite.org/uri.html): each byte that could mean something there as `%XX`.
    fileprivate var immutableURI: String {
        let plain = Set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-".utf8)
        let bytes = withPlatformString { Array(UnsafeRawBufferPointer(start: $0, count: strlen($0))) }
        let encoded = bytes.map { byte in
            plain.contains(byte)
                ? String(UnicodeScalar(byte))
                : "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
        }
        return "file:" + encoded.joined() + "?mode=ro&immutable=1"
    }
}
