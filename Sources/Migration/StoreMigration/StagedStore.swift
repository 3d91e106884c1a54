import SQLiteStore
import SystemPackage

extension StoreWriter {
    /// Opens a copy that is discarded on failure and so needs neither a journal nor syncs.
    convenience init(staged path: FilePath) throws {
        try self.init(path)
        try execute("PRAGMA journal_mode = OFF")
        try execute("PRAGMA synchronous = OFF")
        try execute("PRAGMA locking_mode = EXCLUSIVE")
        // 8192 KiB of memory for pages and as much for sorting; the rest goes to temporary files.
        try execute("PRAGMA cache_size = -8192")
        try execute("PRAGMA temp_store = FILE")
    }

    /// Returns the approximate number of objects, computed from the highest keys without reading the objects.
    func objectCount() throws -> Int64 {
        try integer("SELECT sum(Z_MAX) FROM Z_PRIMARYKEY WHERE Z_ENT < 16000") ?? 0
    }
}
