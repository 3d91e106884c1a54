import AgentProtocol
import PersistentHistory
import Testing

@testable import GroupStoreAgent

/// The result of combining a history read with the changes of the feed.
@Suite struct RowCursorTests {
    private func position(_ number: Int64) -> HistoryToken { HistoryToken(history: "h", number: number, nonce: number) }

    private func row(_ number: Int64, _ table: String = "note", author: String? = nil) -> JSONObject {
        var row: JSONObject = ["number": .integer(number), "table": .string(table), "op": "insert"]
        if let author { row["author"] = .string(author) }
        return row
    }

    private func page(_ rows: [JSONObject], isOutdated: Bool = false) -> HistoryReadResult {
        .page(RowPage(rows: rows, token: position(rows.last?.integer("number") ?? 0), isOutdated: isOutdated))
    }

    /// Returns a cursor that leaves out the rows of `me`, with a change in its round.
    private func cursor(
        _ tables: [String]?, isComplete: Bool = true, only: [String]? = nil, at number: Int64 = 0
    ) throws -> RowCursor {
        let store = try #require(StoreAddress(bytes: Array("g/s".utf8)))
        var operation = SubscribeOperation(store, tables: only.map { TableFilter($0) })
        operation.filter.exceptAuthors = ["me"]
        operation.wantsRows = true
        var cursor = RowCursor(operation)
        cursor.begin(at: position(number))
        if let tables { cursor.record(ChangedTables(Set(tables), isComplete: isComplete), number: 1) }
        cursor.beginReading()
        return cursor
    }

    @Test func leavesOutOwnRows() throws {
        var cursor = try cursor(["GS_CHANGE", "note"])
        #expect(cursor.finishReading(page([row(1, author: "me")])) == .leftOut)
        #expect(cursor.position == position(1) && cursor.firstUndelivered == nil)
        cursor = try self.cursor(["GS_CHANGE", "note"])
        let otherRow = row(2, author: "you")
        #expect(
            cursor.finishReading(page([row(1, author: "me"), otherRow]))
                == .change(ChangedTables(["GS_CHANGE", "note"], isComplete: true), rows: [otherRow]))
    }

    @Test(arguments: [["note"], ["GS_CHANGE", "note", "other"], ["GS_CHANGE", "note", "sqlite_schema"]])
    func reportsATableWithoutRows(_ tables: [String]) throws {
        var cursor = try cursor(tables)
        let rows = tables.count == 1 ? [] : [row(1, author: "me")]
        #expect(cursor.finishReading(page(rows)) == .change(ChangedTables(Set(tables), isComplete: true), rows: nil))
    }

    /// Whoever shows a table's rows reads them again when it has another name or other columns.
    @Test(arguments: [nil, ["note"], ["tag"]] as [[String]?])
    func reportsATableOfAnotherDefinition(only: [String]?) throws {
        let store = try #require(StoreAddress(bytes: Array("g/s".utf8)))
        var operation = SubscribeOperation(store, tables: only.map { TableFilter($0) })
        operation.filter.operations = ["delete"]
        operation.wantsRows = true
        var cursor = RowCursor(operation)
        cursor.begin(at: position(0))
        let tables = ChangedTables(["note", "sqlite_schema"], isComplete: true)
        cursor.record(tables, number: 1)
        cursor.beginReading()
        let page = RowPage(token: position(1), redefined: ["note"], isFromPages: true)
        let outcome = cursor.finishReading(.page(page))
        #expect(outcome == (only == ["tag"] ? .leftOut : .change(tables, rows: nil)))
    }

    /// The table is a replica's own, or a program's whose changes no history records.
    @Test(arguments: [false, true]) func knowsTheTableOfAReplica(isReplica: Bool) throws {
        func finish(_ tables: [String], _ rows: [JSONObject]) throws -> RowCursor.Outcome {
            var cursor = try cursor(tables)
            return cursor.finishReading(.page(RowPage(rows: rows, token: position(1), isReplica: isReplica)))
        }
        let written = ChangedTables(["GS_CHANGE", "GS_REPLICA", "note"], isComplete: true)
        let found = try finish(["GS_CHANGE", "GS_REPLICA", "note"], [row(1)])
        #expect(found == .change(written, rows: isReplica ? [row(1)] : nil))
        let alone = try finish(["GS_REPLICA"], [])
        #expect((alone == .change(ChangedTables(["GS_REPLICA"], isComplete: true), rows: nil)) == !isReplica)
    }

    /// The page's rows are of an earlier commit: this one recorded none.
    @Test func rowsOfAnEarlierCommitDoNotAccountForALaterOne() throws {
        var cursor = try cursor(["GS_CHANGE", "note"])
        cursor.record(ChangedTables(["note"], isComplete: true), number: 2)
        cursor.beginReading()
        guard case .change(_, rows: nil) = cursor.finishReading(page([row(1, author: "me")])) else {
            Issue.record("left out")
            return
        }
    }

    @Test func ignoresBookkeepingTables() throws {
        var cursor = try cursor(["ACHANGE", "ATRANSACTION", "ZNOTE", "Z_1TAGS", "Z_PRIMARYKEY"])
        #expect(cursor.finishReading(page([row(1, "ZNOTE", author: "me")])) == .leftOut)
        // A join table alone has no row that accounts for it.
        cursor = try self.cursor(["Z_1TAGS"])
        #expect(cursor.finishReading(page([])) == .change(ChangedTables(["Z_1TAGS"], isComplete: true), rows: nil))
    }

    @Test func reportsAnIncompleteChange() throws {
        var cursor = try cursor(["note"], isComplete: false)
        #expect(
            cursor.finishReading(page([row(1, author: "me")]))
                == .change(ChangedTables(["note"], isComplete: false), rows: nil))
    }

    @Test func earlyRowsAccountForTheirChange() throws {
        var cursor = try cursor(["GS_CHANGE", "note"], at: 1)
        #expect(cursor.finishReading(page([]), credited: ["note"]) == .leftOut)
    }

    @Test(arguments: [HistoryReadResult.none, .failed]) func reportsEveryChangeWithoutAHistory(
        _ reading: HistoryReadResult
    )
        throws
    {
        var cursor = try cursor(["GS_CHANGE", "note"])
        #expect(
            cursor.finishReading(reading) == .change(ChangedTables(["GS_CHANGE", "note"], isComplete: true), rows: nil))
        cursor.beginReading()
        #expect(cursor.finishReading(reading) == .nothing)
    }

    @Test func gapsAndLostPositionsBecomeResets() throws {
        var cursor = try cursor(nil)
        let gap = HistoryReadResult.page(RowPage(gaps: [(1, "note")], token: position(1)))
        #expect(cursor.finishReading(gap) == .reset(.historyGap))
        cursor = try self.cursor(nil, only: ["tag"])
        #expect(cursor.finishReading(gap) == .nothing && cursor.position == position(1))
        cursor = try self.cursor(nil)
        #expect(cursor.finishReading(.discontinued(.historyTrimmed, position(9))) == .reset(.historyTrimmed))
        #expect(cursor.position == position(9))
    }

    @Test func reportsAMigrationOnce() throws {
        let (old, new) = (try #require(HistoryToken("h1.h.1.1.a")), try #require(HistoryToken("h1.h.9.9.b")))
        var cursor = try cursor(["GS_CHANGE", "note"])
        cursor.begin(at: old)
        #expect(cursor.finishReading(.discontinued(.migrated, new)) == .reset(.migrated) && cursor.position == new)
        cursor = try self.cursor(["GS_CHANGE", "note"])
        cursor.begin(at: old)
        cursor.recordMigration()
        #expect(
            cursor.finishReading(.discontinued(.migrated, new))
                == .change(ChangedTables(["GS_CHANGE", "note"], isComplete: true), rows: nil))
        // The next migration is a different one.
        cursor.beginReading()
        #expect(cursor.position == new && cursor.finishReading(.discontinued(.migrated, old)) == .reset(.migrated))
    }

    @Test func reportsTooManyRowsWithoutThem() throws {
        var cursor = try cursor(["GS_CHANGE", "note"])
        let rows = (1...Int64(RowCursor.maximumRows + 1)).map { row($0) }
        guard case .change(_, rows: nil) = cursor.finishReading(page(rows)) else {
            Issue.record("rows")
            return
        }
        cursor = try self.cursor(["GS_CHANGE", "note"])
        #expect(
            cursor.finishReading(.tooMany(position(9)))
                == .change(ChangedTables(["GS_CHANGE", "note"], isComplete: true), rows: nil))
        #expect(cursor.position == position(9))
    }

    @Test func reportsAnOutdatedHistoryToAReturningSubscriber() throws {
        var cursor = try cursor(nil)
        #expect(cursor.finishReading(page([], isOutdated: true), isReturning: true) == .change(.unknown, rows: nil))
        cursor = try self.cursor(nil)
        #expect(cursor.finishReading(page([]), isReturning: true) == .nothing)
    }

    @Test func leavesOutOtherTables() throws {
        var cursor = try cursor(["GS_CHANGE", "note", "tag"], only: ["NOTE"])
        #expect(cursor.finishReading(page([row(1, "tag"), row(2, author: "me")])) == .leftOut)
    }

    /// Returns a cursor at the present position of a copy of pages.
    private func cursorOfPages(wantsRows: Bool = true) throws -> (cursor: RowCursor, position: HistoryToken) {
        let store = try #require(StoreAddress(bytes: Array("g/s".utf8)))
        var operation = SubscribeOperation(store, tables: nil)
        operation.wantsRows = wantsRows
        var cursor = RowCursor(operation)
        let position = HistoryToken(history: HistoryToken.pagesPrefix + "a", number: 1, nonce: 1)
        cursor.begin(at: position)
        return (cursor, position)
    }

    /// The subscriber has been told to read the file, and nothing was committed to it since.
    @Test func aResetStandsForTheCopyOfTheFileThatItWasSentFor() throws {
        let new = HistoryToken(history: HistoryToken.pagesPrefix + "b", number: 0, nonce: 0)
        func outcome(
            after event: StoreEvent, last: UInt64?, committing: Bool = false, wantsRows: Bool = true
        ) throws -> RowCursor.Outcome {
            var cursor = try cursorOfPages(wantsRows: wantsRows).cursor
            let isNeeded = cursor.requestPosition(after: event, number: 7)
            #expect(isNeeded)
            if committing { cursor.record(ChangedTables(["note"], isComplete: true), number: 8) }
            cursor.beginReading()
            let outcome = cursor.finishReading(.discontinued(.epoch, new), lastNumber: last)
            #expect(cursor.position == new)
            return outcome
        }
        #expect(try outcome(after: .reset(.replaced), last: 7) == .advanced)
        #expect(try outcome(after: .reset(.replaced), last: 8, committing: true) == .reset(.epoch))
        #expect(try outcome(after: .reset(.replaced), last: 7, wantsRows: false) == .reset(.epoch))
        // Later commits may not be published yet.
        #expect(try outcome(after: .reset(.replaced), last: nil) == .reset(.epoch))
        // Nobody can have read the store then.
        for reason in [StoreEvent.ResetReason.vanished, .unreadable] {
            #expect(try outcome(after: .reset(reason), last: 7) == .reset(.epoch))
        }
        #expect(try outcome(after: .migrated(fromModel: nil, toModel: "M"), last: 7) == .reset(.epoch))
    }

    @Test func pagesTellWhatLostEventsWereOf() throws {
        let (first, position) = try cursorOfPages()
        func outcome(_ reading: HistoryReadResult, _ record: (inout RowCursor) -> Void = { _ in }) -> RowCursor.Outcome
        {
            var cursor = first
            let isRecorded = cursor.recordLoss(number: 7)
            #expect(isRecorded && cursor.firstUndelivered == 7)
            record(&cursor)
            cursor.beginReading()
            let outcome = cursor.finishReading(reading)
            #expect(cursor.firstUndelivered == nil)
            return outcome
        }
        let next = HistoryToken(history: position.history, number: 2, nonce: 2)
        #expect(outcome(.page(RowPage(token: position, isFromPages: true))) == .leftOut)
        let rows = [row(2)]
        #expect(
            outcome(.page(RowPage(rows: rows, token: next, isFromPages: true)))
                == .change(.unknown.union(ChangedTables(["note"], isComplete: true)), rows: rows))
        #expect(outcome(.failed) == .reset(.overflow))
        #expect(outcome(.discontinued(.historyTrimmed, next)) == .reset(.historyTrimmed))
        // A commit is told all the same.
        let none = ChangedTables([], isComplete: true)
        let committed = outcome(.page(RowPage(token: position, isFromPages: true))) { $0.record(none, number: 8) }
        #expect(committed == .change(.unknown.union(none), rows: []))
        var history = try cursor(nil)
        let isRecorded = history.recordLoss(number: 7)
        #expect(!isRecorded)
    }
}
