import ChangeFeed
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

/// Idle stores in WAL mode, observed with late events. Each test states the events that have arrived.
@Suite(.ownThreads) struct IdleStoreTests {
    private let directory: TemporaryDirectory
    private let store: FilePath
    private let observer: StoreObserver

    init() throws {
        directory = try TemporaryDirectory()
        store = directory.path.appending("Notes.sqlite")
        try ObserverRig.once(store, "PRAGMA journal_mode = WAL; CREATE TABLE note (text)")
        observer = StoreObserver(directory: directory.path, name: try #require(StoreName("Notes.sqlite")))
        observer.attach()
    }

    private func write() throws { try ObserverRig.once(store, "INSERT INTO note VALUES ('x')") }
    private func wasWritten() { observer.recordEvent(.database, created: false, modified: true, removed: false) }
    private func wasOpened() { observer.recordEvent(.sharedMemory, created: true, modified: true, removed: false) }
    private func wasClosed() { observer.recordEvent(.sharedMemory, created: false, modified: false, removed: true) }

    /// Polls once, which leaves it open whether a program or a copy wrote the store.
    private func doubt() {
        let found = observer.poll { nil }
        #expect(found.finding == .unchanged && found.nextPollDelay != nil)
    }

    /// A doubt that one program's events have resolved does not affect the next program.
    @Test func eachDoubtIsIndependent() throws {
        try write()
        wasWritten()
        doubt()
        let reader = try Shell(store)
        wasClosed()
        wasOpened()
        #expect(observer.poll { nil }.finding == .changed)
        // There is no poll between the two.
        try reader.close()
        wasClosed()

        let writer = try Shell(store, "INSERT INTO note VALUES ('y')")
        wasOpened()
        #expect(observer.poll { nil }.finding == .changed)
        try writer.close()
        wasWritten()
        doubt()
        wasClosed()
        #expect(observer.poll { nil }.finding == .unchanged)
    }

    /// A copied-over store was never in a WAL, and the next program to open it reads it.
    @Test(arguments: [true, false]) func findsACopyThatIsOpenedImmediately(_ isDoubted: Bool) throws {
        let copy = directory.path.appending("Copy.sqlite")
        try run("cp", [Word(store), Word(copy)])
        try run("cp", [Word(copy), Word(store)])
        wasWritten()
        if isDoubted { doubt() }
        let reader = try Shell(store)
        wasOpened()
        #expect(observer.poll { nil }.finding == .changed)
        #expect(observer.poll { nil }.finding == .unchanged)
        try reader.close()
        wasClosed()
        #expect(observer.poll { nil }.finding == .unchanged)
    }
}
