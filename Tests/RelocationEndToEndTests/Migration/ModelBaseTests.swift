import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `model check --base` and `--format sarif`.
@Suite(.ownThreads) struct ModelBaseTests {
    private let directory: TemporaryDirectory
    private let bundle: FilePath

    /// A repository with a model of two versions in a folder whose name needs encoding.
    init() throws {
        directory = try TemporaryDirectory()
        let folder = directory.path.appending("my app")
        try run("mkdir", [Word(folder)])
        bundle = try ModelBundle.make(
            in: folder, [("Notes", ModelTests.note), ("Notes 2", ModelTests.note + "<entity name='Tag'/>")])
        try git("init", "-q")
        try git("add", "-A")
        try git("commit", "-qm", "Ship")
    }

    private func git(_ words: Word...) throws {
        let identity: [Word] = ["-c", "user.name=a", "-c", "user.email=a@b", "-C", Word(directory.path)]
        let done = try run("git", identity + words)
        #expect(done.status == 0, "\(done.errors)")
    }

    private func check(_ words: Word...) throws -> FinishedProcess {
        try groupstore(options: ["model", "check", Word(bundle), "--base", "HEAD"] + words)
    }

    private func write(_ content: String, as version: String) throws {
        let folder = bundle.appending(FilePath.Component(version + ".xcdatamodel") ?? "x")
        try run("mkdir", ["-p", Word(folder)])
        try EndToEndSupport.write(
            "<?xml version=\"1.0\"?>\n<model>\n\(content)\n</model>\n", to: folder.appending("contents"))
    }

    private func setCurrent(_ version: String) throws {
        try EndToEndSupport.write(
            "<plist><dict><key>_XCCurrentVersionName</key><string>\(version).xcdatamodel</string></dict></plist>",
            to: bundle.appending(".xccurrentversion"))
    }

    @Test func acceptsANewVersion() throws {
        #expect(try check().status == 0)
        try write(ModelTests.note + "<entity name='Tag'/><entity name='Page'/>", as: "Notes 3")
        try setCurrent("Notes 3")
        let done = try check("--all", "--json")
        #expect(done.status == 0, "\(done.errors)")
        #expect(!done.objects.contains { $0.type == "version_change" })
    }

    @Test func namesAnEditedVersionWithBothHashes() throws {
        try write(ModelTests.note + "<entity name='Tag' isAbstract='YES'/>", as: "Notes 2")
        let done = try check("--json")
        #expect(done.status == 65)
        let change = try #require(done.objects.first { $0.type == "version_change" })
        #expect(change.string("change") == "edited")
        #expect(change.string("version") == "Notes 2")
        let hash = try groupstore("model", "hash", Word(bundle), "--json").objects
            .first { $0.string("name") == "Notes 2" }
        #expect(change.string("checksum") == hash?.string("checksum"))
        #expect(change.string("base_checksum") != hash?.string("checksum"))
        #expect(done.summary.string("outcome") == "refused")
        let text = try check()
        #expect(text.status == 65)
        #expect(text.output.contains("was edited after"))
        #expect(text.output.contains("working tree's hash"))
        let annotated = try check("--format", "github")
        #expect(
            annotated.output.hasPrefix("::error file=my app/Notes.xcdatamodeld/Notes 2.xcdatamodel"),
            "\(annotated.output)")
    }

    @Test func namesADeletedVersionAndACurrentVersionSetBack() throws {
        try setCurrent("Notes")
        #expect(try check("--json").objects.first?.string("change") == "set_back")
        try run("rm", ["-r", Word(bundle.appending("Notes 2.xcdatamodel"))])
        let changes = try check("--json").objects.filter { $0.type == "version_change" }
        #expect(Set(changes.compactMap { $0.string("change") }) == ["deleted", "set_back"])
        #expect(changes.allSatisfy { $0.string("checksum") == nil || $0.string("change") == "set_back" })
    }

    @Test func aRenamedVersionIsNoError() throws {
        try run("mv", [Word(bundle.appending("Notes.xcdatamodel")), Word(bundle.appending("First.xcdatamodel"))])
        let done = try check("--json")
        #expect(done.status == 0)
        #expect(done.objects.first?.string("change") == "renamed")
    }

    @Test func namesChangedRenamingIdentifiers() throws {
        try write(ModelTests.note.replacing("attributeType", with: "elementID='t' attributeType"), as: "Notes")
        let done = try check("--json")
        #expect(done.status == 0)
        #expect(done.objects.first?.string("change") == "renaming_edited")
    }

    @Test(arguments: ["nonexistent", "--output=x", "HEAD:my app"])
    func refusesWhatIsNoCommit(_ revision: String) throws {
        let done = try groupstore("model", "check", Word(bundle), "--base=\(revision)", "--json")
        #expect(done.status == 74 || done.status == 64)
        #expect(done.summary.object("error")?.string("hint") != nil)
    }

    @Test func refusesADirectoryWithoutARepository() throws {
        let other = try TemporaryDirectory()
        let model = try ModelBundle.make(in: other, [("Notes", ModelTests.note)])
        let done = try groupstore("model", "check", Word(model), "--base", "HEAD", "--json")
        #expect(done.summary.object("error")?.string("code") == "git_failed")
    }

    @Test func thePreCommitHookRefusesAnEditedVersion() throws {
        let hook = directory.path.appending(".git/hooks/pre-commit")
        try run("cp", [Programs.source("Samples/ModelCheck/pre-commit"), Word(hook)])
        try git("branch", "-M", "main")
        try write("<entity name='Note'/>", as: "Notes")
        try git("add", "-A")
        let words: [Word] = [
            "-c", "user.name=a", "-c", "user.email=a@b", "-C", Word(directory.path), "commit", "-qm", "x",
        ]
        let path = Programs.directory.string + ":/usr/local/bin:/usr/bin:/bin"
        let refused = try run("git", words, environment: ["PATH": path, "GROUPSTORE_BASE": "HEAD"])
        #expect(refused.status != 0)
        #expect((refused.output + refused.errors).contains("was edited after"), "\(refused.output)\(refused.errors)")
        try write(ModelTests.note, as: "Notes")
        try write(ModelTests.note + "<entity name='Tag'/><entity name='Page'/>", as: "Notes 3")
        try setCurrent("Notes 3")
        try git("add", "-A")
        let accepted = try run("git", words, environment: ["PATH": path, "GROUPSTORE_BASE": "HEAD"])
        #expect(accepted.status == 0, "\(accepted.output)\(accepted.errors)")
    }

    /// Checks the document against the requirements of SARIF 2.1.0 (sections 3.13 to 3.29) that concern it, by hand: no
    /// package has the official schema.
    @Test func printsAValidSARIFDocument() throws {
        try write(ModelTests.note.replacing("String", with: "Binary"), as: "Notes 2")
        let done = try check("--all", "--format", "sarif")
        #expect(done.status == 65)
        let script = """
            import json, sys, urllib.parse
            log = json.load(sys.stdin)
            assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-2.1.0.json")
            (run,) = log["runs"]
            driver = run["tool"]["driver"]
            assert driver["name"] == "groupstore"
            rules = [rule["id"] for rule in driver["rules"]]
            assert len(set(rules)) == len(rules) and all(rule["shortDescription"]["text"] for rule in driver["rules"])
            assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
            for result in run["results"]:
                assert set(result) <= {"ruleId", "ruleIndex", "level", "message", "locations"}, result
                assert rules[result["ruleIndex"]] == result["ruleId"]
                assert result["level"] in ("none", "note", "warning", "error") and result["message"]["text"]
                for location in result.get("locations", ()):
                    assert set(location) <= {"physicalLocation", "logicalLocations"}
                    physical = location.get("physicalLocation")
                    if physical:
                        uri = physical["artifactLocation"]["uri"]
                        assert " " not in uri and not uri.startswith("/"), uri
                        assert urllib.parse.unquote(uri).startswith("my app/Notes.xcdatamodeld"), uri
                        assert physical.get("region", {"startLine": 1})["startLine"] >= 1
            print(*sorted({result["ruleId"] for result in run["results"]}))
            """
        let path = directory.path.appending("log.sarif")
        try EndToEndSupport.write(done.output, to: path)
        let valid = try run("sh", ["-c", "python3 -c \"$0\" < \"$1\"", Word(script), Word(path)])
        #expect(valid.status == 0, "\(valid.errors)\(done.output)")
        #expect(valid.output == "core_data_134190 version_edited\n", "\(valid.output)")
        #expect(try check("--format", "sarif", "--json").status == 64)
    }
}
