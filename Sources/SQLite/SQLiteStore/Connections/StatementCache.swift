import CSQLite

/// The statements of a connection that were used and may be needed again: it takes longer to compile one than to find
/// a row. SQLite compiles a statement again by itself if the schema has changed since.
final class StatementCache {
    /// By the bytes of the SQL, because Swift takes some texts for equal that SQLite keeps apart.
    private var handles: [[UInt8]: OpaquePointer] = [:]

    private static let limit = 200
    /// What begins so does its work when it runs. Most PRAGMA statements do theirs when they are compiled.
    private static let beginnings = ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "BEGIN", "COMMIT"].map {
        Array($0.utf8)
    }
    private static let pragmas: Set<[UInt8]> = Set(
        ["data_version", "schema_version", "user_version", "application_id"].map { Array("PRAGMA main.\($0)".utf8) })

    deinit { clear() }

    /// Returns the SQL's bytes, if its statement may be used more than once.
    static func key(_ sql: String) -> [UInt8]? {
        let bytes = Array(sql.utf8)
        return beginnings.contains(where: bytes.starts) || pragmas.contains(bytes) ? bytes : nil
    }

    /// Returns the statement, without parameters; nil if none is kept or it is in use.
    func take(_ key: [UInt8]) -> OpaquePointer? { handles.removeValue(forKey: key) }

    /// Keeps a statement that isn't used any more.
    func put(_ handle: OpaquePointer, _ key: [UInt8]) {
        sqlite3_reset(handle)
        sqlite3_clear_bindings(handle)
        if handles.count >= Self.limit { clear() }
        sqlite3_finalize(handles.updateValue(handle, forKey: key))
    }

    private func clear() {
        for handle in handles.values { sqlite3_finalize(handle) }
        handles = [:]
    }
}
