import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of odd store names. A name may contain any bytes but a slash and NUL.
@Suite(.ownThreads) struct OddNameTests {
    static let names: [Word] = [
        "Notes", "data.data", "my old notes.sqlite", "it's \"quoted\".db", "two\nlines.sqlite", ".hidden",
        "-rf.sqlite", "a;b$(c)`d`.sqlite", "café ☕.sqlite", Word(bytes: [0x66, 0xFF, 0xFE, 0x2E, 0x64, 0x62]),
        Word(bytes: [0xE9]),
    ]

    private func component(_ name: Word) throws -> FilePath.Component {
        try #require(FilePath.Component(bytes: name.bytes))
    }

    /// Creates the store under a plain name, because the `sqlite3` shell takes some odd names for options.
    private func makeOddStore(_ name: Word, _ places: Places) throws -> StoreFiles {
        let plain = try makeStore(places.scratch("plain.sqlite"), rows: 20, unflushed: true)
        let odd = try StoreFiles(places.legacy.appending(component(name)))
        for (part, oddPart) in [
            (plain.name.database, odd.name.database), (plain.name.wal, odd.name.wal),
            (plain.name.support, odd.name.support),
        ] {
            try run("mv", ["--", Word(plain.directory.appending(part)), Word(places.legacy.appending(oddPart))])
        }
        return odd
    }

    private func expectWhole(_ store: StoreFiles, _ support: DirectorySnapshot?, _ name: Word) throws {
        #expect(try noteCount(store.path) == 20, "\(name)")
        #expect(try store.supportSnapshot() == support)
        #expect(support?.entries.isEmpty == false)
    }

    @Test(arguments: Places.FileSystem.allCases)
    func theCommandRelocatesAnyName(_ fileSystem: Places.FileSystem) throws {
        for name in Self.names {
            let places = try Places(fileSystem)
            let legacy = try makeOddStore(name, places)
            let support = try legacy.supportSnapshot()
            let done = try groupstore("relocate", Word(legacy.path), Word(places.group), "--json")
            #expect(done.status == 0, "\(name): \(done.errors)")
            #expect(done.lines.count == done.objects.count, "not all of it is JSON: \(done.output)")
            #expect(done.summary.path("to") == places.group.appending(legacy.name.database).bytes)
            #expect(try holdsLinkAlone(places.legacy, to: places.group.appending(legacy.name.database)))
            try expectWhole(StoreFiles(places.group.appending(legacy.name.database)), support, name)
        }
    }

    @Test func theCommandRenamesAnyName() throws {
        for name in Self.names {
            let places = try Places()
            let legacy = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 20)
            let support = try legacy.supportSnapshot()
            let done = try groupstore("relocate", Word(legacy.path), Word(places.group), "--name=" + name)
            #expect(done.status == 0, "\(name): \(done.errors)")
            try expectWhole(StoreFiles(places.group.appending(component(name))), support, name)
        }
    }

    @Test func theAgentRelocatesAndFollowsAnyName() throws {
        let places = try Places()
        // One agent waits once for all of them to settle.
        let stores = try Self.names.map { try makeOddStore($0, places) }
        let supports = try stores.map { try $0.supportSnapshot() }
        let agent = try AgentProcess(places, legacy: stores.map(\.path))
        let subscriptions = try zip(Self.names, stores).map { name, legacy in
            let connection = try agent.subscribe(name)
            return (connection, isEarly: FileStatus(following: legacy.path) != nil)
        }
        for (number, name) in Self.names.enumerated() {
            let (subscriber, isEarly) = subscriptions[number]
            if isEarly { try subscriber.next("relocated") }
            try awaitRetirement(of: stores[number], agent)
            let published = try StoreFiles(places.group.appending(component(name)))
            try expectWhole(published, supports[number], name)

            try sqlite(published.path, "INSERT INTO note (text) VALUES ('later')")
            // The relocation may end this late, and its event then covers the commit.
            let received = try subscriber.next("change", "relocated")
            #expect(received.path("store") == Array("\(AgentProcess.group)/".utf8) + name.bytes)

            let watch = try RunningProcess(
                Programs.groupstore, ["watch", "\(AgentProcess.group)/" + name, "--json", "--once", "--timeout", "60"],
                environment: agent.environment)
            try watch.line { JSONObject(line: $0)?.type == "subscribed" }
            try sqlite(published.path, "INSERT INTO note (text) VALUES ('later')")
            let done = try watch.wait()
            #expect(done.status == 0, "\(name): \(done.errors)")
        }
    }
}
