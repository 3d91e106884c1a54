import CSQLite
import Glibc

/// SQLite's own Unix file systems (https://sqlite.org/vfs.html), restricted so that they can't create, write or delete
/// a side file.
///
/// SQLite opens a WAL for writing even if the database is read-only. As root it gives a WAL or journal that it opens to
/// the database's owner. Both would leave a trace.
enum ReadingVFS: String, CaseIterable {
    /// Takes SQLite's locks.
    case locking = "groupstore-reading"
    /// Takes no locks and has no shared memory.
    case lockless = "groupstore-reading-none"

    private var original: String {
        switch self {
        case .locking: "unix"
        case .lockless: "unix-none"
        }
    }

    /// Registers both with SQLite for the life of the process.
    static func register() throws {
        if registrationCode != SQLITE_OK {
            throw StoreError(
                code: registrationCode, message: "the read-only SQLite file system could not be registered", path: "/")
        }
    }

    private static let registrationCode: Int32 = {
        // Its system calls are those of these file systems too.
        guard (try? HeldDirectoryVFS.register()) != nil else { return SQLITE_NOTFOUND }
        for vfs in allCases {
            guard let original = sqlite3_vfs_find(vfs.original) else { return SQLITE_NOTFOUND }
            let code = HeldDirectoryVFS.register(copyOf: original, as: vfs.rawValue) { copy in
                copy.xOpen = { vfs, name, file, flags, outFlags in
                    // Both originals open files by the same method.
                    guard let open = sqlite3_vfs_find("unix")?.pointee.xOpen else { return SQLITE_CANTOPEN }
                    return open(vfs, name, file, ReadingVFS.harmless(flags), outFlags)
                }
                copy.xDelete = { _, _, _ in SQLITE_READONLY }
            }
            if code != SQLITE_OK { return code }
        }
        return SQLITE_OK
    }()

    /// Makes SQLite open a WAL or journal for reading, as a temporary journal. SQLite doesn't check the owner of those.
    private static func harmless(_ flags: Int32) -> Int32 {
        guard flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL) != 0 else { return flags }
        return SQLITE_OPEN_READONLY | SQLITE_OPEN_TEMP_JOURNAL
    }
}
