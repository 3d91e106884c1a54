import AgentProtocol
import Testing

@Suite struct ChangedTablesTests {
    /// Two Unicode forms of one text are two tables.
    @Test func tellsNamesApartAsSQLiteDoes() {
        let (one, two) = ("\u{E9}", "e\u{301}")
        let (first, second) = (ChangedTables([one], isComplete: true), ChangedTables([two], isComplete: true))
        #expect(first != second && first == ChangedTables([one, one], isComplete: true))
        #expect(first.union(second).names?.map { Array($0.utf8) } == [two, one].map { Array($0.utf8) })
        let filter = TableFilter([one, "Note", "\u{C9}t"])
        #expect(filter.admits(one) && filter.admits("nOTE") && filter.admits("\u{C9}T"))
        #expect(!filter.admits(two) && !filter.admits("\u{E9}t"))
    }

    private func line(_ tables: ChangedTables) throws -> [UInt8] {
        let store = try #require(StoreAddress(bytes: Array("g/Notes.sqlite".utf8)))
        return WireLine.bytes(StoreEvent.change(tables).json(store: store, token: "e-1"))
    }

    @Test func namesTheTablesOfAChange() throws {
        #expect(
            String(decoding: try line(ChangedTables(["b", "a"], isComplete: true)), as: UTF8.self)
                == #"{"type":"change","store":"g/Notes.sqlite","tables":["a","b"],"complete":true,"token":"e-1"}"#
                + "\n")
        #expect(
            String(decoding: try line(ChangedTables([], isComplete: true)), as: UTF8.self)
                == #"{"type":"change","store":"g/Notes.sqlite","tables":[],"complete":true,"token":"e-1"}"# + "\n")
        #expect(ChangedTables([], isComplete: false) == .unknown)
    }

    /// A line never drops its tables and still claims to be complete.
    @Test(arguments: ["t", "\u{1}", "\"", "é"]) func omitsTablesThatWouldFillALine(_ letter: String) throws {
        for count in [10, 100, 1000, 10_000] {
            let names = (0..<count).map { "\($0)" + String(repeating: letter, count: 20) }
            let tables = ChangedTables(Set(names), isComplete: true)
            let line = try line(tables)
            #expect(line.count <= WireLine.maxLength)
            #expect(!String(decoding: line, as: UTF8.self).contains("truncated"))
            #expect(tables.isComplete == (tables.names?.count == count))
        }
        #expect(ChangedTables(Set((0..<10_000).map { "\($0)" }), isComplete: true) == .unknown)
    }

    @Test func makesAUnionCompleteIfBothAre() {
        let a = ChangedTables(["a"], isComplete: true)
        let b = ChangedTables(["b"], isComplete: true)
        #expect(a.union(b) == ChangedTables(["a", "b"], isComplete: true))
        #expect(a.union(.unknown) == ChangedTables(["a"], isComplete: false))
        #expect(ChangedTables.unknown.union(.unknown) == .unknown)
    }

    @Test func admitsChangesThatMayAffectAFilteredTable() {
        let filter = TableFilter(["ZNote", "Größe"])
        #expect(filter.admits(ChangedTables(["other", "znOTE"], isComplete: true)))
        #expect(filter.admits(ChangedTables(["Größe"], isComplete: true)))
        #expect(!filter.admits(ChangedTables(["GRÖSSE", "ZNOTES"], isComplete: true)))
        #expect(!filter.admits(ChangedTables([], isComplete: true)))
        #expect(filter.admits(ChangedTables(["other"], isComplete: false)))
        #expect(filter.admits(.unknown))
    }

    @Test func encodesTheFilterInARequest() throws {
        let line = #"{"id":1,"op":"subscribe","store":"g/a","tables":["ZNOTE","ZTAG"]}"#
        let request = try AgentRequest(parsing: Array(line.utf8))
        #expect(request.json.text == line)
        for wrong in ["[]", "\"a\"", "[1]", "[\"\"]", "{}", "7"] {
            let line = #"{"id":1,"op":"subscribe","store":"g/a","tables":\#(wrong)}"#
            #expect(throws: RefusedLine.self) { try AgentRequest(parsing: Array(line.utf8)) }
        }
    }
}
