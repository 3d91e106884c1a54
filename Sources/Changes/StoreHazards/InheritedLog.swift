import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The log of a forked child. The child's index shows that it doesn't use the files, and not what else has written the
/// log: a program in exclusive locking mode has no index, neither the child's parent nor one that came later.
extension HeldStore {
    /// True if the process may have only inherited the files, and nobody knows: the log has lost its name, the process
    /// has no lock, and it hasn't read an index. A connection in exclusive locking mode has the database locked.
    func mayBeInherited(by pid: Int32, _ locks: RecordLocks?) -> Bool {
        guard let locks, let log, log.links == 0,
            ![database, log].contains(where: { locks.has(pid, on: $0.identity) })
        else { return false }
        return index.map { Self.isInherited($0, by: pid, locks) } ?? true
    }
}

extension StoreHazard {
    /// A state of a lost log.
    package struct LogVersion: Hashable, Sendable {
        let identity: FileIdentity
        let size: Int64
        let modified: Int64

        package init(identity: FileIdentity, size: Int64, modified: Int64) {
            (self.identity, self.size, self.modified) = (identity, size, modified)
        }
    }

    /// The present state of the lost log, read without opening it; nil if a write from now on may leave it unchanged,
    /// or if the process has closed the log.
    package var logVersion: LogVersion? {
        guard let log = lost?.log, let status = FileStatus(following: log.path(of: holder.pid)),
            status.identity == log.identity, FileTime.isSettled(status.modified)
        else { return nil }
        return LogVersion(identity: status.identity, size: status.size, modified: status.modified)
    }

    /// A longer log isn't compared. SQLite begins a log anew after 1,000 pages, unless a transaction is longer.
    package static let maximumComparedLog: Int64 = 16 << 20

    /// True if nothing can have been lost with the log of a process that may be a forked child: at this moment, the
    /// database has all that was committed to it. The next commit to the log is an event.
    ///
    /// False for a log that was written after it had lost its name, or in the same moment: whoever does that may also
    /// have checkpointed it, over what others had committed since. A write sets both times of a file, and the loss of
    /// a name only one of them (inode(7)).
    ///
    /// It opens the database. The process must have no SQLite connection to it, whose locks a close would drop.
    ///
    /// - Parameters:
    ///   - name: The store's name.
    ///   - directory: The store's directory.
    package func isInDatabase(_ name: StoreName, in directory: Directory) -> Bool {
        guard mayBeInherited, let lost, let log = lost.log else { return false }
        let path = log.path(of: holder.pid)
        // A lease must not make this process wait.
        guard let file = try? Descriptor(opening: path, flags: O_RDONLY | O_NONBLOCK),
            let status = try? file.status(), status.identity == log.identity, status.size <= Self.maximumComparedLog,
            status.modified < status.changed,
            let database = try? directory.open(name.database, flags: O_RDONLY | O_NONBLOCK),
            let before = try? database.status(), before.identity == lost.database.identity,
            // What a transaction has written may be rolled back.
            (try? RollbackJournal.isHot(name.journal, in: directory)) == false,
            (try? WriteAheadLog.isCheckpointed(file, into: database, path: path)) == true
        else { return false }
        return (try? database.status()) == before
            && (try? RollbackJournal.isHot(name.journal, in: directory)) == false
    }
}
