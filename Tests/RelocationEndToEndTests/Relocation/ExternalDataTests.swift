import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests that a store's external files move or stay with it, and never vanish with a redundant database.
@Suite(.ownThreads) struct ExternalDataTests {
    /// The group loses the files, and a backup returns to the store's old place. The copy's receipt identifies the
    /// backup.
    @Test func keepsARestoredStoreIfTheGroupLostItsFiles() throws {
        let places = try Places(.another)
        let legacy = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let backup = places.scratch("backup")
        try run("cp", ["-a", Word(places.legacy), Word(backup)])
        #expect(try relocate(legacy, places, "--retire", "delete").outcome == "relocated")
        let published = try StoreFiles(places.group.appending("Notes.sqlite"))
        try sqlite(published.path, "INSERT INTO note (text) VALUES ('later')")

        // The group may no longer have the backup's content, so the backup is archived with its files.
        try run("cp", ["-a", Word(backup.pushing(".")), Word(places.legacy)])
        #expect(try relocate(legacy, places, "--retire", "delete").outcome == "already_relocated")
        #expect(try files(named: "1F2E", below: places.group.pushing(".groupstore")) == 1)

        try run("rm", ["-r", Word(published.support)])
        try run("cp", ["-a", Word(backup.pushing(".")), Word(places.legacy)])
        #expect(try relocate(legacy, places, "--retire", "delete").outcome == "already_relocated")
        #expect(try files(named: "1F2E", below: places.group.pushing(".groupstore")) == 2)
        #expect(try noteCount(published.path) == 11)
        #expect(FileStatus(following: legacy.path) == nil)
    }

    /// Commands that inspect or move the store report external files that objects name but that don't exist. They
    /// refuse nothing.
    @Test func reportsMissingFiles() throws {
        let places = try Places(.same)
        let scratch = try TemporaryDirectory()
        let photo =
            "<attribute name='photo' optional='YES' attributeType='Binary' allowsExternalBinaryDataStorage='YES'/>"
        let model = try ModelBundle.make(in: scratch, [("Notes", "<entity name='Note'>\(photo)</entity>")])
        let legacy = places.legacy.appending("Notes.sqlite")
        #expect(try run(Programs.groupstore, ["create", Word(legacy), "--model", Word(model)]).status == 0)
        let name = "0F8FAD5B-D9CB-469F-A165-70867728950E"
        try sqlite(
            legacy,
            "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZPHOTO) VALUES (1, 1, 1, CAST(x'02' || '\(name)' || x'00' AS BLOB))"
        )

        let described = try groupstore("inspect", Word(legacy), "--json")
        #expect(described.lines.first?.contains("\"missing_external_files\":[{\"entity\":\"Note\"") == true)
        #expect(try groupstore("inspect", Word(legacy)).output.contains("Note.photo references external files"))
        let checked = try groupstore("model", "check", Word(legacy), Word(model), "--json")
        #expect(
            checked.status == 0 && checked.output.contains("the store names external files that are not there: \(name)")
        )
        // A dry run has the notes of the run.
        let newer = "<attribute name='text' optional='YES' attributeType='String'/>"
        let next = try ModelBundle.make(in: scratch, [("Newer", "<entity name='Note'>\(photo)\(newer)</entity>")])
        let copy = scratch.path.appending("Copy.sqlite")
        let notes = try [["--dry-run"], ["--to", Word(copy)]].map { options in
            try run(Programs.groupstore, ["migrate", Word(legacy), "--model", Word(next), "--json"] + options).objects
                .filter { $0.type == "note" }.compactMap { $0.string("text") }
        }
        #expect(notes[0].contains { $0.contains(name) } && notes[0] == notes[1], "\(notes)")
        let done = try groupstore("relocate", Word(legacy), Word(places.group), "--json")
        #expect(done.outcome == "relocated")
        #expect(done.lines.contains { $0.contains("\"note\"") && $0.contains(name) }, "\(done.output)")

        let folder = places.group.appending(".Notes_SUPPORT").appending("_EXTERNAL_DATA")
        try run("mkdir", ["-p", Word(folder)])
        try run("touch", [Word(folder.appending(name))])
        let again = try groupstore("inspect", Word(places.group.appending("Notes.sqlite")), "--json")
        #expect(again.lines.first?.contains("\"missing_external_files\":[]") == true)
    }

    private func relocate(_ store: StoreFiles, _ places: Places, _ options: Word...) throws -> FinishedProcess {
        try groupstore("relocate", Word(store.path), Word(places.group), "--json", options: options)
    }

    private func files(named name: String, below directory: FilePath) throws -> Int {
        try run("find", [Word(directory), "-name", Word(name)]).lines.count
    }
}
