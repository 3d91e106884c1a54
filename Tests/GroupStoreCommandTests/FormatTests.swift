import AgentProtocol
import LinuxSystem
import Testing

@testable import GroupStoreCommand

/// The forms of times and widths for people.
struct FormatTests {
    @Test func aTimeThatIsNoneStaysAsItIs() {
        #expect(LocalTime("yesterday").description == "yesterday")
        #expect(LocalTime(.nan).description == "no time")
        #expect(LocalTime(.infinity).description == "no time")
        #expect(LocalTime(-1).description.count == 19)
        #expect(LocalTime(1_700_000_000.25, precise: true).description.hasSuffix(":20.250"))
    }

    @Test(arguments: [
        ("abc", 3, "abc", "abc"), ("abcd", 3, "ab…", "…cd"), ("名前", 4, "名前", "名前"), ("名前x", 4, "名…", "…前x"),
        ("e\u{301}fg", 2, "e\u{301}…", "…g"), ("", 5, "", ""), ("abc", 0, "", ""), ("abc", 1, "…", "…"),
    ])
    func cutsByColumns(_ text: String, _ columns: Int, _ start: String, _ end: String) {
        #expect(DisplayWidth.cut(text, to: columns) == start)
        #expect(DisplayWidth.of(DisplayWidth.cut(text, to: columns)) <= columns)
        #expect(DisplayWidth.of(DisplayWidth.cutStart(text, to: columns)) <= columns)
        #expect(DisplayWidth.cutStart(text, to: columns) == end)
    }

    @Test func aRescueNamesTheStoreAndItsBranch() {
        #expect(
            RescueWords.renamed("the legacy store's table note has no column text (“the group's”, “the legacy one”)")
                == "the branch's table note has no column text (“the group's”, “the legacy one”)")
        #expect(
            RescueWords.renamed("note has 1 row of the legacy store, although the group's are preferred")
                == "note has 1 row of the branch, although the store's are preferred")
        #expect(RescueWords.renamed("a “” b “the legacy store") == "a “” b “the branch")
    }

    /// A table of every kind of row stays within any screen.
    @Test func theTableFitsAnyScreen() {
        let name = "group.com.example.notes/Notes名前\u{1B}[31m.sqlite"
        let rows = (0..<30).flatMap { number -> [StatusRow] in
            [
                StatusRow(
                    "store",
                    [
                        "store": .string("\(name)\(number)"), "state": number == 29 ? "unwatched" : "following",
                        "subscribers": 2, "counts": .object(["changes": .integer(Int64(number) * 1_000_000_000)]),
                    ], lines: []),
                StatusRow(
                    "subscription",
                    [
                        "store": .string("\(name)\(number)"), "pid": 7, "program": "notes\n", "behind": 3,
                        "lagging_seconds": .number(31),
                    ], lines: []),
            ]
        }
        let status = AgentStatus(rows: rows, summary: ["agent": "0.1.0", "pid": 1, "epoch": "e"])
        let start = ContinuousClock.now
        let first = StatusSnapshot(status, RelayRows([]), at: start, after: nil)
        let snapshot = StatusSnapshot(status, RelayRows([]), at: start + .seconds(2), after: first)
        let table = StatusTable(snapshot: snapshot, away: nil, time: .now())
        for columns in [1, 2, 17, 40, 79, 80, 300] {
            for height in [1, 2, 3, 10, 200] {
                let lines = table.lines(LiveScreen.Size(columns: columns, rows: height))
                #expect(lines.count <= height)
                #expect(lines.allSatisfy { DisplayWidth.of($0.text) <= columns && PrintableText.isPlain($0.text) })
            }
        }
        #expect(table.lines(LiveScreen.Size(columns: 80, rows: 200)).count == 2 + 60)
        // A rate is known only of two answers of one agent.
        #expect(first.stores.allSatisfy { $0.rate == nil } && snapshot.stores.allSatisfy { $0.rate == 0 })
        let restarted = AgentStatus(rows: rows, summary: ["epoch": "other"])
        #expect(
            StatusSnapshot(restarted, RelayRows([]), at: start + .seconds(4), after: snapshot)
                .stores.allSatisfy { $0.rate == nil })
    }
}
