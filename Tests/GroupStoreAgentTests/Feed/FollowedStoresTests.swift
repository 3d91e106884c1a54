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
@testable import StoreWatching

@Suite struct FollowedStoresTests {
    private let store: StoreAddress
    private let notes: Configuration.Store

    init() throws {
        store = try #require(StoreAddress(bytes: Array("group.example/Notes.sqlite".utf8)))
        notes = Configuration.Store(
            name: try #require(StoreName("Notes.sqlite")), legacy: ["/nowhere/old/Notes.sqlite"])
    }

    private func subscribed(_ server: RunningServer) throws -> TestClient {
        let client = try server.connect()
        let reply = try client.ask(#"{"id":1,"op":"subscribe","store":"group.example/Notes.sqlite"}"#, id: 1)
        #expect(reply.bool("ok") == true)
        return client
    }

    private func types(_ count: Int, _ client: TestClient) throws -> [String?] {
        try (0..<count).map { _ in try client.next()?.string("type") }
    }

    @Test func watchesConfiguredStoresWithoutSubscribers() throws {
        let server = try RunningServer(stores: [notes])
        let client = try subscribed(server)
        #expect(server.source.watched[server.group]?.contains(.modified) == true)
        #expect(server.source.watched["/nowhere/old"]?.contains(.closedAfterReading) == true)
        #expect(server.source.watched["/nowhere/old"]?.contains(.modified) == false)
        withExtendedLifetime(client) {}
    }

    /// At the start, and for later subscriptions.
    @Test func logsAnUnwatchableDirectoryOnce() throws {
        let server = try RunningServer()
        let client = try server.connect()
        server.source.setFull(true)
        let subscribe = #"{"id":1,"op":"subscribe","store":"group.example/Notes.sqlite"}"#
        for _ in 1...3 {
            #expect(try client.ask(subscribe, id: 1).object("error")?.string("code") == "not_watchable")
        }
        let identifier = try #require(GroupIdentifier("group.example"))
        let new = Configuration(groups: [.init(identifier: identifier, directory: server.group, stores: [notes])])
        for _ in 1...2 { server.feedThread.perform { $0.configure(FollowingPlan(new)) } }
        #expect(try client.ask(subscribe, id: 1).object("error")?.string("code") == "not_watchable")
        for directory in [server.group, "/nowhere/old"] {
            let lines = server.logged.all.filter { $0.contains("\(directory.string) can't be watched") }
            #expect(lines.count == 1)
            #expect(lines.allSatisfy { $0.contains("ENOSPC") && $0.contains("sysctl -w fs.inotify.max_user_watches") })
        }
        server.source.setFull(false)
        #expect(try client.ask(subscribe, id: 1).bool("ok") == true)
        #expect(server.logged.all.filter { $0.hasSuffix("\(server.group.string) is watched now") }.count == 1)
    }

    @Test func passesLegacyDirectoryEventsToTheScheduler() throws {
        let server = try RunningServer(stores: [notes])
        let client = try subscribed(server)
        let event = DirectoryEvent(directory: "/nowhere/old", name: "Notes.sqlite", kinds: .movedIn)
        let other = DirectoryEvent(directory: server.group, name: "Notes.sqlite-wal", kinds: .modified)
        server.source.emit(.event(other), .event(event), .directoryVanished("/nowhere/old"), .overflow)
        // The reset comes after the scheduler's notice.
        #expect(try types(1, client) == ["reset"])
        #expect(
            Array(server.scheduler.seen.suffix(3)) == [.event(event), .directoryVanished("/nowhere/old"), .overflow])
        #expect(!server.scheduler.seen.contains(.event(other)))
    }

    /// What lies at a legacy store's name in its group may be gone, or the directory may be written to.
    @Test func passesNamesInAGroupAndItsModeToTheScheduler() throws {
        let server = try RunningServer(stores: [notes])
        let client = try subscribed(server)
        let event = DirectoryEvent(directory: server.group, name: "Notes.sqlite", kinds: .deleted)
        let write = DirectoryEvent(directory: server.group, name: "Notes.sqlite", kinds: .closedAfterWriting)
        server.source.emit(.event(write), .event(event), .directoryChanged(server.group), .overflow)
        #expect(try types(1, client) == ["reset"])
        #expect(Array(server.scheduler.seen.suffix(3)) == [.event(event), .directoryChanged(server.group), .overflow])
        #expect(!server.scheduler.seen.contains(.event(write)))
    }

    @Test func publishesEventsAnnouncedDuringAReleaseAtItsEnd() throws {
        let server = try RunningServer(stores: [notes])
        let client = try subscribed(server)
        server.feed.announce(.relocating(waitingFor: []), of: store)
        try server.feed.release(store)
        #expect(try types(1, client) == ["relocating"])
        let status = try client.ask(#"{"id":2,"op":"status"}"#, id: 2)
        #expect(status.bool("ok") == true)
        try DurableFile.write([], as: "Notes.sqlite", in: Directory(server.group), mode: 0o600)
        server.feed.announce(.relocated(from: [0x2F], to: [0x2F]), of: store)
        server.feed.resume(store)
        server.feed.announce(.reset(.overflow), of: store)
        #expect(try types(2, client) == ["relocated", "reset"])
    }

    /// The store may have been written while it was not watched.
    @Test func publishesAChangeAfterAReleaseWithoutARelocation() throws {
        let server = try RunningServer(stores: [notes], files: ["Notes.sqlite"])
        let client = try subscribed(server)
        try server.feed.release(store)
        server.feed.resume(store, announcing: .abandoned(outcome: "busy", message: ""))
        #expect(try types(2, client) == ["change", "abandoned"])
    }

    /// A relocation that waits for another process releases the store repeatedly, which is no change while nobody
    /// writes.
    @Test(arguments: [false, true]) func publishesAChangeAfterASilentReleaseOnlyIfTheStoreWasWritten(_ writes: Bool)
        throws
    {
        let server = try RunningServer(stores: [notes], files: ["Notes.sqlite"])
        let client = try subscribed(server)
        // A file that was just written may be written again without a visible change.
        let status = try #require(FileStatus(following: server.group.appending("Notes.sqlite")))
        while !FileTime.isSettled(status.changed) { sched_yield() }
        try server.feed.release(store)
        if writes { try DurableFile.write([1], as: "Notes.sqlite", in: Directory(server.group), mode: 0o600) }
        server.feed.resume(store)
        server.feed.announce(.reset(.overflow), of: store)
        #expect(try types(writes ? 2 : 1, client) == (writes ? ["change", "reset"] : ["reset"]))
    }

    /// A store that isn't followed when it is released isn't opened by a subscription in between.
    @Test func subscriptionDoesNotEndARelease() throws {
        let server = try RunningServer()
        try server.feed.release(store)
        let client = try subscribed(server)
        var states: [String?] = []
        try client.send(#"{"id":2,"op":"status"}"# + "\n")
        while let line = try client.next(), line["ok"] == nil {
            if line.string("type") == "store" { states.append(line.string("state")) }
        }
        #expect(states == ["released"])
        server.feed.resume(store, announcing: .relocated(from: [0x2F], to: [0x2F]))
        #expect(try types(1, client) == ["relocated"])
    }

    /// No event reports these writes.
    @Test func pollsStoresAfterASuspension() throws {
        let server = try RunningServer(stores: [notes])
        let path = Word(server.group.appending("Notes.sqlite"))
        #expect(try run("sqlite3", [path, "CREATE TABLE note (text)"]).status == 0)
        server.source.emit(.overflow)
        let client = try subscribed(server)
        #expect(try run("sqlite3", [path, "INSERT INTO note VALUES ('milk')"]).status == 0)
        server.feedThread.perform { [store] stores in
            stores.busy = [store]
            do { try stores.suspendModifyEvents(for: .milliseconds(1)) } catch { Issue.record(error) }
        }
        #expect(try types(1, client) == ["change"])
    }

    /// If a directory can't be watched any more, subscribers are sent a reset, and later a change for commits made
    /// meanwhile.
    @Test func reportsAndRetriesAnUnwatchableDirectory() throws {
        let server = try RunningServer(stores: [notes], files: ["Notes.sqlite"])
        let client = try subscribed(server)
        #expect(try state(client) == "following")
        server.source.refuse(server.group)
        server.source.emit(.unwatchable(server.group, SystemError("inotify_add_watch", .noSpace, path: server.group)))
        #expect(try client.next()?.string("reason") == "unreadable")
        let rows = try statusRows(client)
        #expect(rows.first?.string("state") == "unwatched")
        #expect(rows.first?.string("detail")?.contains("max_user_watches") == true, "\(rows)")
        let refused = try server.connect()
        let reply = try refused.ask(#"{"id":1,"op":"subscribe","store":"group.example/Notes.sqlite"}"#, id: 1)
        #expect(reply.object("error")?.string("code") == "not_watchable")
        server.source.allow(server.group)
        #expect(try types(1, client) == ["change"])
        #expect(try state(client) == "following")
    }

    /// Writes through another link of its file raise no event, so the store is not followed.
    @Test func reportsAndRetriesUnwatchableHardLinks() throws {
        let server = try RunningServer(stores: [notes], files: ["Notes.sqlite"])
        let client = try subscribed(server)
        server.source.setFull(true)
        let path = server.group.appending("Notes.sqlite")
        #expect(try run("ln", [Word(path), Word(server.group.appending("other"))]).status == 0)
        let event = DirectoryEvent(directory: server.group, name: "Notes.sqlite", kinds: .attributes)
        server.source.emit(.event(event))
        #expect(try client.next()?.string("reason") == "unreadable")
        let rows = try statusRows(client)
        #expect(rows.first?.string("state") == "unwatched")
        #expect(rows.first?.string("detail")?.contains("max_user_watches") == true, "\(rows)")
        let reply = try server.connect().ask(#"{"id":1,"op":"subscribe","store":"group.example/Notes.sqlite"}"#, id: 1)
        #expect(reply.object("error")?.string("code") == "not_watchable")
        server.source.setFull(false)
        // The link changed the file's status. A poll that is due may publish that before the retry.
        let other = try server.connect()
        var change = try client.next()
        while change?.string("type") == "change", try state(other) == "unwatched" { change = try client.next() }
        #expect(change?.string("type") == "change")
        #expect(try state(other) == "following")
    }

    /// A subscriber must not rely on a store that isn't followed.
    @Test func reportsAReconfiguredStoreThatIsUnreadable() throws {
        let server = try RunningServer(stores: [notes], files: ["Notes.sqlite"])
        let client = try subscribed(server)
        server.feedThread.perform { $0.configure(FollowingPlan(Configuration())) }
        #expect(try client.next()?.string("reason") == "unconfigured")
        server.source.refuse(server.group)
        let identifier = try #require(GroupIdentifier("group.example"))
        let group = Configuration.Group(identifier: identifier, directory: server.group, stores: [])
        server.feedThread.perform { $0.configure(FollowingPlan(Configuration(groups: [group]))) }
        #expect(try client.next()?.string("reason") == "unreadable")
        server.source.allow(server.group)
        var event = try client.next()
        while event?.string("reason") == "unreadable" { event = try client.next() }
        #expect(event?.string("type") == "change")
    }

    @Test func reportsAnUnwatchedStoreAtTheEndOfARelease() throws {
        let server = try RunningServer(stores: [notes], files: ["Notes.sqlite"])
        let client = try subscribed(server)
        try server.feed.release(store)
        server.source.refuse(server.group)
        server.source.emit(.unwatchable(server.group, SystemError("inotify_add_watch", .noSpace, path: server.group)))
        server.feed.resume(store, announcing: .abandoned(outcome: "busy", message: ""))
        #expect(try types(3, client) == ["change", "abandoned", "reset"])
        #expect(try state(client) == "unwatched")
    }

    /// There were descriptors for it before, and there are some again later.
    @Test func reportsAndRetriesASubscribedStoreWithoutDescriptors() throws {
        let budget = DescriptorBudget(limit: 64)
        let server = try RunningServer(files: ["Notes.sqlite"], descriptors: budget)
        let client = try subscribed(server)
        server.feedThread.perform { [group = server.group] stores in
            stores.configure(FollowingPlan(Configuration()))
            while budget.reserve(.store) {}
            guard let identifier = GroupIdentifier("group.example") else { return }
            stores.configure(
                FollowingPlan(Configuration(groups: [.init(identifier: identifier, directory: group, stores: [])])))
        }
        #expect(try client.next()?.string("reason") == "unconfigured")
        #expect(try client.next()?.string("reason") == "unreadable")
        budget.release(.store)
        #expect(try client.next()?.string("reason") == "appeared")
    }

    /// A subscription that would exceed the budget is refused at once.
    @Test func refusesAStoreWithoutDescriptors() throws {
        let server = try RunningServer(
            files: (1...7).compactMap { FilePath.Component("\($0)") }, descriptors: DescriptorBudget(limit: 64))
        let client = try server.connect()
        func subscribe(_ number: Int) throws -> JSONObject { try self.subscribe("\(number)", client) }
        for number in 1...6 { #expect(try subscribe(number).bool("ok") == true) }
        let refused = try subscribe(7).object("error")
        #expect(refused?.string("code") == "not_watchable")
        #expect(refused?.string("message")?.contains("files open") == true, "\(refused?.text ?? "")")
        let ended = try client.ask(#"{"id":8,"op":"unsubscribe","store":"group.example/1"}"#, id: 8)
        #expect(ended.bool("ok") == true)
        #expect(try subscribe(7).bool("ok") == true)
    }

    /// A client may subscribe to any number of names, and that must cost no other client its stores.
    @Test func aNameWithoutAStoreHasNoDescriptors() throws {
        let server = try RunningServer(files: ["Notes.sqlite"], descriptors: DescriptorBudget(limit: 64))
        let (client, other) = (try server.connect(), try server.connect())
        for number in 1...100 { #expect(try subscribe("\(number)", client).bool("ok") == true) }
        #expect(try subscribe("Notes.sqlite", other).bool("ok") == true)
        let group = try Directory(server.group)
        func change(_ number: Int, _ make: (FilePath.Component) throws -> Void) throws -> String? {
            let name = try #require(FilePath.Component("\(number)"))
            try make(name)
            let event = DirectoryEvent(directory: server.group, name: name, kinds: [.created, .deleted])
            server.source.emit(.event(event))
            return try client.next()?.string("reason")
        }
        // What comes to a name is counted then, as any store.
        var reasons: [String?] = []
        repeat {
            reasons.append(
                try change(reasons.count + 1) { _ = try group.open($0, flags: O_WRONLY | O_CREAT, mode: 0o600) })
        } while reasons.last == "appeared" && reasons.count < 100
        #expect(reasons.last == "unreadable" && reasons.count < 10)
        #expect(try change(1) { try group.removeFile($0) } == "vanished")
        #expect(try client.next()?.string("reason") == "appeared")
    }

    private func subscribe(_ name: String, _ client: TestClient) throws -> JSONObject {
        try client.ask(#"{"id":"\#(name)","op":"subscribe","store":"group.example/\#(name)"}"#, id: .string(name))
    }

    private func state(_ client: TestClient) throws -> String? { try statusRows(client).first?.string("state") }

    private func statusRows(_ client: TestClient) throws -> [JSONObject] {
        try client.send(#"{"id":99,"op":"status"}"# + "\n")
        var rows: [JSONObject] = []
        while let line = try client.next(), line["ok"] == nil {
            if line.string("type") == "store" { rows.append(line) }
        }
        return rows
    }

    @Test func resetsAStoreWhoseGroupIsNoLongerConfigured() throws {
        let server = try RunningServer(stores: [notes])
        let client = try subscribed(server)
        server.feedThread.perform { $0.configure(FollowingPlan(Configuration())) }
        let gone = try client.next()
        #expect(gone?.string("reason") == "unconfigured")
        let identifier = try #require(GroupIdentifier("group.example"))
        let group = Configuration.Group(identifier: identifier, directory: server.group, stores: [])
        server.feedThread.perform { $0.configure(FollowingPlan(Configuration(groups: [group]))) }
        #expect(try client.next()?.string("type") == "reset")
        server.source.emit(.overflow)
        #expect(try client.next()?.string("reason") == "overflow")
    }
}
