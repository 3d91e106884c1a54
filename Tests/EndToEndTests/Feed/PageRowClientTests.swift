import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStore

/// The rows that an agent tells from the pages of a store without history, as Swift and Python have them.
@Suite(.ownThreads, .timeLimit(.minutes(60))) struct PageRowClientTests {
    private static let table = "PRAGMA journal_mode = WAL; CREATE TABLE item (id INTEGER PRIMARY KEY, value)"

    /// Returns all changes after a token, and the last page.
    private func changes(
        _ scene: RowsScene, since token: String
    ) async throws -> (changes: [RowChange], last: RowChangePage) {
        let address = try #require(StoreAddress(group: AgentProcess.group, name: Array("Notes.sqlite".utf8)))
        var (token, found) = (token, [RowChange]())
        while true {
            let operation = HistoryOperation.changes(
                address, since: token, limit: 2, HistoryOperation.Filter(), .values(schema: nil))
            let page = try await SharedStore.ask(
                .history(operation), socket: scene.agent.socket, RowChangePage.init)
            found += page.changes
            token = page.token
            if !page.hasMore { return (found, page) }
        }
    }

    private func rows(of change: RowChange) -> [[RowChange.Value]?] { [change.before?.values, change.values?.values] }

    @Test func swiftHasExactStepsThenTheNetOfDowntimeThenAReset() async throws {
        let scene = try RowsScene(Self.table)
        let start = try scene.token()
        let writer = try sqliteShell(scene.store)
        try writer.execute(
            "INSERT INTO item VALUES (1, 9007199254740993), (2, 0.1), (3, char(128512) || char(0)), (4, X'00ff'), (5, NULL)"
        )
        try writer.execute("UPDATE item SET value = 'milk' WHERE id = 1; DELETE FROM item WHERE id = 2")
        #expect(try scene.ask(["op": "sync"]).reply.bool("ok") == true)
        let (live, last) = try await changes(scene, since: start)
        #expect(
            live.map(\.key) == [
                [.integer(1)], [.integer(2)], [.integer(3)], [.integer(4)], [.integer(5)],
                [.integer(1)], [.integer(2)],
            ])
        #expect(
            live.prefix(5).map { $0.values?["value"] } == [
                .integer(9_007_199_254_740_993), .real(0.1), .text("\u{1F600}\0"), .blob([0, 255]), .null,
            ])
        #expect(live[5].operation == .update && live[6].operation == .delete)
        #expect(rows(of: live[5]) == [[.integer(1), .integer(9_007_199_254_740_993)], [.integer(1), .text("milk")]])
        #expect(live[5].columns == ["value"])
        #expect(rows(of: live[6]) == [[.integer(2), .real(0.1)], nil])
        // One transaction, and then two.
        let transactions = live.map(\.transaction)
        #expect(Set(transactions.prefix(5)).count == 1 && Set(transactions).count == 3 && !transactions.contains(nil))
        #expect(last.reset == nil && last.unrecordedTables.isEmpty)

        try scene.killAgent {
            try writer.execute("UPDATE item SET value = 'x' WHERE id = 1; INSERT INTO item VALUES (6, 'y')")
            try writer.execute("UPDATE item SET value = 'bread' WHERE id = 1; DELETE FROM item WHERE id = 3")
        }
        let (missed, after) = try await changes(scene, since: last.token)
        #expect(missed.map(\.key) == [[.integer(1)], [.integer(3)], [.integer(6)]])
        #expect(missed.map(\.operation) == [.update, .delete, .insert])
        #expect(rows(of: missed[0]) == [[.integer(1), .text("milk")], [.integer(1), .text("bread")]])
        // Nobody knows how many transactions that were.
        #expect(missed.allSatisfy { $0.transaction == nil })

        writer.closeInput()
        try writer.wait()
        let other = scene.places.scratch("other.sqlite")
        try sqlite(other, "\(Self.table); INSERT INTO item VALUES (9, 'other')")
        #expect(rename(other.string, scene.store.string) == 0)
        let (none, reset) = try await changes(scene, since: after.token)
        #expect(none.isEmpty && reset.reset == "epoch")
        try sqlite(scene.store, "UPDATE item SET value = 'later'")
        let (later, _) = try await changes(scene, since: reset.token)
        #expect(later.map { rows(of: $0) } == [[[.integer(9), .text("other")], [.integer(9), .text("later")]]])
    }

    @Test func swiftListsTheRowsOfAChange() async throws {
        let scene = try RowsScene(Self.table)
        let address = try #require(StoreAddress(group: AgentProcess.group, name: Array("Notes.sqlite".utf8)))
        var subscription = SubscribeOperation(address)
        subscription.wantsRows = true
        var events = StoreChanges(subscription: subscription, socket: scene.agent.socket).makeAsyncIterator()
        guard case .reset("subscribed", _)? = try await events.next() else { throw Unexpected("no reset") }
        try sqlite(scene.store, "INSERT INTO item VALUES (7, 'x')")
        let change = try await events.next()
        #expect(change?.rows?.map(\.key) == [[.integer(7)]], "\(String(describing: change))")
    }

    @Test func pythonHasExactStepsThenTheNetOfDowntimeThenAReset() throws {
        let scene = try RowsScene(Self.table)
        let source = scene.places.scratch("program.py")
        try write(
            #"""
            import asyncio
            import sys
            import groupstore
            token = sys.argv[2]
            for command in sys.stdin:
                rows, reset, more = [], None, True
                while more:
                    page = groupstore.read_changes(sys.argv[1], token, values=True, limit=2)
                    same = asyncio.run(groupstore.read_changes_async(sys.argv[1], token, values=True, limit=2))
                    assert (same.rows, same.token, same.more) == (page.rows, page.token, page.more), same
                    rows += [(row.operation, row.key, row.before, row.values, row.transaction is not None)
                             for row in page.rows]
                    token, more, reset = page.token, page.more, reset or page.reset
                print(rows, reset, flush=True)
            """#, to: source)
        let client = try RunningProcess(
            "/usr/bin/env", ["python3", Word(source), Word(scene.name), Word(try scene.token())],
            environment: scene.agent.environment.merging(Programs.pythonClient) { $1 })
        func read() throws -> String? {
            client.send("read")
            return try client.line()
        }
        let writer = try sqliteShell(scene.store)
        try writer.execute("INSERT INTO item VALUES (1, 9007199254740993), (2, X'00ff')")
        try writer.execute("UPDATE item SET value = 0.1 WHERE id = 1")
        #expect(try scene.ask(["op": "sync"]).reply.bool("ok") == true)
        #expect(
            try read() == "[('insert', (1,), None, {'id': 1, 'value': 9007199254740993}, True), "
                + #"('insert', (2,), None, {'id': 2, 'value': b'\x00\xff'}, True), "#
                + "('update', (1,), {'id': 1, 'value': 9007199254740993}, {'id': 1, 'value': 0.1}, True)] None")
        try scene.killAgent {
            try writer.execute("UPDATE item SET value = NULL WHERE id = 1; DELETE FROM item WHERE id = 2")
            try writer.execute("UPDATE item SET value = 'milk' WHERE id = 1")
        }
        #expect(
            try read() == "[('update', (1,), {'id': 1, 'value': 0.1}, {'id': 1, 'value': 'milk'}, False), "
                + #"('delete', (2,), {'id': 2, 'value': b'\x00\xff'}, None, False)] None"#)
        writer.closeInput()
        try writer.wait()
        let other = scene.places.scratch("other.sqlite")
        try sqlite(other, Self.table)
        #expect(rename(other.string, scene.store.string) == 0)
        #expect(try read() == "[] epoch")
        client.closeInput()
        #expect(try client.wait().status == 0)
    }
}
