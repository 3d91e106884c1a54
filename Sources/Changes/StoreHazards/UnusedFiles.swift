import CLinux
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A forked child has its parent's descriptors, and may not use them (https://sqlite.org/howtocorrupt.html, §2.6). If
/// the parent closes the store as the last program, SQLite removes the log and the index that the child still has.
extension HeldStore {
    /// True if nothing can have been lost with these files, and the process doesn't use them. Its next commit is
    /// preceded by a read of the index, and is an event.
    ///
    /// A connection has locks on the database and the index, and has read the index. One that lost its locks to a raw
    /// close, and the pages of its index to a shortage of memory, has a hazard only once it goes on.
    func isUnused(by pid: Int32, _ locks: RecordLocks?) -> Bool {
        guard let locks, let log, let index, log.links == 0, index.links == 0,
            ![database, log, index].contains(where: { locks.has(pid, on: $0.identity) })
        else { return false }
        return Self.isCheckpointed(index, of: pid) && Self.hasPages(of: index, pid) == false
    }

    /// True if a process without a lock on the database has only inherited the files: it has no lock on the index
    /// either, and hasn't read it. A connection that lost its locks on the database has read the index.
    static func isInherited(_ index: HeldFile, by pid: Int32, _ locks: RecordLocks?) -> Bool {
        guard let locks, !locks.has(pid, on: index.identity) else { return false }
        return hasPages(of: index, pid) == false
    }

    /// True if the database has all commits of the log.
    private static func isCheckpointed(_ index: HeldFile, of pid: Int32) -> Bool {
        // If this process had it open too, closing another descriptor would drop its locks. The file has no name by
        // which it could be opened meanwhile.
        guard !HeldFile.hasFile(getpid(), where: { status, _ in status.identity == index.identity }),
            let file = try? Descriptor(opening: index.path(of: pid), flags: gs_o_path),
            (try? file.status())?.identity == index.identity,
            let open = try? Descriptor(opening: FilePath("/proc/self/fd/\(file.raw)"), flags: O_RDONLY),
            let found = try? WriteAheadIndex(open)
        else { return false }
        return found.lastFrame == found.backfilledFrame
    }

    /// Returns true if the process has pages of a file in its memory; nil if that is unknown. A child has its parent's
    /// mappings, and none of the pages of their files until it reads them (fork(2), proc(5)).
    private static func hasPages(of file: HeldFile, _ pid: Int32) -> Bool? {
        let limit = 1 << 24
        guard let text = ProcFile.text(FilePath("/proc/\(pid)/smaps"), limit: limit), text.utf8.count < limit else {
            return nil
        }
        var isMapping = false
        for line in text.split(separator: "\n") {
            // `7f87-7f88 rw-s 00000000 fe:00 5554190 /a/app.db-shm`, then `Rss: 32 kB` and others.
            let fields = line.split(separator: " ", maxSplits: 5)
            if fields.count > 4, fields[0].contains("-") {
                isMapping = fields[4] == "\(file.identity.inode)"
            } else if isMapping, fields.first == "Rss:", fields.dropFirst().first != "0" {
                return true
            }
        }
        return false
    }
}
