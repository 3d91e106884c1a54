import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import StoreHazards

@Suite(.ownThreads) struct HazardScanTests {
    private let scratch: TemporaryDirectory
    private let store: FilePath

    init() throws {
        scratch = try TemporaryDirectory()
        store = scratch.path.appending("Notes.sqlite")
    }

    private func side(_ suffix: String) -> String { store.string + suffix }

    /// Returns a process that has the store open in WAL mode, and has committed.
    private func holder(_ path: FilePath? = nil) throws -> SQLiteHolder {
        let holder = try SQLiteHolder(path ?? store)
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

    /// A file system that is local, and one writer or a forked child, are no cause to warn.
    @Test func warnsOfAnOldVersionBesideAnotherWriter() throws {
        let name = try #require(store.lastComponent.flatMap { StoreName($0) })
        let scan = HazardScan([(name, try Directory(scratch.path))], warningsBy: SQLiteVersions())
        let first = try holder()
        try first.run("r, w = os.pipe(); os.fork() or (os.close(w), os.read(r, 1), os._exit(0))")
        #expect(scan.hazards().isEmpty)
        let second = try holder()
        let version = try #require(LoadedSQLite.version(inProcess: first.pid))
        let found = scan.hazards()
        #expect(found.map(\.code) == (version < .withoutResetBug ? [.oldSQLite] : []))
        #expect(found.allSatisfy { [first.pid, second.pid].contains($0.holder.pid) && $0.code.isWarning })
        #expect(try hazards().isEmpty, "doctor finds it in another way")
        try second.end()
        #expect(scan.hazards().isEmpty)
    }

    /// A program that watches stores reads no file of another process, and knows the log by what it was.
    @Test func findsALogAndIndexThatWereBothRenamedByTheirFormerNames() throws {
        let name = try #require(store.lastComponent.flatMap { StoreName($0) })
        let known = KnownSideFiles()
        let scan = HazardScan([(name, try Directory(scratch.path))], recordingIn: known)
        let (first, second) = (try holder(), try holder(scratch.path.appending("Other.sqlite")))
        #expect(scan.hazards().isEmpty)
        for suffix in ["-wal", "-shm"] {
            #expect(rename(side(suffix), scratch.path.appending("elsewhere\(suffix).bak").string) == 0)
        }
        let found = try #require(scan.hazards().first)
        #expect(found.code == .orphanedLog && found.holder.pid == first.pid && found.lost?.log?.links == 1)
        #expect(found.lost?.index != nil && found.lost?.log != found.lost?.index)
        // Another one has its own log, and a new one has another.
        let third = try holder()
        #expect(scan.hazards().map(\.holder.pid) == [first.pid])
        try first.end()
        #expect(scan.hazards().isEmpty)
        for holder in [second, third] { try holder.end() }
    }

    /// The next program that opens the store makes another index, and neither sees what the other commits.
    @Test(arguments: [false, true]) func findsAnIndexThatWasRenamed(readsLogs: Bool) throws {
        let name = try #require(store.lastComponent.flatMap { StoreName($0) })
        let known = readsLogs ? nil : KnownSideFiles()
        let scan = HazardScan([(name, try Directory(scratch.path))], readsLogs: readsLogs, recordingIn: known)
        let holder = try holder()
        #expect(scan.hazards().isEmpty)
        #expect(rename(side("-shm"), side("-shm.bak")) == 0)
        let found = try #require(scan.hazards().first)
        #expect(found.code == .orphanedLog && found.held.path.string == side("-shm.bak"))
        #expect(found.lost?.log?.path.string == side("-wal") && found.lost?.index == found.held)
        try holder.end()
        #expect(scan.hazards().isEmpty)
    }

    /// A backup tool has a log open, other files, and no database.
    @Test(arguments: ["-wal", "-shm"]) func takesNoReaderOfALogForAWriter(_ suffix: String) throws {
        let writer = try holder()
        let reader = try SQLiteHolder(scratch.path.appending("Other.sqlite"))
        try reader.run("files = [open(path + 'x', 'w'), open('\(side(suffix))', 'r+b')]")
        #expect(try hazards().isEmpty)
        try writer.run("c.close()")
        #expect(try hazards().isEmpty)
    }

    /// The inode number of a removed log is given to the next file.
    @Test func takesNoOtherFileForAFormerLog() throws {
        let name = try #require(store.lastComponent.flatMap { StoreName($0) })
        let scan = HazardScan([(name, try Directory(scratch.path))], recordingIn: KnownSideFiles())
        let holder = try holder()
        #expect(scan.hazards().isEmpty)
        try holder.run("c.execute('PRAGMA journal_mode = DELETE')")
        let files = scratch.path.appending("file").string
        try holder.run("files = [open('\(files)%d' % n, 'w') for n in range(100)]")
        #expect(scan.hazards().isEmpty)
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

    /// The saved files are a store, with what only the log had.
    @Test(arguments: [["-wal"], ["-wal", "-shm"], ["-shm"], ["", "-wal", "-shm"]])
    func theRemedySavesTheLog(lost: [String]) throws {
        let first = try holder()
        for suffix in lost { #expect(unlink(side(suffix)) == 0) }
        #expect(try savedRows(first) == "1\n")
    }

    @Test func theRemedySavesARenamedLog() throws {
        let first = try holder()
        #expect(rename(side("-wal"), side("-wal.bak")) == 0)
        #expect(try savedRows(first) == "1\n")
    }

    /// The transaction that is open is in the saved database, and its journal rolls it back.
    @Test func theRemedySavesTheJournal() throws {
        let first = try holder()
        try first.run("c.execute('PRAGMA journal_mode = DELETE'); c.execute('PRAGMA locking_mode = EXCLUSIVE')")
        try first.run("c.execute('PRAGMA cache_size = 1'); c.execute('BEGIN')")
        try first.run("c.executemany('INSERT INTO t VALUES (?)', [('x' * 900,) for i in range(300)])")
        #expect(unlink(store.string) == 0)
        #expect(try savedRows(first) == "1\n")
    }

    /// Returns the number of rows in what the first hazard's commands save.
    private func savedRows(_ holder: SQLiteHolder) throws -> String {
        let remedy = try #require(try hazards().first?.remedy)
        let command = try #require(remedy.split(separator: ": ").last)
        let done = try run("sh", ["-c", Word(String(command))])
        #expect(done.status == 0, "\(command): \(done.errors)")
        return try run("sqlite3", [Word(side(".pid-\(holder.pid)")), "SELECT count(*) FROM t"]).output
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

    /// In other modes the kernel shows nothing of the store between transactions.
    @Test func findsADatabaseThatWasRenamedInExclusiveMode() throws {
        let first = try holder()
        try first.run("c.execute('PRAGMA journal_mode = DELETE'); c.execute('PRAGMA locking_mode = EXCLUSIVE')")
        try first.insert()
        #expect(rename(store.string, side(".bak")) == 0)
        #expect(try run("cp", [Word(side(".bak")), Word(store)]).status == 0)
        let found = try hazards()
        #expect(found.map(\.code) == [.orphanedDatabase])
        #expect(found.first?.held.path.string == side(".bak") && found.first?.lost?.journal != nil)
    }

    /// A program has the former file and the store.
    @Test(arguments: ["DELETE", "WAL"]) func findsAFormerDatabaseBesideTheStore(mode: String) throws {
        let first = try holder()
        try first.run("c.execute('PRAGMA journal_mode = \(mode)').fetchall()")
        let copy = scratch.path.appending("copy")
        #expect(try run("sqlite3", [Word(copy), "CREATE TABLE t (a)"]).status == 0)
        for suffix in ["-wal", "-shm"] { unlink(side(suffix)) }
        #expect(rename(copy.string, store.string) == 0)
        try first.run("d = sqlite3.connect(path); d.execute('PRAGMA journal_mode = \(mode)').fetchall()")
        try first.run("d.execute('SELECT * FROM t').fetchall()")
        let found = try hazards()
        #expect(found.map(\.code) == [.orphanedDatabase])
        #expect(found.first?.expected != found.first?.held.identity && found.first?.held.links == 0)
        #expect((found.first?.lost?.log != nil) == (mode == "WAL"))
        #expect(found.first?.lost?.log?.links ?? 0 == 0)
    }

    /// A rescue moves the log of a renamed database from the store's name into the archive.
    @Test func findsAProgramWhoseLogIsInTheArchive() throws {
        let first = try holder()
        let archive = scratch.path.appending(".groupstore/archive/1-a")
        #expect(try run("mkdir", ["-p", Word(archive)]).status == 0)
        #expect(rename(store.string, side(".bak")) == 0)
        for suffix in ["-wal", "-shm"] {
            #expect(rename(side(suffix), archive.appending("Notes.sqlite\(suffix)").string) == 0)
        }
        #expect(try run("cp", [Word(side(".bak")), Word(store)]).status == 0)
        let found = try hazards()
        #expect(found.map(\.code) == [.orphanedDatabase])
        #expect(found.first?.holder.pid == first.pid && found.first?.lost?.log?.path.starts(with: archive) == true)
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

    /// The child waits for a byte, and reads then. The other program keeps the log.
    @Test func acceptsAForkedChildWhoseParentHasClosedTheStoreUntilItUsesIt() throws {
        let (first, second) = (try holder(), try holder())
        try second.insert()
        try first.run("(r, w), (s, t) = os.pipe(), os.pipe()")
        let work = "os.read(r, 1), c.execute('SELECT * FROM t').fetchall(), os.write(t, b'x'), os.read(r, 1)"
        try first.run("child = os.fork() or (os.close(w), \(work), os._exit(0))")
        try first.run("c.close()")
        #expect(access(side("-wal"), F_OK) == 0)
        #expect(try hazards().isEmpty)
        // A read takes a lock for as long as it lasts, and leaves the pages.
        try first.run("os.write(w, b'x'); os.read(s, 1)")
        let found = try hazards()
        #expect(found.map(\.code) == [.droppedLocks] && found.first?.holder.pid != first.pid)
        try first.run("os.close(w); os.waitpid(child, 0)")
        #expect(try hazards().isEmpty)
    }

    /// The parent was the last to close the store, which removed the log. The child waits for a byte, and commits then.
    @Test func acceptsAForkedChildThatKeepsALogOpenUntilItUsesIt() throws {
        let first = try holder()
        try first.run("(r, w), (s, t) = os.pipe(), os.pipe()")
        let work = "os.read(r, 1), c.execute('INSERT INTO t VALUES (2)'), os.write(t, b'x'), os.read(r, 1)"
        try first.run("child = os.fork() or (os.close(w), \(work), os._exit(0))")
        try first.run("c.close()")
        #expect(access(side("-wal"), F_OK) != 0)
        #expect(try hazards().isEmpty)
        try first.run("os.write(w, b'x'); os.read(s, 1)")
        let found = try hazards()
        #expect(found.map(\.code) == [.orphanedLog] && found.first?.holder.pid != first.pid)
        try first.run("os.close(w); os.waitpid(child, 0)")
        #expect(try hazards().isEmpty)
    }

    /// A parent in exclusive locking mode has no index that could show whether the child uses the files. To end in the
    /// usual way, the child writes the log over what others have committed since.
    @Test func findsAForkedChildWhoseParentHadNoIndex() throws {
        let first = try SQLiteHolder(store)
        try first.run("c.execute('PRAGMA locking_mode = EXCLUSIVE').fetchall()")
        try first.run("c.execute('PRAGMA journal_mode = WAL').fetchall(); c.execute('CREATE TABLE t (a)')")
        try first.insert()
        try first.run("r, w = os.pipe(); child = os.fork() or (os.close(w), os.read(r, 1), os._exit(0))")
        try first.run("c.close()")
        #expect(try hazards().map(\.code) == [.orphanedLog])
        try first.run("os.close(w); os.waitpid(child, 0)")
        #expect(try hazards().isEmpty)
    }

    /// A later program writes the log without the index that the child has, and hasn't read.
    @Test func acceptsAForkedChildBesideAProgramWithoutAnIndex() throws {
        let first = try holder()
        try first.insert()
        let end = scratch.path.appending("end")
        #expect(mkfifo(end.string, 0o600) == 0)
        try first.run("child = os.fork() or (os.closerange(0, 3), open('\(end)').read(), os._exit(0))")
        try first.kill()
        let second = try SQLiteHolder(store)
        try second.run("c.execute('PRAGMA locking_mode = EXCLUSIVE').fetchall(); c.execute('INSERT INTO t VALUES (3)')")
        #expect(access(side("-shm"), F_OK) == 0)
        #expect(try hazards().isEmpty)
        _ = try Descriptor(opening: end, flags: O_WRONLY)
        _ = second.pid
    }

    @Test func findsAStoreWithTwoNames() throws {
        let first = try holder()
        let other = scratch.path.appending("Other.sqlite")
        #expect(link(store.string, other.string) == 0)
        #expect(try hazards().isEmpty, "nobody uses the other name")
        let second = try SQLiteHolder(other)
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
        let second = try SQLiteHolder(scratch.path.appending("elsewhere"))
        try second.run("path = sys.argv[1].replace('elsewhere', 'Notes.sqlite')")
        try second.run("files = [open(path + suffix, 'rb') for suffix in ('', '-wal', '-shm')]")
        #expect(try hazards().isEmpty)
        #expect(first.pid != second.pid)
    }

    @Test func findsAWriterWithoutAnIndex() throws {
        let first = try holder()
        let second = try SQLiteHolder(store)
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

@Suite struct HeldFileTests {
    /// A process that closed a descriptor of the file would drop its locks.
    @Test func theBirthOfAHeldFileLeavesTheLocksAlone() throws {
        let scratch = try TemporaryDirectory()
        let directory = try Directory(scratch.path)
        let file = try directory.open("file", flags: O_RDWR | O_CREAT, mode: 0o600)
        var lock = flock()
        lock.l_type = Int16(F_WRLCK)
        #expect(fcntl(file.raw, F_SETLK, &lock) == 0)
        let held = try #require(HeldFile.of(getpid(), only: [file.status().identity]).first)
        #expect(held.birth(of: getpid()) == directory.birth("file"))
        #expect(RecordLocks()?.has(getpid(), on: held.identity) == true)
    }
}
