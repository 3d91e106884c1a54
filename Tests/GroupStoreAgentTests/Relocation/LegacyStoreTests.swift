import AgentProtocol
import DirectoryWatching
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import GroupStoreAgent

@Suite struct LegacyStoreTests {
    /// The agent reads a journal to learn whether it is hot, which raises events like any other read.
    @Test func ignoresReadsOfSideFiles() throws {
        let scratch = try TemporaryDirectory()
        let hot: [UInt8] = [0xD9, 0xD5, 0x05, 0xF9, 0x20, 0xA1, 0x63, 0xD7] + [UInt8](repeating: 0, count: 504)
        try DurableFile.write(hot, as: "Notes.sqlite-journal", in: Directory(scratch.path), mode: 0o600)
        let store = Configuration.Store(
            name: try #require(StoreName("Notes.sqlite")), legacy: [scratch.path.appending("Notes.sqlite")])
        let identifier = try #require(GroupIdentifier("group.example"))
        let stores = LegacyStores(
            Configuration(groups: [.init(identifier: identifier, directory: "/nowhere", stores: [store])]))
        stores.inspectAll()
        let due = try #require(stores.dueAt)
        for kinds: DirectoryEvent.Kinds in [.opened, .closedAfterReading, [.opened, .closedAfterReading]] {
            stores.record(.event(DirectoryEvent(directory: scratch.path, name: "Notes.sqlite-journal", kinds: kinds)))
            #expect(stores.dueAt == due)
        }
        // A written one is half of another store.
        let written = DirectoryEvent(directory: scratch.path, name: "Notes.sqlite-journal", kinds: .created)
        stores.record(.event(written))
        #expect(stores.dueAt != due)
    }

    /// Another store may take the relocated store's place before the attempt is over.
    @Test(arguments: [LegacyStore.State.relocated, .empty])
    func retriesAStoreThatArrivesDuringAnAttempt(_ outcome: LegacyStore.State) throws {
        let scratch = try TemporaryDirectory()
        let path = scratch.path.appending("Notes.sqlite")
        let directory = try Directory(scratch.path)
        try directory.makeDirectory("group", mode: 0o700)
        var configuration = Configuration.Store(name: try #require(StoreName("Notes.sqlite")), legacy: [path])
        configuration.settle = .zero
        let address = try #require(StoreAddress(group: "group.example", name: Array("Notes.sqlite".utf8)))
        let store = try #require(LegacyStore(path, of: address, in: scratch.path.appending("group"), configuration))
        try DurableFile.write([], as: "Notes.sqlite", in: directory, mode: 0o600)
        store.inspect()
        #expect(store.shouldTryNow())
        if outcome == .relocated { store.begin() }
        try DurableFile.write(Array("another store".utf8), as: "Notes.sqlite", in: directory, mode: 0o600)
        if outcome == .relocated { store.end { store.succeeded() } } else { store.succeeded(outcome) }
        store.record(.database, .closedAfterWriting)
        #expect(store.shouldTryNow())
        // A store that nobody has changed since is not retried.
        store.succeeded(outcome)
        store.record(.database, .closedAfterWriting)
        #expect(!store.shouldTryNow())
    }
}
