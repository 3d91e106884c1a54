import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A state of a store's files in which commits can be lost or hidden, although no program does anything wrong by its
/// own lights (https://sqlite.org/howtocorrupt.html).
package struct StoreHazard: Equatable, Sendable {
    package enum Code: String, CaseIterable, Sendable {
        /// A process has a log or an index open that no longer has its name. Nobody else sees what it commits.
        case orphanedLog = "orphaned_log"
        /// A process has the file open that was the store before another took its name.
        case orphanedDatabase = "orphaned_database"
        /// A process in WAL mode has no locks, because it closed another descriptor of the database, or uses a
        /// connection of its parent. The next program that closes the store checkpoints and removes the log that the
        /// process still uses.
        case droppedLocks = "dropped_locks"
        /// Two processes reach one database by different names, and have a log or journal each.
        case twoNames = "two_names"
        /// A process writes the log without the index by which the others find its commits.
        case mixedModes = "mixed_modes"
        /// The file system can hide writers: programs on other machines, or behind another program.
        case hiddenWriters = "hidden_writers"
        /// Two programs write the store in WAL mode, one of them with a version of SQLite that can damage it then.
        case oldSQLite = "old_sqlite"

        /// True if the process has a history of the store that nobody else sees, and that a rescue joins.
        package var isSplit: Bool {
            switch self {
            case .orphanedLog, .orphanedDatabase: true
            case .droppedLocks, .twoNames, .mixedModes, .hiddenWriters, .oldSQLite: false
            }
        }

        /// True for a state that makes a loss possible, and in which none is under way. It may last for as long as the
        /// programs run.
        package var isWarning: Bool {
            switch self {
            case .hiddenWriters, .oldSQLite: true
            case .orphanedLog, .orphanedDatabase, .droppedLocks, .twoNames, .mixedModes: false
            }
        }
    }

    package let code: Code
    /// The store.
    package let store: FilePath
    package let holder: FileHolder
    /// The file that the process has open, as the process names it.
    package let held: HeldFile
    /// The file that stands at its name; nil if there is none.
    package let expected: FileIdentity?
    /// The database that the process has open with its side files, if one of them has lost its name.
    package let lost: HeldStore?
    /// The file system's name, or the version of SQLite.
    package let cause: String
    /// The reason why the process's commits can't be followed; nil if they are, or if nobody follows them.
    package var unfollowedReason: String?

    package init(
        _ code: Code, _ store: FilePath, _ holder: FileHolder, _ held: HeldFile, expected: FileIdentity?,
        lost: HeldStore? = nil, cause: String = ""
    ) {
        (self.code, self.store, self.holder) = (code, store, holder)
        (self.held, self.expected, self.lost, self.cause) = (held, expected, lost, cause)
    }

    /// The file in which the process's commits show: its log or, in rollback mode, the former database. Nil if it can't
    /// be found, and for a hazard that is no split. The store's own database is followed by its name.
    package var branchFile: HeldFile? {
        guard code.isSplit else { return nil }
        if let log = lost?.log { return log }
        if code == .orphanedDatabase { return lost?.database }
        return Self.suffix(of: held) == "-wal" ? held : nil
    }

    /// What is the matter, in one sentence that begins with the store's path.
    package var message: String {
        guard let unfollowedReason else { return sentence }
        return "\(sentence); its commits aren't reported: \(unfollowedReason)"
    }

    private var sentence: String {
        let path = "\(PrintablePath(store)): "
        return switch code {
        case .orphanedLog:
            path
                + "\(holder) has \(PrintablePath(held.path)) open, which no longer has its name: nobody else sees what "
                + "the process commits, and it is lost when the process closes the store"
        case .orphanedDatabase:
            path + "\(holder) has the former file of this name open: what the process commits is in no store that "
                + "others open"
        case .droppedLocks:
            path + "\(holder) uses it without locks, because it closed another descriptor of the file, or has the "
                + "connection from its parent process: the next program that closes the store removes the log that the "
                + "process still writes"
        case .twoNames:
            path + "\(holder) has it open as \(PrintablePath(held.path)), with a log or journal of its own: neither "
                + "side sees what the other commits, and a checkpoint of one destroys the other's"
        case .mixedModes:
            path + "\(holder) writes the log without the index \(PrintablePath(store))-shm, which others use: they "
                + "don't see its commits, and may overwrite them"
        case .hiddenWriters:
            path + "on \(cause): writers on other machines, or behind the program that serves the file system, are "
                + "neither seen nor kept out"
        case .oldSQLite:
            path + "\(holder) writes it with SQLite \(cause), beside another program: before "
                + "\(SQLiteVersion.withoutResetBug), SQLite can corrupt a store in write-ahead mode that two connections "
                + "write or checkpoint at once"
        }
    }

    /// What to do, in one line.
    package var remedy: String {
        switch code {
        case .orphanedLog, .orphanedDatabase:
            "keep the process running, and join what it has committed: groupstore rescue \(store.shellWord); if that "
                + "fails, save its files: \(copies)"
        case .droppedLocks: "restart \(holder) before any other program closes the store"
        case .twoNames: "stop \(holder), and let it open \(PrintablePath(store)) by this name in this directory"
        case .mixedModes: "stop \(holder), or every other program that has the store open"
        case .hiddenWriters: "keep shared stores on a local file system"
        case .oldSQLite: "update SQLite in \(holder)"
        }
    }

    /// Commands that copy what the process has open to names that belong together.
    private var copies: String {
        var files: [(file: HeldFile, suffix: String)] = [(held, Self.suffix(of: held))]
        if let lost {
            // In SQLite's order: what is in the database already is in an older log too.
            files = [(lost.database, "")]
            if let log = lost.log { files.append((log, "-wal")) }
            if let journal = lost.journal, lost.log == nil { files.append((journal, "-journal")) }
        }
        return files.map { file, suffix in
            "cp \(file.path(of: holder.pid)) " + store.appending(suffix: ".pid-\(holder.pid)\(suffix)").shellWord
        }.joined(separator: " && ")
    }

    private static func suffix(of file: HeldFile) -> String {
        let name = file.path.lastComponent?.string ?? ""
        return ["-wal", "-shm"].first(where: name.hasSuffix) ?? ""
    }
}
