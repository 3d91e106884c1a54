import AgentProtocol
import DirectoryWatching
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import GroupStoreAgent

/// Things in the group's directory that a refused store waits for.
@Suite struct ObstacleTests {
    private let scratch: TemporaryDirectory
    private let group: FilePath
    private let stores: LegacyStores
    private let store: LegacyStore

    init() throws {
        scratch = try TemporaryDirectory()
        group = scratch.path.appending("group")
        let directory = try Directory(scratch.path)
        for name: FilePath.Component in ["group", "old"] { try directory.makeDirectory(name, mode: 0o700) }
        let old = scratch.path.appending("old")
        try DurableFile.write(Array("a store".utf8), as: "Notes.sqlite", in: Directory(old), mode: 0o600)
        var configuration = Configuration.Store(
            name: try #require(StoreName("Notes.sqlite")), legacy: [old.appending("Notes.sqlite")])
        configuration.settle = .zero
        let identifier = try #require(GroupIdentifier("group.example"))
        stores = LegacyStores(
            Configuration(groups: [.init(identifier: identifier, directory: group, stores: [configuration])]))
        store = try #require(stores.all.first)
    }

    /// Refuses the store for what is there now.
    private func refuse() {
        store.inspect()
        store.begin()
        store.end {
            store.failed(
                LegacyStore.Failure(state: "refused", code: "not_a_file", detail: "", exitCode: 65), isTransient: false)
        }
    }

    private func report(_ name: FilePath.Component, _ kinds: DirectoryEvent.Kinds) {
        stores.record(.event(DirectoryEvent(directory: group, name: name, kinds: kinds)))
    }

    @Test(
        arguments: [
            "Notes.sqlite", "Notes.sqlite-wal", "Notes.sqlite-shm", "Notes.sqlite-journal", ".Notes_SUPPORT",
            ".groupstore",
        ] as [FilePath.Component], ["mkdir", "mkfifo", "ln -s /nowhere"])
    func retriesARefusalOnceItsObstacleIsGone(_ name: FilePath.Component, _ make: String) throws {
        let words = make.split(separator: " ").map { Word(FilePath(String($0))) }
        try run("env", words + [Word(group.appending(name))])
        refuse()
        report(name, .attributes)
        #expect(!store.shouldTryNow(), "nothing has changed")
        try run("rm", ["-r", Word(group.appending(name))])
        report("other", .deleted)
        #expect(!store.shouldTryNow(), "an event of another file")
        report(name, .deleted)
        #expect(store.shouldTryNow())
    }

    /// Its presenters remove it and make it again whenever an attempt asks them.
    @Test(arguments: ["Notes.sqlite-wal", "Notes.sqlite-shm", "Notes.sqlite-journal"] as [FilePath.Component])
    func theLogOfTheGroupsStoreIsNoObstacle(_ name: FilePath.Component) throws {
        let directory = try Directory(group)
        try DurableFile.write(Array("another store".utf8), as: "Notes.sqlite", in: directory, mode: 0o600)
        refuse()
        try DurableFile.write([1], as: name, in: directory, mode: 0o600)
        report(name, .created)
        #expect(!store.shouldTryNow())
        try run("rm", [Word(group.appending(name))])
        report(name, .deleted)
        #expect(!store.shouldTryNow())
    }

    @Test func retriesARefusalOnceTheGroupsModeHasChanged() throws {
        refuse()
        stores.record(.directoryChanged(group))
        #expect(!store.shouldTryNow())
        try run("chmod", ["0750", Word(group)])
        stores.record(.directoryChanged(group))
        #expect(store.shouldTryNow())
    }

    @Test func retriesARefusalOnceTheLegacyStoresModeHasChanged() throws {
        refuse()
        let event = DirectoryEvent(directory: store.file.directory, name: "Notes.sqlite", kinds: .attributes)
        stores.record(.event(event))
        #expect(!store.shouldTryNow())
        try run("chmod", ["0640", Word(store.file.path)])
        stores.record(.event(event))
        #expect(store.shouldTryNow())
    }

    /// The stores in a group may be busy, and their events would wake the agent for nothing.
    @Test func hearsOfAGroupOnlyWhileAStoreIsRefused() {
        #expect(stores.unheardDirectories == [group])
        refuse()
        #expect(stores.unheardDirectories.isEmpty)
        store.succeeded()
        #expect(stores.unheardDirectories == [group])
    }
}
