import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import StoreHazards

/// A Python program that executes the lines that it is sent, each with an answer.
private struct Holder {
    private let process: RunningProcess
    var pid: pid_t { process.pid }

    /// Opens a store with `open()` as `c`, after which it is in WAL mode and has a commit.
    init(_ path: FilePath) throws {
        let program = """
            import fcntl, mmap, os, sqlite3, sys
            for line in sys.stdin:
                exec(line)
                print("done", flush=True)
            """
        process = try RunningProcess("python3", ["-c", Word(program), Word(path)])
        try run("path = sys.argv[1]")
        try run("c = sqlite3.connect(path, isolation_level=None)")
    }

    func run(_ line: String) throws {
        process.send(Word(line))
        let answer = try process.line()
        guard answer == "done" else {
            throw Unexpected("\(line): \(answer ?? "ended"), \(try process.line(.errors) ?? "without an error")")
        }
    }

    func insert() throws { try run("c.execute('INSERT INTO t VALUES (1)')") }
}

@Suite(.ownThreads) struct HazardScanTests {
    private let scratch: TemporaryDirectory
    private let store: FilePath

    init() throws {
        scratch = try TemporaryDirectory()
        store = scratch.path.appending("Notes.sqlite")
    }

    private func side(_ suffix: String) -> String { store.string + suffix }

    /// Returns a process that has the store open in WAL mode, and has committed.
    private func holder(_ path: FilePath? = nil) throws -> Holder {
        let holder = try Holder(path ?? store)
        try holder.run("c.execute('PRAGMA journal_mode = WAL')")
        try holder.run("c.execute('CREATE TABLE IF NOT EXISTS t (a)')")
        try holder.insert()
        return holder
    }

    private func hazards() throws -> [StoreHazard] {
        let name = try #require(store.lastComponent.flatMap { StoreName($0) })
        let scan = HazardScan([(name, try Directory(scratch.path))], readsLogs: true)
        return scan.hazards()
    }

    private func codes() throws -> [String] { try hazards().map { "\($0.code.rawValue) \($0.holder.pid)" } }

    @Test func findsNothingWhereProgramsShareAStore() throws {
        let (first, second) = (try holder(), try holder())
        #expect(try hazards().isEmpty)
        try first.run("c.execute('BEGIN IMMEDIATE')")
        #expect(try hazards().isEmpty)
        try first.run("c.execute('COMMIT'), c.execute('PRAGMA wal_checkpoint(TRUNCATE)')")
        try second.run("d = sqlite3.connect(path); d.execute('SELECT * FROM t').fetchall(); d.close()")
        #expect(try hazards().isEmpty)
        try second.run("c.close()")
        #expect(try hazards().isEmpty)
        try first.run("c.execute('PRAGMA locking_mode = EXCLUSIVE'), c.execute('INSERT INTO t VALUES (2)')")
        #expect(try hazards().isEmpty)
        try first.run("c.execute('PRAGMA journal_mode = DELETE')")
        #expect(try hazards().isEmpty)
    }

    @Test(arguments: ["-wal", "-shm"]) func findsAnUnlinkedLogOrIndex(suffix: String) throws {
        let first = try holder()
        #expect(unlink(side(suffix)) == 0)
        let found = try hazards()
        #expect(found.map(\.code) == [.orphanedLog])
        #expect(found.first?.holder.pid == first.pid)
        #expect(found.first?.held.path.string == side(suffix) && found.first?.expected == nil)
        try first.run("c.close()")
        #expect(try hazards().isEmpty)
    }

    @Test func findsEachProgramWhoseLogWasReplaced() throws {
        let first = try holder()
        for suffix in ["-wal", "-shm"] { #expect(unlink(side(suffix)) == 0) }
        let second = try holder()
        #expect(try codes() == ["orphaned_log \(first.pid)"])
        try first.run("c.close()")
        #expect(try hazards().isEmpty)
        try second.insert()
    }

    @Test func theRemedySavesTheLog() throws {
        let first = try holder()
        #expect(unlink(side("-wal")) == 0)
        let remedy = try #require(try hazards().first?.remedy)
        let command = try #require(remedy.split(separator: ": ", maxSplits: 1).last)
        #expect(try run("sh", ["-c", Word(String(command))]).status == 0)
        let saved = FileStatus(following: FilePath(side(".pid-\(first.pid)-wal")))
        #expect((saved?.size ?? 0) > 4096)
    }

    @Test func findsARenamedLog() throws {
        let first = try holder()
        #expect(rename(side("-wal"), side(".wal.bak")) == 0)
        #expect(try codes() == ["orphaned_log \(first.pid)"])
        #expect(try hazards().first?.held.path.string == side(".wal.bak"))
        #expect(rename(side("-shm"), side(".shm.bak")) == 0)
        #expect(try codes() == ["orphaned_log \(first.pid)"])
    }

    @Test(arguments: ["mv", "unlink", "remove"]) func findsAFormerDatabase(_ manner: String) throws {
        let first = try holder()
        let copy = scratch.path.appending("copy")
        #expect(try run("sqlite3", [Word(copy), "CREATE TABLE t (a)"]).status == 0)
        if manner != "mv" { #expect(unlink(store.string) == 0) }
        if manner != "remove" { #expect(rename(copy.string, store.string) == 0) }
        let found = try hazards()
        #expect(found.map(\.code) == [.orphanedDatabase])
        #expect(found.first?.held.path == store)
        try first.run("c.close()")
        #expect(try hazards().isEmpty)
    }

    /// The process is found by the name of its unlinked file alone, to which the kernel appends " (deleted)".
    @Test(arguments: ["Notes.sqlite", "Notes.sqlite (deleted)", "Notes"])
    func findsAFormerDatabaseOfWhichNoFileIsLeft(_ last: String) throws {
        let path = scratch.path.appending(last)
        let first = try holder(path)
        for suffix in ["", "-wal", "-shm"] { #expect(unlink(path.string + suffix) == 0) }
        let name = try #require(path.lastComponent.flatMap { StoreName($0) })
        let found = HazardScan([(name, try Directory(scratch.path))]).hazards()
        #expect(found.map(\.code) == [.orphanedDatabase])
        #expect(found.first?.holder.pid == first.pid && found.first?.held.path == path)
        let other = try #require(StoreName("Other.sqlite"))
        #expect(HazardScan([(other, try Directory(scratch.path))]).hazards().isEmpty)
    }

    /// The log stays at the store's name, and the next program takes it for the new file's.
    @Test func findsADatabaseThatWasRenamedWithoutItsLog() throws {
        let first = try holder()
        #expect(rename(store.string, side(".bak")) == 0)
        #expect(try run("cp", [Word(side(".bak")), Word(store)]).status == 0)
        let found = try hazards()
        #expect(found.map(\.code) == [.orphanedDatabase])
        #expect(found.first?.holder.pid == first.pid && found.first?.held.path.string == side(".bak"))
    }

    /// https://sqlite.org/howtocorrupt.html, §2.2
    @Test func findsLocksThatARawCloseDropped() throws {
        let (first, second) = (try holder(), try holder())
        try first.run("os.close(os.open(path, os.O_RDONLY))")
        #expect(try codes() == ["dropped_locks \(first.pid)"])
        try first.run("c.close(); c = sqlite3.connect(path, isolation_level=None)")
        try first.insert()
        #expect(try hazards().isEmpty)
        try second.run("c.close()")
        #expect(try hazards().isEmpty)
    }

    /// A child has its parent's descriptors and none of its locks, and need not use them.
    @Test func acceptsAForkedChild() throws {
        let first = try holder()
        // The child waits for its parent's end: two that answer interleave their lines.
        try first.run("r, w = os.pipe(); child = os.fork() or (os.close(w), os.read(r, 1), os._exit(0))")
        #expect(try hazards().isEmpty)
    }

    @Test func findsAStoreWithTwoNames() throws {
        let first = try holder()
        let other = scratch.path.appending("Other.sqlite")
        #expect(link(store.string, other.string) == 0)
        #expect(try hazards().isEmpty, "nobody uses the other name")
        let second = try Holder(other)
        try second.run("c.execute('SELECT * FROM sqlite_schema').fetchall()")
        let found = try hazards()
        #expect(found.map(\.code) == [.twoNames])
        #expect(found.first?.holder.pid == second.pid && found.first?.held.path == other)
        _ = first.pid
    }

    @Test func acceptsASymbolicLink() throws {
        let first = try holder()
        let other = scratch.path.appending("Other.sqlite")
        #expect(symlink(store.string, other.string) == 0)
        let second = try holder(other)
        #expect(try hazards().isEmpty)
        #expect(first.pid != second.pid)
    }

    @Test func acceptsAProgramThatCopiesTheFiles() throws {
        let first = try holder()
        let second = try Holder(scratch.path.appending("elsewhere"))
        try second.run("path = sys.argv[1].replace('elsewhere', 'Notes.sqlite')")
        try second.run("files = [open(path + suffix, 'rb') for suffix in ('', '-wal', '-shm')]")
        #expect(try hazards().isEmpty)
        #expect(first.pid != second.pid)
    }

    @Test func findsAWriterWithoutAnIndex() throws {
        let first = try holder()
        let second = try Holder(store)
        try second.run("a = os.open(path, os.O_RDWR); b = os.open(path + '-wal', os.O_RDWR)")
        #expect(try codes() == ["mixed_modes \(second.pid)"])
        _ = first.pid
    }

    @Test func readsTheKernelsLocks() {
        let locks = RecordLocks(
            """
            1: POSIX  ADVISORY  READ 708 08:01:2097168 128 128
            2: OFDLCK ADVISORY  WRITE -1 08:01:11 0 EOF
            3: POSIX  ADVISORY  WRITE 12 00:1b:33 1073741824 1073742335
            3: -> POSIX  ADVISORY  WRITE 13 00:1b:33 1073741824 1073742335
            """)
        #expect(locks.has(708, on: FileIdentity(device: 5, inode: 2_097_168)))
        #expect(locks.has(12, on: FileIdentity(device: 5, inode: 33)))
        #expect(!locks.has(13, on: FileIdentity(device: 5, inode: 33)))
        #expect(!locks.has(-1, on: FileIdentity(device: 5, inode: 11)))
    }
}
