import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// SQLite compares names and keys byte by byte, and Swift's `==` takes the Unicode forms of a text as equal.
@Suite(.ownThreads) struct NormalFormRowTests {
    private static func bytes(_ text: String?) -> [UInt8] { Array((text ?? "").utf8) }

    private func next(_ watch: RunningProcess, _ types: String...) throws -> JSONObject {
        var found = JSONObject()
        try watch.line {
            guard let line = JSONObject(line: $0) else { return false }
            found = line
            return types.contains(line.type ?? "")
        }
        return found
    }

    @Test(arguments: [true, false]) func tellsTablesColumnsAndKeysApart(hasAgent: Bool) throws {
        let (one, two) = ("\u{E9}", "e\u{301}")
        let columns = "(k TEXT PRIMARY KEY, \(one), \(two)) WITHOUT ROWID"
        let scene = try RowsScene("CREATE TABLE t\(one) \(columns); CREATE TABLE t\(two) \(columns)")
        var environment = scene.agent.environment
        environment["XDG_STATE_HOME"] = scene.places.scratch("state").string
        let words: [Word] = hasAgent ? ["--agent", Word(scene.name)] : ["--direct", Word(scene.store)]
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", "--values", "--json"] + words, environment: environment)
        _ = try next(watch, "subscribed", "watching")
        for (table, key) in [(two, one), (two, two), (one, two), (one, one)] {
            try sqlite(scene.store, "INSERT INTO t\(table) VALUES ('\(key)', 1, 2)")
            let definition = try next(watch, "table")
            #expect(Self.bytes(definition.string("table")) == Self.bytes("t" + table))
            #expect(definition.strings("columns")?.map(Self.bytes) == ["k", one, two].map(Self.bytes))
            let row = try next(watch, "row")
            #expect(Self.bytes(row.string("table")) == Self.bytes("t" + table))
            #expect(Self.bytes(row.string("key")) == Self.bytes(key))
            #expect(try next(watch, "change").strings("tables")?.map(Self.bytes) == [Self.bytes("t" + table)])
        }
        try sqlite(
            scene.store, "UPDATE t\(one) SET \(two) = 3 WHERE k = '\(two)'; CREATE TABLE other (a)")
        let row = try next(watch, "row")
        #expect(row.strings("columns")?.map(Self.bytes) == [Self.bytes(two)])
        #expect(Self.bytes(row.string("key")) == Self.bytes(two))
        try sqlite(scene.store, "DELETE FROM t\(two) WHERE k = '\(two)'")
        let gone = try next(watch, "row")
        #expect(gone.string("op") == "delete" && Self.bytes(gone.string("table")) == Self.bytes("t" + two))
        #expect(Self.bytes(gone.string("key")) == Self.bytes(two))
        try watch.killAtOnce()
    }
}
