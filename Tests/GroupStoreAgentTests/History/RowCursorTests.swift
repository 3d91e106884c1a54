import AgentProtocol
import PersistentHistory
import Testing

@testable import GroupStoreAgent

/// What a look into a store's history makes of what the feed said.
@Suite struct RowCursorTests {
    private func place(_ number: Int64) -> HistoryToken { HistoryToken(history: "h", number: number, nonce: number) }

    private func row(_ number: Int64, _ table: String = "note", author: String? = nil) -> JSONObject {
        var row: JSONObject = ["number": .integer(number), "table": .string(table), "op": "insert"]
        if let author { row["author"] = .string(author) }
        return row
    }

    private func page(_ rows: [JSONObject], isOutdated: Bool = false) -> HistoryReadResult {
        .page(RowPage(rows: rows, token: place(rows.last?.integer("number") ?? 0), isOutdated: isOutdated))
    }

    /// One that leaves out what `me` wrote, and has something to settle.
    private func cursor(
        _ tables: [String]?, isComplete: Bool = true, only: [String]? = nil, at number: Int64 = 0
    ) throws -> RowCursor {
        let store = try #require(StoreAddress(bytes: Array("g/s".utf8)))
        var operation = SubscribeOperation(store, tables: only.map { TableFilter($0) })
        operation.filter.exceptAuthors = ["me"]
        operation.wantsRows = true
        var cursor = RowCursor(operation)
        cursor.begin(at: place(number))
        if let tables { cursor.note(ChangedTables(Set(tables), isComplete: isComplete), number: 1) }
        cursor.beginSettling()
        return cursor
    }

    @Test func ownRowsAreLeftOut() throws {
        var one = try cursor(["GS_CHANGE", "note"])
        #expect(one.settle(page([row(1, author: "me")])) == .leftOut)
        #expect(one.position == place(1) && one.firstUntold == nil)
        one = try cursor(["GS_CHANGE", "note"])
        let others = row(2, author: "you")
        #expect(
            one.settle(page([row(1, author: "me"), others]))
                == .change(ChangedTables(["GS_CHANGE", "note"], isComplete: true), rows: [others]))
    }

    @Test(arguments: [["note"], ["GS_CHANGE", "note", "other"], ["GS_CHANGE", "note", "sqlite_schema"]])
    func aTableWithoutRowsIsTold(_ tables: [String]) throws {
        var cursor = try cursor(tables)
        let rows = tables.count == 1 ? [] : [row(1, author: "me")]
        #expect(cursor.settle(page(rows)) == .change(ChangedTables(Set(tables), isComplete: true), rows: nil))
    }

    /// The page's rows are of an earlier commit: this one recorded none.
    @Test func rowsOfOthersAreNoAlibi() throws {
        var cursor = try cursor(["GS_CHANGE", "note"])
        cursor.note(ChangedTables(["note"], isComplete: true), number: 2)
        cursor.beginSettling()
        guard case .change(_, rows: nil) = cursor.settle(page([row(1, author: "me")])) else {
            Issue.record("left out")
            return
        }
    }

    @Test func bookkeepingHidesNothingAndIsNothing() throws {
        var cursor = try cursor(["ACHANGE", "ATRANSACTION", "ZNOTE", "Z_1TAGS", "Z_PRIMARYKEY"])
        #expect(cursor.settle(page([row(1, "ZNOTE", author: "me")])) == .leftOut)
        // A join table alone has nothing that speaks for it.
        cursor = try self.cursor(["Z_1TAGS"])
        #expect(cursor.settle(page([])) == .change(ChangedTables(["Z_1TAGS"], isComplete: true), rows: nil))
    }

    @Test func whatIsNotCompleteIsTold() throws {
        var cursor = try cursor(["note"], isComplete: false)
        #expect(
            cursor.settle(page([row(1, author: "me")]))
                == .change(ChangedTables(["note"], isComplete: false), rows: nil))
    }

    @Test func rowsThatCameEarlySpeakForTheirChange() throws {
        var cursor = try cursor(["GS_CHANGE", "note"], at: 1)
        #expect(cursor.settle(page([]), credited: ["note"]) == .leftOut)
    }

    @Test(arguments: [HistoryReadResult.none, .failed]) func withoutAHistoryAllIsTold(_ reading: HistoryReadResult)
        throws
    {
        var cursor = try cursor(["GS_CHANGE", "note"])
        #expect(cursor.settle(reading) == .change(ChangedTables(["GS_CHANGE", "note"], isComplete: true), rows: nil))
        cursor.beginSettling()
        #expect(cursor.settle(reading) == .nothing)
    }

    @Test func gapsAndLostPlacesAreResets() throws {
        var one = try cursor(nil)
        let gap = HistoryReadResult.page(RowPage(gaps: [(1, "note")], token: place(1)))
        #expect(one.settle(gap) == .reset(.historyGap))
        one = try cursor(nil, only: ["tag"])
        #expect(one.settle(gap) == .nothing && one.position == place(1))
        one = try cursor(nil)
        #expect(one.settle(.discontinued(.historyTrimmed, place(9))) == .reset(.historyTrimmed))
        #expect(one.position == place(9))
    }

    @Test func whoKnowsOfAMigrationIsNotToldTwice() throws {
        let (old, new) = (try #require(HistoryToken("h1.h.1.1.a")), try #require(HistoryToken("h1.h.9.9.b")))
        var one = try cursor(["GS_CHANGE", "note"])
        one.begin(at: old)
        #expect(one.settle(.discontinued(.migrated, new)) == .reset(.migrated) && one.position == new)
        one = try cursor(["GS_CHANGE", "note"])
        one.begin(at: old)
        one.noteMigration()
        #expect(
            one.settle(.discontinued(.migrated, new))
                == .change(ChangedTables(["GS_CHANGE", "note"], isComplete: true), rows: nil))
        // The next one is another one.
        one.beginSettling()
        #expect(one.position == new && one.settle(.discontinued(.migrated, old)) == .reset(.migrated))
    }

    @Test func manyRowsAreToldWithoutThem() throws {
        var one = try cursor(["GS_CHANGE", "note"])
        let rows = (1...Int64(RowCursor.mostRows + 1)).map { row($0) }
        guard case .change(_, rows: nil) = one.settle(page(rows)) else {
            Issue.record("rows")
            return
        }
        one = try cursor(["GS_CHANGE", "note"])
        #expect(
            one.settle(.tooMany(place(9)))
                == .change(ChangedTables(["GS_CHANGE", "note"], isComplete: true), rows: nil))
        #expect(one.position == place(9))
    }

    @Test func whoComesBackToAnOutdatedHistoryIsTold() throws {
        var one = try cursor(nil)
        #expect(one.settle(page([], isOutdated: true), comesBack: true) == .change(.unknown, rows: nil))
        one = try cursor(nil)
        #expect(one.settle(page([]), comesBack: true) == .nothing)
    }

    @Test func otherTablesAreLeftOut() throws {
        var cursor = try cursor(["GS_CHANGE", "note", "tag"], only: ["NOTE"])
        #expect(cursor.settle(page([row(1, "tag"), row(2, author: "me")])) == .leftOut)
    }
}
