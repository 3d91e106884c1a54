import ChangeFeed
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

/// Stores in WAL mode that nobody has open, seen with events that come late: each test says which have come.
struct SuspendedEventTests {
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
    private func wasWritten() { observer.note(.database, created: false, modified: true, removed: false) }
    private func wasOpened() { observer.note(.sharedMemory, created: true, modified: true, removed: false) }
    private func wasClosed() { observer.note(.sharedMemory, created: false, modified: false, removed: true) }

    /// Looks once, which leaves the doubt whether a program or a copy has written.
    private func doubt() {
        let found = observer.look()
        #expect(found.finding == .unchanged && found.lookAgain != nil)
    }

    /// A doubt that a program's events have settled is none about the next program's.
    @Test func eachDoubtHasItsTime() throws {
        try write()
        wasWritten()
        doubt()
        let reader = try Shell(store)
        wasClosed()
        wasOpened()
        #expect(observer.look().finding == .changed)
        // It isn't looked at between the two.
        try reader.close()
        wasClosed()

        let writer = try Shell(store, "INSERT INTO note VALUES ('y')")
        wasOpened()
        #expect(observer.look().finding == .changed)
        try writer.close()
        wasWritten()
        doubt()
        wasClosed()
        #expect(observer.look().finding == .unchanged)
    }

    /// What was copied over the store was never in a log, and who opens it next reads it.
    @Test(arguments: [true, false]) func aCopyThatIsOpenedAtOnceIsFound(_ isDoubted: Bool) throws {
        let copy = directory.path.appending("Copy.sqlite")
        try run("cp", [Word(store), Word(copy)])
        try run("cp", [Word(copy), Word(store)])
        wasWritten()
        if isDoubted { doubt() }
        let reader = try Shell(store)
        wasOpened()
        #expect(observer.look().finding == .changed)
        #expect(observer.look().finding == .unchanged)
        try reader.close()
        wasClosed()
        #expect(observer.look().finding == .unchanged)
    }
}
