import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// Copies a database in rollback mode so that SQLite makes the last committed state of the copy
/// (https://sqlite.org/atomiccommit.html).
///
/// What is in the database is worth something if one can tell what belongs to a transaction that isn't committed. No
/// program is waited for: one in exclusive locking mode keeps its locks between transactions too, and a transaction may
/// stay open for hours.
struct RollbackModeCopy {
    /// Where the journal of a database is.
    enum Journal {
        /// A running program has it open, as the function says. Since another database has the store's name in the
        /// directory, programs that have that one open may have written to the journal: it has the name of theirs.
        /// While the journal still had a name, which ended by `entriesChanged` at the latest, any program may have.
        case held(FilePath.Component, Directory, entriesChanged: Int64?, () -> BranchFile?)
        /// It has its name, as the function says. A crash may have left it.
        case named(() -> BranchFile?)
    }

    let database: BranchFile
    let journal: Journal

    /// Copies the database, and the journal if it is needed, once. Returns nil if they are being written, or if nothing
    /// proves which state is committed.
    ///
    /// - Returns: The database's status, and the time of its last write.
    func run(to place: StoreLocation) throws -> (FileStatus, Int64)? {
        let source = try database.open()
        let before = try source.status(path: database.path)
        // Before a program writes pages into the database, it locks all readers out.
        let isWritten = mayBeWritten(source)
        // A write from now on must be seen by the time of the file.
        guard FileTime.isSettled(before.modified) else { return nil }
        func copyDatabase() throws { try database.copy(source, as: place.name.database, in: place.directory) }
        switch journal {
        case .held(let name, let directory, let entriesChanged, let journal) where isWritten:
            let sharedSince = directory.birth(name)
            guard let found = journal() else { return nil }
            let isProof = try copy(found, to: place, after: copyDatabase) { isHot, journal in
                let isBefore = sharedSince.map { Self.isBefore(journal.modified, $0) } ?? false
                // Another program's transaction would be rolled back into this database.
                if isHot { return try isBefore && RollbackJournal.isWhole(place.name.journal, in: place.directory) }
                // SQLite ends a transaction in the journal, after its last write to the database. A later write is one
                // that this journal doesn't cover.
                guard journal.modified >= before.modified else { return false }
                // A program alone writes to a journal that has no name any more.
                let isWrittenSince = journal.links == 0 && journal.modified == journal.changed
                // An empty journal has nothing that shows who has emptied it.
                if journal.size == 0 {
                    return isWrittenSince && entriesChanged.map { Self.isBefore($0, journal.modified) } ?? false
                }
                let end = try EndedTransaction(place.name.journal, of: place.name.database, in: place.directory)
                return end == .committed || end != nil && (isBefore || isWrittenSince)
            }
            guard isProof else { return nil }
        case .named(let journal) where try !isWritten || isWAL(source):
            if let found = journal() {
                guard try copy(found, to: place, after: copyDatabase, { _, _ in true }) else { return nil }
            } else {
                try copyDatabase()
            }
        case .held: try copyDatabase()
        case .named: return nil
        }
        let after = try source.status(path: database.path)
        guard after == before, mayBeWritten(source) == isWritten else { return nil }
        return (after, before.modified)
    }

    /// False if no transaction can have written pages that aren't committed. Before a program writes pages into the
    /// database, it locks all readers out. One that closed the file beside SQLite has lost its locks.
    private func mayBeWritten(_ source: borrowing Descriptor) -> Bool {
        if DatabaseLocks.mayBeExclusive(on: source) { return true }
        guard case .held(_, _, _, let journal) = journal else { return false }
        return DatabaseLocks.areFree(on: source) && journal() != nil
    }

    /// True if a time is certainly before another one.
    private static func isBefore(_ time: Int64, _ other: Int64) -> Bool {
        time + FileTime.resolution.nanoseconds < other
    }

    /// True for a database in WAL mode: commits go to a log, also those of a program in exclusive locking mode, which
    /// has all locks on the database as long as it has the store open. Its log belongs to a branch. A checkpoint shows
    /// by the database's times.
    private func isWAL(_ source: borrowing Descriptor) throws -> Bool {
        let header = try source.read(count: DatabaseHeader.length, at: 0, path: database.path)
        return DatabaseHeader(header)?.journalMode == .writeAhead
    }

    /// Copies the journal, after `copyDatabase`. Returns false if it is written meanwhile, or if `isProof` says of the
    /// copy, hot or not, and the journal's status, that it doesn't prove a state.
    private func copy(
        _ journal: BranchFile, to place: StoreLocation, after copyDatabase: () throws -> Void,
        _ isProof: (Bool, FileStatus) throws -> Bool
    ) throws -> Bool {
        let file: Descriptor
        do { file = try journal.open() } catch is BranchFile.Lost { return false }
        let before = try file.status(path: journal.path)
        guard FileTime.isSettled(before.modified) else { return false }
        try copyDatabase()
        try journal.copy(file, as: place.name.journal, in: place.directory)
        guard try file.status(path: journal.path) == before else { return false }
        let isHot = try RollbackJournal.isHot(place.name.journal, in: place.directory)
        // A transaction over several stores: SQLite would look at the others, and remove what belongs to all of them.
        if isHot, try SuperJournal.name(in: place) != nil { return false }
        return try isProof(isHot, before)
    }
}
