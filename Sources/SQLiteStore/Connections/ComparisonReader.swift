import GRDBSQLite
import SystemPackage

/// Reads a database, and a second one under the name `was`, on one connection. One thread's.
///
/// Both are opened with `immutable=1`: nothing is created beside them, no lock is taken, and a log beside them is not
/// looked at. So nobody may write to either meanwhile, and neither may have a log with content.
package final class ComparisonReader: SQLiteConnection {
    /// Throws `StoreError`.
    package init(_ path: FilePath, beside earlier: FilePath) throws {
        try super.init(opening: path.immutableURI, of: path, flags: SQLITE_OPEN_READONLY | SQLITE_OPEN_URI)
        try distrustSchema()
        // What doesn't fit into memory goes to a temporary file.
        for pragma in ["cache_size = -8192", "temp_store = FILE"] { try execute("PRAGMA " + pragma) }
        try execute("ATTACH ?1 AS was", [.text(earlier.immutableURI)])
        try execute("PRAGMA was.cache_size = -8192")
    }
}

extension FilePath {
    fileprivate var immutableURI: String { "file:" + encodedForURI + "?mode=ro&immutable=1" }
}
