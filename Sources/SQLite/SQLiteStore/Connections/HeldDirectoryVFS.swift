import CLinux
import CSQLite
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// SQLite's Unix file system (https://sqlite.org/vfs.html), made to work inside an open directory.
///
/// Plain SQLite takes a path, resolves every symbolic link in it, and then opens, renames and unlinks by the result. A
/// user who can write to a directory on the way could redirect it in between. Here the path leads through the
/// directory's descriptor (`/proc/self/fd/N/NAME`, proc(5)) and is not resolved, so that every file, including side
/// files, is in that directory. SQLite itself never follows a link in the last component (`O_NOFOLLOW` in its
/// os_unix.c).
enum HeldDirectoryVFS {
    static let name = "groupstore-held"
    static let prefix = "/proc/self/fd/"

    /// Registers it with SQLite for the life of the process.
    static func register() throws {
        if registrationCode != SQLITE_OK {
            throw StoreError(
                code: registrationCode, message: "the SQLite file system could not be registered", path: "/")
        }
    }

    private static let registrationCode: Int32 = {
        guard let original = sqlite3_vfs_find("unix") else { return SQLITE_NOTFOUND }
        // SQLite would wait on a FIFO in a side file's place until somebody writes to it, and would write to another
        // user's file through a hard link there.
        let open: @convention(c) (UnsafePointer<CChar>?, CInt, CInt) -> CInt = gs_open_careful
        _ = original.pointee.xSetSystemCall?(original, "open", unsafeBitCast(open, to: sqlite3_syscall_ptr.self))
        return register(copyOf: original, as: name)
    }()

    /// Registers a copy that leaves such paths unresolved. `change` may modify it further.
    static func register(
        copyOf original: UnsafeMutablePointer<sqlite3_vfs>, as name: String,
        _ change: (inout sqlite3_vfs) -> Void = { _ in }
    ) -> Int32 {
        // A copy keeps the original's private data, which the original's methods rely on.
        let copy = UnsafeMutablePointer<sqlite3_vfs>.allocate(capacity: 1)
        copy.initialize(to: original.pointee)
        copy.pointee.pNext = nil
        copy.pointee.zName = UnsafePointer(name.withCString { strdup($0) })
        copy.pointee.xFullPathname = keepHeldPath
        change(&copy.pointee)
        return sqlite3_vfs_register(copy, 0)
    }

    private static let keepHeldPath:
        @convention(c) (UnsafeMutablePointer<sqlite3_vfs>?, UnsafePointer<CChar>?, CInt, UnsafeMutablePointer<CChar>?)
            -> CInt = { vfs, path, capacity, result in
                guard let path, let result else { return SQLITE_CANTOPEN }
                guard strncmp(path, prefix, prefix.utf8.count) == 0 else {
                    guard let resolve = sqlite3_vfs_find("unix")?.pointee.xFullPathname else { return SQLITE_CANTOPEN }
                    return resolve(vfs, path, capacity, result)
                }
                let length = strlen(path) + 1
                guard length <= Int(capacity) else { return SQLITE_CANTOPEN }
                memcpy(result, path, length)
                return SQLITE_OK
            }
}

extension StoreLocation {
    /// The database's path for SQLite's URIs. It leads through the open directory, wherever that is now. Without /proc
    /// it is the plain path.
    var encodedPath: String {
        let link = FilePath("\(HeldDirectoryVFS.prefix)\(directory.raw)")
        let isThere = link.withPlatformString { access($0, F_OK) } == 0
        let parent = isThere ? link : directory.path
        return parent.appending(name.database).encodedForURI
    }
}
