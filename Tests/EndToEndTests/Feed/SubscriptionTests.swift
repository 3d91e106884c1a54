import AgentProtocol
import EndToEndSupport
import Foundation
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStore

/// The library's sequence of changes, against agents that stop and restart.
@Suite(.ownThreads, .serialized, .timeLimit(.minutes(60))) struct SubscriptionTests {
    private let places: Places
    private let store: FilePath

    init() throws {
        places = try Places()
        store = places.group.appending("Notes.sqlite")
        try sqlite(store, "PRAGMA journal_mode = WAL; CREATE TABLE note (text)")
    }

    private func agent() throws -> AgentProcess {
        try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
    }

    private func changes(since token: String? = nil) throws -> StoreChanges {
        let address = try #require(StoreAddress(group: AgentProcess.group, name: Array("Notes.sqlite".utf8)))
        return StoreChanges(
            subscription: SubscribeOperation(address, since: token), socket: places.scratch("agent.sock"))
    }

    private func commit() throws { try sqlite(store, "INSERT INTO note VALUES ('one')") }

    private func subscribers(_ connection: WireConnection) throws -> Int64? {
        try connection.send(["id": 1, "op": "status"])
        return try connection.next { $0["id"] == 1 && $0["ok"] != nil }.integer("subscribers")
    }

    /// Returns once the agent has that many subscribers.
    private func awaitSubscribers(_ count: Int64, _ agent: AgentProcess) throws {
        let connection = try agent.connect()
        while try subscribers(connection) != count {}
    }

    @Test func reconnectsAndReportsMissedChanges() async throws {
        var agent = try agent()
        let (seen, list) = AsyncStream.makeStream(of: StoreChange.self)
        let changes = try changes()
        let listener = Task { for try await change in changes { list.yield(change) } }
        var iterator = seen.makeAsyncIterator()
        guard case .reset("subscribed", _)? = await iterator.next() else { throw Unexpected("no reset") }
        try commit()
        guard case .changed(_, _, _, let token)? = await iterator.next() else { throw Unexpected("no change") }

        try agent.process.killAtOnce()
        #expect(await iterator.next() == .disconnected)
        try commit()
        agent = try self.agent()
        #expect(await iterator.next() == .connected(token: token))
        guard case .reset(let reason, _)? = await iterator.next() else { throw Unexpected("no reset") }
        #expect(reason == "epoch")
        try commit()
        guard case .changed? = await iterator.next() else { throw Unexpected("no change") }
        listener.cancel()
        try await listener.value
        // This token comes from the agent that is gone.
        var late = try self.changes(since: token).makeAsyncIterator()
        guard case .reset? = try await late.next() else { throw Unexpected("no reset") }
    }

    /// An app isn't left without changes by an agent that doesn't come back.
    @Test(.soak) func watchesTheStoreItselfOnceTheAgentStaysAway() async throws {
        var agent = try agent()
        let container = try GroupContainer(
            identifier: AgentProcess.group, directory: URL(filePath: places.group.string, directoryHint: .isDirectory))
        let shared = try SharedStore("Notes.sqlite", in: container)
        let reader = ChangeReader(
            ChangeSource(subscription: SubscribeOperation(shared.address), socket: agent.socket, store: shared))
        guard case .reset("subscribed", _)? = try await reader.next() else { throw Unexpected("no reset") }
        try agent.process.killAtOnce()
        #expect(try await reader.next() == .disconnected)
        try commit()
        guard case .reset("epoch", _)? = try await reader.next() else { throw Unexpected("no reset") }
        try commit()
        guard case .changed? = try await reader.next() else { throw Unexpected("no change") }
        agent = try self.agent()
        guard case .connected? = try await reader.next() else { throw Unexpected("not connected") }
        guard case .reset("epoch", _)? = try await reader.next() else { throw Unexpected("no second reset") }
        try commit()
        guard case .changed? = try await reader.next() else { throw Unexpected("no change from the agent") }
        withExtendedLifetime(agent) {}
    }

    @Test func leavesOutOwnRowsAndNamesOthers() async throws {
        #expect(try groupstore("history", "enable", Word(store)).status == 0)
        let shell = try sqliteShell(store)
        let agent = try agent()
        let watcher = try awaitCompleteChanges(agent) { try shell.execute("INSERT INTO note VALUES ('before')") }
        let address = try #require(StoreAddress(group: AgentProcess.group, name: Array("Notes.sqlite".utf8)))
        var subscription = SubscribeOperation(address)
        var filter = RowFilter()
        filter.exceptAuthors = ["me"]
        subscription.filter = HistoryOperation.Filter(filter)
        subscription.wantsRows = true
        var iterator = StoreChanges(subscription: subscription, socket: agent.socket).makeAsyncIterator()
        guard case .reset("subscribed", _)? = try await iterator.next() else { throw Unexpected("no reset") }
        try shell.execute(
            "BEGIN; UPDATE GS_AUTHOR SET name = 'me'; INSERT INTO note VALUES ('mine'); UPDATE GS_AUTHOR SET name = NULL; COMMIT"
        )
        try shell.execute("UPDATE note SET rowid = rowid WHERE 0; INSERT INTO note VALUES ('theirs')")
        let change = try await iterator.next()
        guard case .changed(_, _, let rows?, _)? = change else { throw Unexpected("\(String(describing: change))") }
        #expect(rows.map(\.operation) == [.insert] && rows[0].table == "note" && rows[0].author == nil)
        withExtendedLifetime(watcher) {}
    }

    @Test func continuesFromAToken() async throws {
        let agent = try agent()
        let subscriber = try agent.subscribe("Notes.sqlite")
        try commit()
        let token = try #require(try subscriber.next("change").string("token"))
        try commit()
        let last = try #require(try subscriber.next("change").string("token"))
        var iterator = try changes(since: token).makeAsyncIterator()
        #expect(try await iterator.next()?.token == last)
    }

    /// Returns the library's listener threads in this process, including those of other tests.
    private func listeningThreads() throws -> Set<String> {
        let threads = try Directory("/proc/self/task").names().filter { name in
            let directory = try? Directory(FilePath("/proc/self/task").appending(name))
            let bytes = directory.flatMap { try? DurableFile.read("comm", in: $0) } ?? nil
            return bytes.map { String(decoding: $0, as: UTF8.self) } == "gs-changes\n"
        }
        return Set(threads.map(\.string))
    }

    /// Waits until the threads have ended. A request to the agent between two checks takes time, so the loop doesn't
    /// spin on a thread that tasks share.
    private func awaitEnd(of threads: Set<String>, _ agent: AgentProcess) throws {
        let connection = try agent.connect()
        let deadline = Deadline(after: .ample)
        while try !threads.isDisjoint(with: listeningThreads()) {
            guard !deadline.hasPassed else { throw Unexpected("threads that listen are left") }
            _ = try subscribers(connection)
        }
    }

    @Test func cancellationLeavesNoConnectionOrThread() async throws {
        let agent = try agent()
        let changes = try changes()
        let others = try listeningThreads()
        let tasks = (0..<30).map { _ in Task { for try await _ in changes {} } }
        try awaitSubscribers(30, agent)
        let threads = try listeningThreads().subtracting(others)
        #expect(threads.count >= 30)
        for task in tasks { task.cancel() }
        for task in tasks { try await task.value }
        try awaitSubscribers(0, agent)
        try awaitEnd(of: threads, agent)
        // This task is cancelled between two changes.
        let task = Task {
            var iterator = changes.makeAsyncIterator()
            return (try await iterator.next(), try await iterator.next())
        }
        try awaitSubscribers(1, agent)
        let last = try listeningThreads().subtracting(others)
        #expect(!last.isEmpty)
        try commit()
        #expect(try await task.value.1 != nil)
        try awaitSubscribers(0, agent)
        try awaitEnd(of: last, agent)
    }
}
