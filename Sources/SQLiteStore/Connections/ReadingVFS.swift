import GRDBSQLite
import Glibc

/// SQLite's own Unix file systems (https://sqlite.org/vfs.html), made unable to create, write or delete a side file.
///
/// SQLite opens a log for writing even when the database is read-only, and as root it gives a log or journal that it
/// opens to the database's owner: both would leave a trace.
enum ReadingVFS: String, CaseIterable {
    /// Takes SQLite's locks.
    case locking = "groupstore-reading"
    /// Takes none, and has no shared memory.
    case lockless = "groupstore-reading-none"

    private var original: String {
        switch self {
        case .locking: "unix"
        case .lockless: "unix-none"
        }
    }

    /// Makes both known to SQLite, for as long as the process runs.
    static func register() throws {
        if registrationCode != SQLITE_OK {
            throw StoreError(code: registrationCode, message: "the reader's file system is not to be had", path: "/")
        }
    }

    private static let registrationCode: Int32 = {
        // Its system calls are the ones of these file systems too.
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

    /// A log or journal is opened for reading, as a temporary journal: nobody's owner is looked at then.
    private static func harmless(_ flags: Int32) -> Int32 {
        guard flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL) != 0 else { return flags }
        return SQLITE_OPEN_READONLY | SQLITE_OPEN_TEMP_JOURNAL
    }
}
