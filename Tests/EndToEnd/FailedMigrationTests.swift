import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// A migration that fails on its way tells of the store: nobody knows the copy that it worked on.
@Suite(.timeLimit(.minutes(5))) struct FailedMigrationTests {
    private static func entity(_ content: String) -> String { "<entity name='A'>\(content)</entity>" }

    /// Core Data would have refused, and two steps get there: the second one finds two objects with one default.
    @Test(arguments: [false, true]) func theStoreIsNamed(_ isElsewhere: Bool) throws {
        let directory = try TemporaryDirectory()
        let filled = "<attribute name='y' attributeType='Integer 16' defaultValueString='7'/>"
        let unique =
            "<uniquenessConstraints><uniquenessConstraint><constraint value='y'/></uniquenessConstraint>"
            + "</uniquenessConstraints>"
        let model = try ModelTests.bundle(
            directory,
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
}
