import CSQLite
import SystemPackage

/// A connection that reads a database, and an earlier one attached as `was`. Confined to one thread.
///
/// Both are opened with `immutable=1`: SQLite creates no file beside them, takes no lock and ignores any WAL. So nobody
/// may write to either meanwhile, and neither may have a WAL with content.
package final class ComparisonReader: SQLiteConnection {
    /// Opens both databases. `cacheSize` is the memory for pages of each, in KiB. Throws `StoreError`.
    package init(_ path: FilePath, beside earlier: FilePath, cacheSize: Int = 8192) throws {
        try super.init(opening: path.immutableURI, of: path, flags: SQLITE_OPEN_READONLY | SQLITE_OPEN_URI)
        try distrustSchema()
        // Content that exceeds the memory goes to a temporary file.
        for pragma in ["cache_size = -\(cacheSize)", "temp_store = FILE"] { try execute("PRAGMA " + pragma) }
        try execute("ATTACH ?1 AS was", [.text(earlier.immutableURI)])
        try execute("PRAGMA was.cache_size = -\(cacheSize)")
    }
}

extension FilePath {
    fileprivate var immutableURI: String { "file:" + encodedForURI + "?mode=ro&immutable=1" }
}
