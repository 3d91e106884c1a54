import FoundationEssentials
import GroupContainers
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStore

/// Changes that an app hears of without an agent.
@Suite(.timeLimit(.minutes(10))) struct DirectChangeTests {
    private let scratch: TemporaryDirectory
    private let store: FilePath
    private let url: URL

    init() throws {
        scratch = try TemporaryDirectory()
        store = scratch.path.appending("Notes.sqlite")
        url = URL(filePath: store.string, directoryHint: .notDirectory)
        try sqlite(
            "PRAGMA journal_mode = WAL; CREATE TABLE note (text); CREATE TABLE note_tag (text); "
                + "CREATE TABLE known (id)")
    }

    private func sqlite(_ sql: String) throws {
        let done = try run("sqlite3", [Word(store), Word(sql)])
        guard done.status == 0 else { throw Unexpected("sqlite3: \(done.errors)") }
    }

    /// Commits until a change names its tables. Those of the first changes are unknown until the store was read.
    private func awaitTables(_ changes: inout StoreChanges.Iterator, commit: () -> Void) async throws {
        repeat { commit() } while try #require(try await changes.next()).tables == nil
    }

    @Test func deliversOtherProcessesCommits() async throws {
        var changes = StoreChanges(of: url).makeAsyncIterator()
        guard case .reset("subscribed", _)? = try await changes.next() else { throw Unexpected("no reset") }
        for _ in 1...3 {
            try sqlite("INSERT INTO note VALUES ('one')")
            guard case .changed? = try await changes.next() else { throw Unexpected("no change") }
        }
        try run("rm", [Word(store)])
        while true {
            if case .reset("vanished", _)? = try await changes.next() { break }
        }
    }

    /// The watching thread ends with its last subscription, and its next run counts anew: a subscription that ends
    /// twice must not end another one.
    @Test func aSubscriptionThatEndsTwiceEndsNoOther() throws {
        func subscription() throws -> DirectSubscription {
            let new = try DirectSubscription(store, since: nil, tables: nil, namesTables: false)
            _ = try #require(try new.next(within: .ample))
            return new
        }
        for _ in 0..<5 {
            let first = try subscription()
            first.end()
            pause(.milliseconds(5))
            let second = try subscription()
            first.end()
            try sqlite("INSERT INTO note VALUES ('one')")
            _ = try #require(try second.next(within: .seconds(60)))
            second.end()
            pause(.milliseconds(5))
        }
    }

    /// A slow consumer gets one change for many.
    @Test func joinsTheChangesThatNobodyTakes() async throws {
        let shell = try RunningProcess("sqlite3", [Word(store)])
        shell.send("SELECT count(*) FROM note;")
        try shell.line { $0 == "0" }
        var changes = StoreChanges(of: url).makeAsyncIterator()
        _ = try await changes.next()
        try await awaitTables(&changes) { shell.send("INSERT INTO known VALUES (1);") }
        for table in ["note", "note_tag"] {
            shell.send(Word("INSERT INTO \(table) VALUES ('one'); SELECT '\(table)';"))
        }
        try shell.line { $0 == "note_tag" }
        var tables: Set<String> = []
        while !tables.contains("note_tag") {
            let change = try #require(try await changes.next())
            tables.formUnion(try #require(change.tables))
        }
        tables.remove("known")
        #expect(tables == ["note", "note_tag"])
        shell.closeInput()
    }

    @Test func leavesOutOtherTables() async throws {
        let shell = try RunningProcess("sqlite3", [Word(store)])
        shell.send("SELECT count(*) FROM note;")
        try shell.line { $0 == "0" }
        var changes = StoreChanges(of: url, tables: ["NOTE_tag"]).makeAsyncIterator()
        _ = try await changes.next()
        // A change whose tables aren't known might be one of these.
        try await awaitTables(&changes) { shell.send("INSERT INTO note_tag VALUES ('one');") }
        for table in ["note", "note", "note_tag"] { shell.send(Word("INSERT INTO \(table) VALUES ('one');")) }
        let tables = try #require(try await changes.next()).tables
        #expect(try #require(tables).contains("note_tag"))
        shell.closeInput()
    }

    @Test func continuesAfterAToken() async throws {
        var changes = StoreChanges(of: url).makeAsyncIterator()
        let token = try #require(try await changes.next()?.token)
        try sqlite("INSERT INTO note VALUES ('one')")
        var later = StoreChanges(of: url, since: token).makeAsyncIterator()
        guard case .changed(nil, false, nil, _)? = try await later.next() else { throw Unexpected("no change") }
        var foreign = StoreChanges(of: url, since: "another-1").makeAsyncIterator()
        guard case .reset("epoch", _)? = try await foreign.next() else { throw Unexpected("no reset") }
    }

    @Test func endsWithItsTask() async throws {
        let changes = StoreChanges(of: url)
        for _ in 1...20 {
            let task = Task { for try await _ in changes {} }
            await Task.yield()
            task.cancel()
            try await task.value
        }
        // The thread that watched them has ended, and the next one begins.
        var iterator = changes.makeAsyncIterator()
        guard case .reset? = try await iterator.next() else { throw Unexpected("no reset") }
    }

    @Test func manySubscribersHearEverything() async throws {
        let counts = try await withThrowingTaskGroup(of: Int.self) { group in
            let ready = Log()
            for number in 1...10 {
                group.addTask { [url] in
                    var count = 0
                    for try await change in StoreChanges(of: url) {
                        if case .reset = change { ready.note("ready \(number)") }
                        count += 1
                        if case .reset("vanished", _) = change { break }
                    }
                    return count
                }
            }
            for number in 1...10 { await ready.has("ready \(number)") }
            try sqlite("INSERT INTO note VALUES ('one')")
            try run("rm", [Word(store)])
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(counts.count == 10)
    }

    @Test func throwsForADirectory() async throws {
        var changes = StoreChanges(of: URL(filePath: scratch.path.string)).makeAsyncIterator()
        await #expect(throws: GroupStoreError.self) { try await changes.next() }
        #expect(try await changes.next() == nil)
    }

    /// Without an agent, the changes of a shared store say so and come all the same.
    @Test func aSharedStoreNeedsNoAgent() async throws {
        let container = try GroupContainer(
            identifier: "group.example", directory: URL(filePath: scratch.path.string, directoryHint: .isDirectory))
        let shared = try SharedStore("Notes.sqlite", in: container)
        let source = ChangeSource(
            subscription: .init(shared.address), socket: scratch.path.appending("none"), store: shared)
        let reader = ChangeReader(source)
        #expect(try await reader.next() == .disconnected)
        guard case .reset("subscribed", _)? = try await reader.next() else { throw Unexpected("no reset") }
        try sqlite("INSERT INTO note VALUES ('one')")
        guard case .changed? = try await reader.next() else { throw Unexpected("no change") }
    }
}
