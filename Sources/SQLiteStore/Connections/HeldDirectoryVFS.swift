import CLinux
import GRDBSQLite
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// SQLite's Unix file system (https://sqlite.org/vfs.html), made to work inside a directory that is held open.
///
/// SQLite takes a path, resolves every symbolic link in it, and then opens, renames and unlinks by what it found: who
/// may write to a directory on the way could send it elsewhere in between. Here the path leads through the descriptor
/// (`/proc/self/fd/N/NAME`, proc(5)) and stays as it is, so that every file, side files too, is one in that directory;
/// SQLite itself never follows a link at the last name (`O_NOFOLLOW` in its os_unix.c).
enum HeldDirectoryVFS {
    static let name = "groupstore-held"
    static let prefix = "/proc/self/fd/"

    /// Makes it known to SQLite, for as long as the process runs.
    static func register() throws {
        if registrationCode != SQLITE_OK {
            throw StoreError(code: registrationCode, message: "the file system is not to be had", path: "/")
        }
    }

    private static let registrationCode: Int32 = {
        guard let original = sqlite3_vfs_find("unix") else { return SQLITE_NOTFOUND }
        // A FIFO in a side file's place would be waited for until somebody writes to it, and a second name of somebody
        // else's file there would be written to.
        let open: @convention(c) (UnsafePointer<CChar>?, CInt, CInt) -> CInt = gs_open_careful
        _ = original.pointee.xSetSystemCall?(original, "open", unsafeBitCast(open, to: sqlite3_syscall_ptr.self))
        return register(copyOf: original, as: name)
    }()

    /// Registers a copy that keeps held paths, and of which `change` may make something else.
    static func register(
        copyOf original: UnsafeMutablePointer<sqlite3_vfs>, as name: String,
        _ change: (inout sqlite3_vfs) -> Void = { _ in }
    ) -> Int32 {
        // A copy keeps the original's private data, by which the original's methods know what they are.
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
    /// The database's path for SQLite's URIs. It leads through the directory that is held open, wherever that is now;
    /// without /proc it can't, and is the path itself.
    var encodedPath: String {
        let link = FilePath("\(HeldDirectoryVFS.prefix)\(directory.raw)")
        let isThere = link.withPlatformString { access($0, F_OK) } == 0
        let parent = isThere ? link : directory.path
        return parent.appending(name.database).encodedForURI
    }
}
