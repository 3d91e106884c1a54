import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import SQLiteFormat

/// A log compared with its database.
@Suite(.ownThreads) struct CheckpointedLogTests {
    private let scratch: TemporaryDirectory
    private let holder: SQLiteHolder
    private var store: FilePath { scratch.path.appending("Notes.sqlite") }
    private var log: FilePath { scratch.path.appending("Notes.sqlite-wal") }

    /// A program that has committed rows on several pages, and checkpoints on request only.
    init() throws {
        scratch = try TemporaryDirectory()
        holder = try SQLiteHolder(scratch.path.appending("Notes.sqlite"))
        try holder.run("c.execute('PRAGMA journal_mode = WAL').fetchall()")
        try holder.run("c.execute('PRAGMA wal_autocheckpoint = 0').fetchall(); c.execute('CREATE TABLE t (a)')")
        try holder.run("c.executemany('INSERT INTO t VALUES (?)', [('x' * 900,) for i in range(40)])")
    }

    private func checkpoint() throws { try holder.run("c.execute('PRAGMA wal_checkpoint').fetchall()") }

    /// Compares copies of the files: closing a descriptor of the files themselves is no concern of this process.
    private func isCheckpointed(
        changing suffix: String = "", at offset: Int64 = 0, to bytes: [UInt8] = []
    ) throws -> Bool {
        let copy = scratch.path.appending("copy")
        for side in ["", "-wal"] {
            #expect(try run("cp", [Word(store.string + side), Word(copy.string + side)]).status == 0)
        }
        let changed = FilePath(copy.string + suffix)
        if !bytes.isEmpty { try Descriptor(opening: changed, flags: O_WRONLY).write(bytes, at: offset, path: changed) }
        let log = FilePath(copy.string + "-wal")
        return try WriteAheadLog.isCheckpointed(
            Descriptor(opening: log, flags: O_RDONLY), into: Descriptor(opening: copy, flags: O_RDONLY), path: log)
    }

    @Test func aDatabaseHasALogOnceItIsCheckpointed() throws {
        #expect(try !isCheckpointed())
        try checkpoint()
        #expect(try isCheckpointed())
        // The log is begun anew; the former frames follow.
        try holder.run("c.execute('INSERT INTO t VALUES (1)')")
        #expect(try !isCheckpointed())
        try checkpoint()
        #expect(try isCheckpointed())
    }

    /// SQLite copies no page beyond the database's end.
    @Test func comparesNoPageThatTheLastCommitHasCutOff() throws {
        try holder.run("c.execute('DELETE FROM t'), c.execute('VACUUM')")
        try checkpoint()
        let size = try #require(FileStatus(following: store)).size
        #expect(size < 40 * 900)
        #expect(try isCheckpointed())
    }

    @Test func noticesAnyOtherContent() throws {
        try checkpoint()
        // The end of a leaf page, the schema's cookie and the freelist; then the change counters and SQLite's version.
        for offset: Int64 in [2 * 4096 + 4000, 40, 36] {
            #expect(try !isCheckpointed(at: offset, to: [7]), "\(offset)")
        }
        #expect(try isCheckpointed(at: 24, to: [7, 7, 7, 7]))
        #expect(try isCheckpointed(at: 92, to: [7, 7, 7, 7, 7, 7, 7, 7]))
    }

    @Test func acceptsAnotherJournalMode() throws {
        try checkpoint()
        #expect(try isCheckpointed(at: 18, to: [1, 1]))
    }

    /// A commit may have been in what is damaged.
    @Test func provesNothingByADamagedLog() throws {
        try checkpoint()
        #expect(try !isCheckpointed(changing: "-wal", at: 0, to: [0, 0, 0, 0]), "the header")
        #expect(try !isCheckpointed(changing: "-wal", at: 32 + 24 + 100, to: [7]), "a frame")
        #expect(truncate(log.string, 0) == 0)
        #expect(try isCheckpointed(), "an empty log")
    }
}
