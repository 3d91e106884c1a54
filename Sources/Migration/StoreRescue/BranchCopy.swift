import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage

/// A copy of a branch, or of what stands at the store's name, as a store of its own in rollback mode.
struct BranchCopy {
    let location: StoreLocation
    /// The number of commits in the log, and the time of the last write to the branch, in nanoseconds since 1970.
    let commits: Int
    let lastWrite: Int64
    /// True if the branch was in WAL mode.
    let hadWAL: Bool
    /// The branch as its copy's record has it; nil for the store at the name.
    let record: ArchiveNote.Branch?

    /// In exclusive locking mode, SQLite counts the first transaction only, and the journal of a later one has no copy
    /// of the page with the count.
    private static let proofRemedy =
        "try again once the program's transaction has ended; if the program is in exclusive locking mode, let it leave "
        + "that mode (PRAGMA locking_mode = NORMAL, and a read) or, while no other program has the store open, remove "
        + "the name of the program's journal and let it commit once more"

    /// The number of attempts, of those without a reader's locks, and of those that insist on a database that nobody
    /// writes meanwhile.
    private static let attempts = (all: 50, unlocked: 5, still: 10)

    /// Copies the files into a directory, whole up to the last commit, and lets SQLite make a store of them.
    ///
    /// The database is copied before its log. What its own programs checkpoint meanwhile is in the log too, as long as
    /// that is not begun anew: so both are copied again if the log's header has changed. A program that begins its log
    /// anew all the time is kept from it by a reader's locks while its files are copied.
    ///
    /// - Parameters:
    ///   - database: The database. The process must have no SQLite connection to it.
    ///   - log: Its write-ahead log; nil for none.
    ///   - journal: The rollback journal of a database without a log.
    ///   - index: The log's index, which programs lock; nil for none.
    ///   - indexes: All indexes of the log, whose commits it must have.
    ///   - ownWriters: True if only programs with this log can write the database.
    ///   - subject: A phrase for messages: `what notes (pid 4711) has open`.
    ///   - external: The store whose external data belongs to the copy too.
    ///   - record: A description that is kept beside the copy, which then has the database's owner and mode too.
    /// - Throws: `RelocationFailure` if the files are gone, are never still, or are damaged.
    init(
        _ database: BranchFile, _ log: BranchFile?, journal: RollbackModeCopy.Journal = .named { nil },
        index: BranchFile? = nil, indexes: [BranchIndex] = [], ownWriters: Bool, in directory: Directory,
        of store: FilePath, subject: String, external: StoreLocation? = nil, record: BranchRecord? = nil
    ) throws {
        guard let building = StoreName.existing(SavedBranches.unfinishedName),
            let finished = StoreName.existing(SavedBranches.finishedName)
        else { throw StoreError.notAFile(directory.path) }
        let place = StoreLocation(directory: directory, name: building)
        // First: what is left of a copy without a record has no owner.
        try record?.write(in: directory)
        let reported = indexes.map { ($0, $0.file.lastCommit) }
        let copied: (FileStatus, Int64)?
        do {
            if let log {
                copied = try Self.copy(database, log, index, to: place, ownWriters: ownWriters)
            } else {
                copied = try Self.trying(in: place) { _ in
                    try RollbackModeCopy(database: database, journal: journal).run(to: place)
                }
            }
        } catch is BranchFile.Lost where !database.isHeld {
            throw RelocationFailure(
                .busy, code: "in_use",
                "\(PrintablePath(store)): another program has replaced or removed it while it was copied",
                remedy: "try again")
        }
        guard let (status, lastWrite) = copied else {
            throw RelocationFailure(
                .busy, code: "in_use",
                "\(PrintablePath(store)): \(subject) is written all the time, or nothing on the disk proves what of it "
                    + "is committed",
                remedy: log == nil && database.isHeld
                    ? Self.proofRemedy : "try again once the program has committed its next transaction")
        }
        if ownWriters, log != nil, let foreign = try place.foreignLog() {
            throw Self.damaged(subject, store, foreign.description, isHeld: database.isHeld)
        }
        for (index, commit) in reported where log != nil {
            guard let finding = try place.loss(index, commit, of: indexes.count) else { continue }
            throw Self.damaged(subject, store, finding, isHeld: database.isHeld)
        }
        if let log, log.isLost, try place.hasHeaderlessLog() {
            throw Self.damaged(subject, store, "its log has no valid header", isHeld: database.isHeld)
        }
        self.lastWrite = lastWrite
        let logged = try LoggedPages(place)
        commits = logged.commits
        let hadWAL = try log != nil || StoreSnapshotHeader.isWAL(place)
        self.hadWAL = hadWAL
        let findings: [String]
        do {
            try Self.settle(place)
            let hidden = try logged.hidden(place)
            findings = try StoreReader.read(place) { try $0.integrityFindings() } + [hidden].compactMap(\.self)
        } catch let error as StoreError where !error.isOfSystem {
            throw Self.damaged(subject, store, "\(error)", isHeld: database.isHeld)
        } catch let error as StoreError where Self.lacksInode(error, in: directory) {
            throw SystemError("open", .noSpace, path: error.path)
        }
        if let first = findings.first { throw Self.damaged(subject, store, first, isHeld: database.isHeld) }
        try directory.open(building.database, flags: O_RDWR).synchronize(path: place.path)
        if var record {
            record.branch.hadWAL = hadWAL
            let copy = try directory.open(building.database, flags: O_RDWR)
            do {
                let source = try database.open()
                try copy.copyAttributes(of: source, source.status(path: database.path), path: place.path)
                try copy.synchronize(path: place.path)
            } catch is BranchFile.Lost {
                // The process has ended since. The copy is whole, and its owner must be able to read it.
                try keepOwner(status, of: copy.raw, path: place.path)
            }
            try record.write(in: directory)
            self.record = record.branch
        } else {
            self.record = nil
        }
        // External data is beside the name for all sides.
        try external?.copySupport(to: StoreLocation(directory: directory, name: finished))
        try directory.rename(building.database, to: finished.database, in: directory, .refuse)
        try directory.synchronize()
        location = StoreLocation(directory: directory, name: finished)
    }

    /// Calls `body` with the number of the attempt, on a place without files, until it returns a value.
    private static func trying<Result>(in place: StoreLocation, _ body: (Int) throws -> Result?) throws -> Result? {
        for attempt in 0..<attempts.all {
            for name in [place.name.database] + place.name.sideFiles { try place.directory.removeFile(name) }
            if let result = try body(attempt) { return result }
            pause(.milliseconds(20))
        }
        return nil
    }

    /// Copies a database and its log. Returns nil if they always changed in a way that makes the copies disagree.
    private static func copy(
        _ database: BranchFile, _ log: BranchFile, _ index: BranchFile?, to place: StoreLocation, ownWriters: Bool
    ) throws -> (FileStatus, Int64)? {
        // Open for all attempts: a program that ends meanwhile takes nothing away.
        let source = try database.open()
        let file = try log.open()
        var lock: BranchReadLock?
        return try trying(in: place) { attempt in
            if attempt >= attempts.unlocked, lock == nil, let index { lock = BranchReadLock(database, index) }
            let before = try source.status(path: database.path)
            let header = try file.read(count: headerLength, at: 0, path: log.path)
            try database.copy(source, as: place.name.database, in: place.directory)
            let status = try file.status(path: log.path)
            try log.copy(file, as: place.name.wal, in: place.directory, limit: status.size)
            guard try file.read(count: headerLength, at: 0, path: log.path) == header else { return nil }
            let after = try source.status(path: database.path)
            guard after == before || ownWriters && attempt >= attempts.still else { return nil }
            if lock != nil {
                lock = nil
                // The locks have kept a program that has ended since from its last checkpoint.
                if log.isLost, try file.read(count: headerLength, at: 0, path: log.path) == header {
                    try place.directory.removeFile(place.name.wal)
                    try log.copy(file, as: place.name.wal, in: place.directory)
                }
            }
            return (after, max(before.modified, status.modified))
        }
    }

    /// The size of a log's header (https://sqlite.org/fileformat2.html, §4.1), which has the salts.
    private static let headerLength = 32

    /// Lets SQLite recover the log up to its last commit, and leaves one file in rollback mode.
    static func settle(_ place: StoreLocation) throws {
        do {
            let writer = try StoreWriter(place.pathForSQLite)
            try writer.execute("PRAGMA synchronous = OFF")
            _ = try writer.integer("PRAGMA wal_checkpoint(TRUNCATE)")
            guard try writer.text("PRAGMA journal_mode = DELETE") == "delete" else {
                throw StoreError.busy(place.path)
            }
        }
        // An empty log, or one of a database in rollback mode, is no part of the store.
        for name in place.name.sideFiles { try place.directory.removeFile(name) }
    }

    /// True if SQLite found no inode for a journal. It says only that it can't open a file (SQLITE_CANTOPEN).
    private static func lacksInode(_ error: StoreError, in directory: Directory) -> Bool {
        error.code.map { $0 & 0xFF } == 14 && (try? directory.fileSystem().availableFiles) == 0
    }

    private static func damaged(
        _ subject: String, _ store: FilePath, _ finding: String, isHeld: Bool
    ) -> RelocationFailure {
        RelocationFailure(
            .badData, code: "branch_damaged", "\(PrintablePath(store)): \(subject) is damaged: \(finding)",
            remedy: isHeld
                ? "keep the process running, and save its files: groupstore doctor \(store.shellWord) names them"
                : "copy what the other programs have committed, and join it by other means: "
                    + "groupstore rescue --copy-only \(store.shellWord)")
    }
}

extension StoreLocation {
    fileprivate func hasHeaderlessLog() throws -> Bool {
        let log = try directory.open(name.wal, flags: O_RDONLY)
        return try WriteAheadLog.hasLostItsHeader(log, path: directory.path.appending(name.wal))
    }

    /// Returns a phrase on the commits that an index has reported and the copied log lacks; nil if it has them.
    fileprivate func loss(_ index: BranchIndex, _ reported: WriteAheadIndex?, of count: Int) throws -> String? {
        guard let reported else { return nil }
        let log = try directory.open(name.wal, flags: O_RDONLY)
        let path = directory.path.appending(name.wal)
        guard try WriteAheadLog.has(reported, log, path: path) else {
            return "its log has lost commits that \(index) has: another program has overwritten them"
        }
        // A program that begins its log anew says so in its index first (wal.c, `walRestartHdr`), once the database has
        // all commits. So another program did it. One with an index of its own knows the commits that the database has;
        // what was put over the log, such as an older copy of it, follows on another state.
        guard try !WriteAheadLog.isOfSession(reported, log, path: path),
            let now = index.file.lastCommit, now.hasSameHeader(as: reported),
            now.backfilledFrame < now.lastFrame || count == 1 && now.lastFrame > 0
        else { return nil }
        return "its log was begun anew or overwritten by another program, and nothing shows that the database has the "
            + "commits that \(index) has"
    }
}

/// The journal mode that a database's header states.
enum StoreSnapshotHeader {
    static func isWAL(_ place: StoreLocation) throws -> Bool {
        let file = try place.directory.open(place.name.database, flags: O_RDONLY)
        let bytes = try file.read(count: DatabaseHeader.length, at: 0, path: place.path)
        return DatabaseHeader(bytes)?.journalMode == .writeAhead
    }
}
