import AgentProtocol
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `groupstore model`, on models that a test writes.
@Suite struct ModelTests {
    static let note = """
        <entity name="Note" representedClassName="Note" syncable="YES">
            <attribute name="title" optional="YES" attributeType="String"/>
        </entity>
        """

    /// An `.xcdatamodeld` with versions in order, the last one the current one.
    static func bundle(
        _ directory: TemporaryDirectory, named name: String = "Notes", _ versions: [(name: String, content: String)]
    ) throws -> FilePath {
        let bundle = directory.path.appending(name + ".xcdatamodeld")
        for version in versions {
            let folder = bundle.appending(version.name + ".xcdatamodel")
            try run("mkdir", ["-p", Word(folder)])
            try write(
                "<?xml version=\"1.0\"?>\n<model>\n\(version.content)\n</model>\n", to: folder.appending("contents"))
        }
        let current = "<string>\(versions.last?.name ?? "").xcdatamodel</string>"
        try write(
            "<plist><dict><key>_XCCurrentVersionName</key>\(current)</dict></plist>",
            to: bundle.appending(".xccurrentversion"))
        return bundle
    }

    @Test func hashesOfEachVersion() throws {
        let directory = try TemporaryDirectory()
        let bundle = try Self.bundle(
            directory, [("Notes", Self.note), ("Notes 10", "<entity name='A'/>"), ("Notes 9", "<entity name='B'/>")])
        let done = try groupstore("model", "hash", Word(bundle), "--json")
        #expect(done.status == 0, "\(done.errors)")
        let versions = done.objects.filter { $0.type == "version" }
        #expect(versions.map { $0.string("name") } == ["Notes", "Notes 9", "Notes 10"])
        #expect(versions.map { $0.bool("current") } == [false, true, false])
        #expect(done.summary.type == "summary")
        // SHA-256 of: Note, 0, the hash of (the hash of (title, 1), 700).
        #expect(
            versions[0].object("entities")?.string("Note")
                == "4d01245de872354b7203de7090c39da511adf93fd96cc822f0702eff77ba167e")
        #expect(versions[0].string("checksum") == "Nh0EdoDUFZaRhLw8Zk7+7Mu0NiiaPgoeQPPL6I0tBNE=")
        let text = try groupstore("model", "hash", Word(bundle))
        #expect(text.output.contains("Notes 9 (current)\n"))
        let one = try groupstore("model", "hash", Word(bundle.appending("Notes.xcdatamodel")), "--json")
        #expect(one.objects.first?.object("entities") == versions[0].object("entities"))
    }

    @Test func mergedModels() throws {
        let directory = try TemporaryDirectory()
        let bundle = try Self.bundle(directory, [("Notes", Self.note)])
        let other = try Self.bundle(directory, named: "Other", [("Other", "<entity name='Tag'/>")])
        let done = try groupstore("model", "hash", Word(bundle), "--merge", Word(other), "--json")
        #expect(done.objects.first?.object("entities")?.members.map(\.key) == ["Note", "Tag"])
        let same = try Self.bundle(directory, named: "Same", [("Same", "<entity name='Note'/>")])
        let refused = try groupstore("model", "hash", Word(bundle), "--merge", Word(same), "--json")
        #expect(refused.status == 65)
        #expect(refused.summary.object("error")?.string("code") == "unmergeable_models")
    }

    @Test(arguments: [
        ("<entity name='A'>\n<attribute name='x' attributeType='Wrong'/></entity>", "contents:4: A.x:"),
        ("<entity name='A'>\n<attribute", "contents:5:"),
        ("<entity name='A'/></model><model>", "contents:"),
    ])
    func aModelThatIsNone(_ content: String, _ place: String) throws {
        let directory = try TemporaryDirectory()
        let bundle = try Self.bundle(directory, [("Notes", content)])
        let done = try groupstore("model", "hash", Word(bundle))
        #expect(done.status == 65)
        #expect(done.errors.contains(place), "\(done.errors)")
        #expect(done.errors.contains("("), "no remedy: \(done.errors)")
    }

    @Test func whatIsNotThere() throws {
        let done = try groupstore("model", "hash", "/nonexistent/Notes.xcdatamodeld")
        #expect(done.status == 74)
        let store = try TemporaryDirectory()
        let plain = try makeStore(store.path.appending("Plain.sqlite"), rows: 1)
        let refused = try groupstore("model", "hash", Word(plain.path))
        #expect(refused.status == 65)
        #expect(refused.errors.contains("not Core Data's"))
    }
}
