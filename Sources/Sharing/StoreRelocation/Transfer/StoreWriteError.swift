import SQLiteStore

/// SQLite's error when a relocation writes to a store. If a relocation can't read a store, it throws `StoreError`.
struct StoreWriteError: Error {
    /// SQLite's extended result code and message (https://sqlite.org/rescode.html).
    let code: Int32
    let message: String

    /// The result code without its extension.
    var primaryCode: Int32 { code & 0xFF }

    /// Runs `body`, and throws this error in place of SQLite's.
    static func translating<Success>(_ body: () throws -> Success) throws -> Success {
        do { return try body() } catch let error as StoreError {
            guard let code = error.code else { throw error }
            throw StoreWriteError(code: code, message: error.sqliteMessage)
        }
    }
}
