import AgentProtocol
import EndToEndSupport
import SystemPackage
import TestSupport
import Testing

/// The effect of a store's migration on groupstore's own history.
@Suite struct MigratedHistoryTests {
    private let directory: TemporaryDirectory
    private let model: FilePath
    private let store: FilePath

    init() throws {
        func entity(_ name: String, _ attributes: String...) -> String {
            let all = attributes.map { "<attribute name=\"\($0)\" optional=\"YES\" attributeType=\"String\"/>" }
            return "<entity name=\"\(name)\">\(all.joined())</entity>"
        }
        directory = try TemporaryDirectory()
        model = try ModelBundle.make(
            in: directory,
            [
                ("Notes", entity("Note", "title", "rest") + entity("Tag", "word")),
                ("Notes 2", entity("Note", "title", "rest", "more") + entity("Tag", "word")),
            ])
        store = directory.path.appending("Notes.sqlite")
        #expect(try groupstore("create", Word(store), "--model", Word(model), "--version", "Notes").status == 0)
        try sqlite(
            store,
            """
            INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTITLE) VALUES (1, 1, 1, 'a'), (2, 1, 1, 'b');
            UPDATE Z_PRIMARYKEY SET Z_MAX = 2 WHERE Z_NAME = 'Note';
            CREATE TABLE mine (id INTEGER PRIMARY KEY, b); INSERT INTO mine VALUES (1, 1), (2, 2)
            """)
        #expect(try groupstore("history", "enable", Word(store)).status == 0)
        try sqlite(store, "UPDATE ZNOTE SET ZTITLE = 'w' WHERE Z_PK = 1")
    }

    private func changes(since token: String? = nil, at path: FilePath? = nil) throws -> FinishedProcess {
        try run(
            Programs.groupstore,
            ["changes", "--json", Word(path ?? store)] + (token.map { ["--since", Word($0)] } ?? []),
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
    }

    /// Expects each table to record changed keys and replaced rows.
    private func expectAllIsRecorded() throws {
        let token = try #require(try changes().summary.string("token"))
        try sqlite(
            store,
            """
            UPDATE mine SET id = 9 WHERE id = 1; UPDATE OR REPLACE mine SET id = 9 WHERE id = 2;
            UPDATE ZNOTE SET Z_PK = 77 WHERE Z_PK = 2; INSERT INTO ZTAG (Z_PK, Z_ENT) VALUES (1, 2)
            """)
        let found = try changes(since: token)
        #expect(found.summary.string("reset") == nil && found.status == 0, "\(found.output)")
        let expected: [(String, String, Int64)] = [
            ("mine", "delete", 1), ("mine", "insert", 9), ("mine", "delete", 2), ("mine", "update", 9),
            ("ZNOTE", "delete", 2), ("ZNOTE", "insert", 77), ("ZTAG", "insert", 1),
        ]
        let rows = found.objects.filter { $0.type == "row" }
        #expect(
            rows.map { [$0["table"], $0["op"], $0["key"]] }
                == expected.map { [.string($0), .string($1), .integer($2)] }, "\(found.output)")
        #expect(try groupstore("history", "show", Word(store), "--json").summary.bool("outdated") != true)
    }

    @Test func recordsAGapForAnInferredMigration() throws {
        let token = try #require(try changes().summary.string("token"))
        let migrated = try groupstore("migrate", Word(store), "--model", Word(model), "--json")
        #expect(migrated.status == 0, "\(migrated.errors)")
        #expect(!migrated.output.contains("trigger"), "\(migrated.output)")
        let reset = try changes(since: token)
        #expect(reset.output.contains("\"migrated\""), "\(reset.output)")
        // The history contains the changes before the migration and after it.
        #expect(try changes().output.contains("\"ZNOTE\""))
        try expectAllIsRecorded()
        let enabled = try groupstore("history", "enable", Word(store), "--json")
        #expect(enabled.summary.string("outcome") == "unchanged", "\(enabled.output)")
    }

    /// A migration doesn't touch a foreign table, so that table's changes have no gap.
    @Test func recordsNoGapForAForeignTable() throws {
        #expect(try groupstore("migrate", Word(store), "--model", Word(model)).status == 0)
        let gaps = try sqlite(
            store,
            "SELECT DISTINCT t.name FROM GS_CHANGE c JOIN GS_TABLE t ON t.id = c.table_id WHERE c.operation = 3 ORDER BY 1"
        )
        #expect(gaps.contains("ZNOTE") && gaps.contains("Z_METADATA") && !gaps.contains("mine"), "\(gaps)")
    }

    @Test func startsANewHistoryAfterAMappingModel() throws {
        let token = try #require(try changes().summary.string("token"))
        let mapping = directory.path.appending("mapping.yaml")
        try write(
            """
            mapping: 1
            source: Notes
            destination: Notes 2
            entities:
              - {from: Note, to: Note, attributes: {title: uppercase($source.title)}}
              - {from: Tag, to: Tag}

            """, to: mapping)
        let migrated = try groupstore(
            "migrate", Word(store), "--model", Word(model), "--mapping", Word(mapping), "--json")
        #expect(migrated.status == 0, "\(migrated.errors)")
        #expect(migrated.objects.contains { $0.type == "note" && $0.string("text")?.contains("history") == true })
        let reset = try changes(since: token)
        #expect(reset.output.contains("epoch"), "\(reset.output)")
        try expectAllIsRecorded()
    }
}
