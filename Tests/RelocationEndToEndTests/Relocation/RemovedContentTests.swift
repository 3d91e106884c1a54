import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests that a migration reports removed content before and after, and archives the original store.
@Suite(.ownThreads) struct RemovedContentTests {
    private static let note = """
        <entity name="Note"><attribute name="title" optional="YES" attributeType="String"/>
        <attribute name="image" optional="YES" attributeType="Binary" allowsExternalBinaryDataStorage="YES"/></entity>
        """
    private static let old =
        note + "<entity name='Tag'><attribute name='word' optional='YES' attributeType='String'/></entity>"
    private static let new = """
        <entity name="Note"><attribute name="title" optional="YES" attributeType="String"/></entity>
        """
    private static let file = "1F2E3D4C-0000-4000-8000-123456789ABC"
    private static let removes = #"[{"entity":"Note","property":"image","values":1},{"entity":"Tag","objects":2}]"#

    private let places: Places
    private let model: FilePath

    init() throws {
        places = try Places()
        model = try ModelBundle.make(in: places.scratch("models"), [("Notes", Self.old), ("Notes 2", Self.new)])
    }

    private func make(_ path: FilePath) throws {
        let made = try groupstore("create", Word(path), "--model", Word(model), "--version", "Notes")
        try #require(made.status == 0, "\(made.errors)")
        let name = Self.file.utf8.map { String($0, radix: 16) }.joined()
        try sqlite(
            path,
            """
            INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTITLE, ZIMAGE) VALUES (1, 1, 1, 'one', x'02\(name)00'), (2, 1, 1, 'two', NULL);
            INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT, ZWORD) VALUES (1, 2, 1, 'a'), (2, 2, 1, 'b')
            """)
        let support = try StoreFiles(path).support.appending("_EXTERNAL_DATA")
        try run("mkdir", ["-p", Word(support)])
        try write("picture", to: support.appending(Self.file))
    }

    /// Fails unless the archive contains exactly the whole original store.
    private func expectArchive(in group: FilePath, _ path: String?) throws {
        let archive = try #require(path.map { FilePath($0) })
        let about = try run("cat", [Word(archive.appending("about.json"))]).output
        #expect(about.contains("removed some of it") && about.contains("Tag is not in the newer model"), "\(about)")
        let store = try StoreFiles(archive.appending("Notes.sqlite"))
        #expect(try sqlite(store.path, "SELECT count(*) FROM ZTAG") == "2\n")
        let blob = store.support.appending("_EXTERNAL_DATA").appending(Self.file)
        #expect(try run("cat", [Word(blob)]).output == "picture")
        #expect(try Directory(group.appending(".groupstore/archive")).names().count == 1)
        #expect(FileStatus(following: group.appending(".groupstore/journal.json")) == nil)
    }

    @Test(arguments: ["delete", "archive", "symlink"], Places.FileSystem.allCases)
    func aRelocationArchivesTheOriginal(_ retire: String, _ fileSystem: Places.FileSystem) throws {
        let places = try Places(fileSystem)
        let legacy = places.legacy.appending("Notes.sqlite")
        let group = places.group.appending("Notes.sqlite")
        try make(legacy)
        let words: [Word] = [
            "relocate", Word(legacy), Word(places.group), "--model", Word(model), "--retire", Word(retire), "--json",
        ]
        let before = try DirectorySnapshot(places.legacy)
        let planned = try run(Programs.groupstore, words + ["--dry-run"])
        #expect(planned.status == 0 && planned.summary.written("removes") == Self.removes, "\(planned.output)")
        #expect(planned.output.contains("would be kept in"))
        #expect(try DirectorySnapshot(places.legacy) == before)
        let done = try run(Programs.groupstore, words)
        #expect(done.outcome == "relocated" && done.summary.written("removes") == Self.removes, "\(done.output)")
        #expect(
            done.objects.contains { $0.type == "note" && $0.string("text")?.contains("2 objects are removed") == true })
        try expectArchive(in: places.group, done.summary.string("archive"))
        #expect(try sqlite(group, "SELECT group_concat(ZTITLE) FROM ZNOTE") == "one,two\n")
        if retire == "symlink" {
            #expect(try run("readlink", [Word(legacy)]).lines == [group.string])
        } else {
            #expect(try run("find", [Word(places.legacy), "-name", "*Notes*"]).lines.isEmpty)
        }
        // A file that no object references any more is in the archive only.
        let left = try StoreFiles(group).support.appending("_EXTERNAL_DATA").appending(Self.file)
        #expect(FileStatus(following: left) == nil)
        let again = try run(Programs.groupstore, words)
        #expect(again.status == 0 && again.summary["removes"] == nil, "\(again.output)")
    }

    @Test func archivesNothingIfNothingIsRemoved() throws {
        let legacy = places.legacy.appending("Notes.sqlite")
        try make(legacy)
        try sqlite(legacy, "DELETE FROM ZTAG; UPDATE ZNOTE SET ZIMAGE = NULL")
        let done = try groupstore("relocate", Word(legacy), Word(places.group), "--model", Word(model), "--json")
        #expect(done.outcome == "relocated" && done.summary["removes"] == nil, "\(done.output)")
        #expect(FileStatus(following: places.group.appending(".groupstore/archive")) == nil)
    }

    @Test func aMigrationInPlaceArchivesTheOriginal() throws {
        let store = places.group.appending("Notes.sqlite")
        try make(store)
        let words: [Word] = ["migrate", Word(store), "--model", Word(model), "--json"]
        let check = try groupstore("model", "check", Word(store), Word(model), "--json")
        #expect(check.objects[0].written("removes") == Self.removes, "\(check.output)")
        #expect(check.summary.integer("warnings") == 2)
        let planned = try run(Programs.groupstore, words + ["--dry-run"])
        #expect(planned.summary.written("removes") == Self.removes, "\(planned.output)")
        #expect(planned.output.contains("would be kept in"))
        let done = try run(Programs.groupstore, words)
        #expect(done.summary.string("outcome") == "migrated" && done.summary.written("removes") == Self.removes)
        try expectArchive(in: places.group, done.summary.string("archive"))
        #expect(try sqlite(store, "SELECT group_concat(ZTITLE) FROM ZNOTE") == "one,two\n")
        #expect(done.output.contains("stay in the support folder: \(Self.file)"), "\(done.output)")
    }

    /// The original store stays, so the command archives nothing.
    @Test func reportsRemovedContentInAnotherFile() throws {
        let store = places.group.appending("Notes.sqlite")
        try make(store)
        let new = places.scratch("New.sqlite")
        let done = try groupstore(
            "migrate", Word(store), "--model", Word(model), "--to", Word(new), "--json")
        #expect(done.summary.written("removes") == Self.removes, "\(done.output)")
        #expect(try sqlite(store, "SELECT count(*) FROM ZTAG") == "2\n")
        #expect(FileStatus(following: places.group.appending(".groupstore/archive")) == nil)
    }

    @Test func theAgentArchivesTheOriginal() throws {
        let stores = try ModelStores()
        try make(stores.legacy)
        let agent = try stores.agent()
        let done = try groupstore(
            "relocate", Word(stores.legacy), Word(stores.places.group), "--model", Word(model), "--json",
            environment: agent.environment)
        #expect(done.outcome == "relocated" && done.summary.written("removes") == Self.removes, "\(done.output)")
        try expectArchive(in: stores.places.group, done.summary.string("archive"))
    }

    /// Kills a relocation at random moments and runs it again. The store ends up migrated, and whole in the archive.
    @Test func aKilledRelocationLosesNothing() throws {
        var moments = SeededGenerator(seed: 16)
        var span = Duration.milliseconds(200)
        var interrupted = 0
        for kill in 0..<12 {
            let places = try Places(kill.isMultiple(of: 2) ? .another : .same)
            let legacy = places.legacy.appending("Notes.sqlite")
            try make(legacy)
            let words: [Word] = ["relocate", Word(legacy), Word(places.group), "--model", Word(model), "--json"]
            let first = try RunningProcess(Programs.groupstore, words)
            let started = ContinuousClock.now
            if try first.hasEnded(within: span * Double.random(in: 0...1, using: &moments)) {
                span = max(.milliseconds(20), (span + started.duration(to: .now)) / 2)
            } else {
                try first.killAtOnce()
                interrupted += 1
            }
            let done = try run(Programs.groupstore, words)
            #expect(done.status == 0, "kill \(kill): \(done.output) \(done.errors)")
            let archive = places.group.appending(".groupstore/archive")
            let archives = try Directory(archive).names()
            try #require(archives.count == 1, "kill \(kill)")
            try expectArchive(in: places.group, archive.appending(archives[0]).string)
            #expect(try sqlite(places.group.appending("Notes.sqlite"), "SELECT count(*) FROM ZNOTE") == "2\n")
        }
        #expect(interrupted > 0)
    }
}

extension JSONObject {
    /// Returns an array's text with the members of its objects sorted by name, because parsed members have no order.
    func written(_ key: String) -> String? {
        guard case .array(let elements)? = self[key] else { return nil }
        let texts = elements.map { element in
            guard case .object(let object) = element else {
                let single: JSONObject = ["": element]
                return String(single.text.dropFirst(4).dropLast())
            }
            var sorted = JSONObject()
            for member in object.members.sorted(by: { $0.key < $1.key }) { sorted[member.key] = member.value }
            return sorted.text
        }
        return "[\(texts.joined(separator: ","))]"
    }
}
