import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// A migration that fails midway names the store, not the temporary copy, which is unknown to the user.
@Suite(.timeLimit(.minutes(60))) struct FailedMigrationTests {
    private static func entity(_ content: String) -> String { "<entity name='A'>\(content)</entity>" }

    /// Core Data would have refused. The migration takes two steps, and the second one finds two objects with the same
    /// default.
    @Test(arguments: [false, true]) func namesTheStore(_ isElsewhere: Bool) throws {
        let directory = try TemporaryDirectory()
        let filled = "<attribute name='y' attributeType='Integer 16' defaultValueString='7'/>"
        let unique =
            "<uniquenessConstraints><uniquenessConstraint><constraint value='y'/></uniquenessConstraint>"
            + "</uniquenessConstraints>"
        let model = try ModelBundle.make(
            in: directory,
            [
                ("Notes", Self.entity("<attribute name='x' optional='YES' attributeType='String'/>")),
                ("Notes 2", Self.entity(filled)),
                (
                    "Notes 3",
                    Self.entity("<attribute name='x' optional='YES' attributeType='Integer 16'/>" + filled + unique)
                ),
            ])
        let store = directory.path.appending("Notes.sqlite")
        #expect(try groupstore("create", Word(store), "--model", Word(model), "--version", "Notes").status == 0)
        try sqlite(store, "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT) VALUES (1, 1, 1), (2, 1, 1)")
        let to: [Word] = isElsewhere ? ["--to", Word(directory.path.appending("New.sqlite"))] : []
        let done = try run(
            Programs.groupstore, ["migrate", Word(store), "--model", Word(model), "--json"] + to,
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        #expect(done.status == 65, "\(done.errors)")
        let error = try #require(done.summary.object("error"))
        #expect(error.string("code") == "core_data_134111")
        let message = try #require(error.string("message"))
        #expect(message.contains(store.string), "\(message)")
        #expect(!message.contains("/proc/self") && !message.contains(".groupstore"), "\(message)")
    }

    /// A mapping model creates a new store. External data that should move into it is missing.
    @Test func namesTheMissingFileInTheStoresFolder() throws {
        let directory = try TemporaryDirectory()
        let data = "<attribute name='d' optional='YES' attributeType='Binary'/>"
        let external = data.replacing("/>", with: " allowsExternalBinaryDataStorage='YES'/>")
        let model = try ModelBundle.make(
            in: directory, [("Notes", Self.entity(external)), ("Notes 2", Self.entity(data))])
        let mapping = directory.path.appending("m.yaml")
        try write(
            "mapping: 1\nsource: Notes\ndestination: Notes 2\nentities:\n  - from: A\n    to: A\n", to: mapping)
        let store = directory.path.appending("Notes.sqlite")
        #expect(try groupstore("create", Word(store), "--model", Word(model), "--version", "Notes").status == 0)
        let name = "0F8FAD5B-D9CB-469F-A165-70867728950E"
        try sqlite(
            store, "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZD) VALUES (1, 1, 1, CAST(x'02' || '\(name)' || x'00' AS BLOB))"
        )
        let done = try groupstore(
            "migrate", Word(store), "--model", Word(model), "--mapping", Word(mapping), "--to",
            Word(directory.path.appending("New.sqlite")), "--json")
        #expect(done.status == 65, "\(done.errors)")
        let message = try #require(done.summary.object("error")?.string("message"))
        #expect(
            message.contains(directory.path.appending(".Notes_SUPPORT/_EXTERNAL_DATA/\(name)").string), "\(message)")
        let isTheCopys =
            message.contains("/proc/self") || message.contains(".groupstore") || message.contains(".mapped")
        #expect(!isTheCopys, "\(message)")
    }
}
