import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Core Data's XML stores, converted by `migrate` and `relocate`.
@Suite(.ownThreads) struct XMLStoreTests {
    private let scratch: TemporaryDirectory
    private let model: FilePath
    private let old: FilePath
    private let group: FilePath

    private static let first = """
        <entity name="Folder"><attribute name="name" optional="YES" attributeType="String"/>
        <relationship name="notes" optional="YES" toMany="YES" ordered="YES" deletionRule="Nullify"
          destinationEntity="Note" inverseName="folder" inverseEntity="Note"/></entity>
        <entity name="Note"><attribute name="pageCount" optional="YES" attributeType="Integer 16"/>
        <attribute name="title" optional="YES" attributeType="String"/>
        <relationship name="folder" optional="YES" maxCount="1" deletionRule="Nullify"
          destinationEntity="Folder" inverseName="notes" inverseEntity="Folder"/></entity>
        """

    private static let file = """
        <?xml version="1.0"?>
        <!DOCTYPE database SYSTEM "file:///System/Library/DTDs/CoreData.dtd">

        <database>
            <databaseInfo>
                <version>134481920</version>
                <UUID>343C8D7F-A000-42C4-8463-43FA1E5EF3FB</UUID>
                <nextObjectID>105</nextObjectID>
                <metadata></metadata>
            </databaseInfo>
            <object type="NOTE" id="z104">
                <attribute name="pagecount" type="int16">7</attribute>
                <attribute name="title" type="string">\\u3c00milk\\u3e00 &amp; bread</attribute>
                <relationship name="folder" type="1/1" destination="FOLDER" idrefs="z102"></relationship>
            </object>
            <object type="FOLDER" id="z102">
                <attribute name="name" type="string">one</attribute>
                <relationship name="notes" type="0/0" destination="NOTE" idrefs="z104 z103"></relationship>
            </object>
            <object type="NOTE" id="z103">
                <relationship name="folder" type="1/1" destination="FOLDER" idrefs="z102"></relationship>
            </object>
        </database>

        """

    init() throws {
        scratch = try TemporaryDirectory()
        let newer = Self.first.replacing("name=\"title\"", with: "name=\"caption\" elementID=\"title\"")
            .replacing("name=\"pageCount\"", with: "name=\"pages\" elementID=\"pageCount\"")
        model = try ModelBundle.make(in: scratch, [("Notes", Self.first), ("Notes 2", newer)])
        try run("mkdir", ["-m", "700", Word(scratch.path.appending("old")), Word(scratch.path.appending("group"))])
        old = scratch.path.appending("old/Notes.xml")
        group = scratch.path.appending("group")
        try write(Self.file, to: old)
    }

    private static let rows =
        "SELECT Z_PK, ZPAGES, quote(ZCAPTION), ZFOLDER, Z_FOK_FOLDER FROM ZNOTE ORDER BY Z_FOK_FOLDER"
    private static let expected = "104|7|'<milk> & bread'|102|2048\n103||NULL|102|3072\n"

    @Test func convertsToTheCurrentVersion() throws {
        let new = scratch.path.appending("New.sqlite")
        let words: [Word] = ["migrate", Word(old), "--model", Word(model), "--to", Word(new), "--json"]
        let rehearsed = try run(Programs.groupstore, words + ["--dry-run"])
        #expect(rehearsed.outcome == "would_convert", "\(rehearsed.errors)")
        #expect(FileStatus(following: new) == nil)
        let done = try run(Programs.groupstore, words)
        #expect(done.outcome == "converted", "\(done.errors)")
        #expect(done.summary.string("from_model") == "Notes" && done.summary.string("to_model") == "Notes 2")
        #expect(done.summary.integer("objects") == 3)
        #expect(try sqlite(new, Self.rows) == Self.expected)
        #expect(try sqlite(new, "SELECT Z_UUID FROM Z_METADATA") == "343C8D7F-A000-42C4-8463-43FA1E5EF3FB\n")
        #expect(try run("cat", [Word(old)]).output == Self.file)
        // Never over another file.
        #expect(try run(Programs.groupstore, words).status == 73)
        #expect(try groupstore("migrate", Word(old), "--model", Word(model)).status == 64)
        let checked = try groupstore("model", "check", Word(new), Word(model))
        #expect(checked.status == 0, "\(checked.output)\(checked.errors)")
    }

    @Test func relocatesAndArchivesTheOriginal() throws {
        let words: [Word] = ["relocate", Word(old), Word(group), "--model", Word(model), "--json"]
        let rehearsed = try run(Programs.groupstore, words + ["--dry-run"])
        #expect(rehearsed.status == 0 && rehearsed.summary.bool("dry_run") == true, "\(rehearsed.errors)")
        #expect(try run("ls", ["-A", Word(group)]).output == "")
        let done = try run(Programs.groupstore, words)
        #expect(done.outcome == "relocated", "\(done.errors)")
        #expect(try sqlite(group.appending("Notes.sqlite"), Self.rows) == Self.expected)
        #expect(FileStatus(following: old) == nil)
        let archive = try #require(done.summary.string("archive"))
        #expect(try run("cat", [Word("\(archive)/Notes.xml")]).output == Self.file)
        let shown = try groupstore("archive", "list", Word(group), "--json")
        #expect(shown.output.contains("Notes.xml"))
        let back = scratch.path.appending("old/Back.xml")
        let id = archive.split(separator: "/").last.map(String.init) ?? ""
        let restored = try groupstore("archive", "restore", Word(group), Word(id), "--to", Word(back), "--opaque")
        #expect(restored.status == 0, "\(restored.errors)")
        #expect(try run("cat", [Word(back)]).output == Self.file)
    }

    /// A run that was killed before it removed the original.
    @Test func completesAnInterruptedRelocation() throws {
        let words: [Word] = ["relocate", Word(old), Word(group), "--model", Word(model), "--json"]
        #expect(try run(Programs.groupstore, words).status == 0)
        try write(Self.file, to: old)
        let again = try run(Programs.groupstore, words)
        #expect(again.outcome == "relocated" && FileStatus(following: old) == nil, "\(again.errors)")
        // A file with another content is another store.
        let other = Self.file.replacing(">one<", with: ">two<")
        try write(other, to: old)
        let refused = try run(Programs.groupstore, words)
        #expect(refused.status == 73)
        #expect(try run("cat", [Word(old)]).output == other)
        #expect(try sqlite(group.appending("Notes.sqlite"), Self.rows) == Self.expected)
    }

    /// An XML parser's reading: the encoding that is declared, or that the first bytes tell.
    @Test(
        arguments: [
            ("ISO-8859-1", "latin-1"), ("windows-1252", "cp1252"), (nil, "utf-8-sig"), (nil, "utf-16"),
            ("UTF-16", "utf-16"),
        ] as [(String?, Word)])
    func convertsOtherEncodings(_ declared: String?, _ encoding: Word) throws {
        let text = Self.file.replacing(">one<", with: ">Ã©\r\n<").replacing(
            "<?xml version=\"1.0\"", with: "<?xml version=\"1.0\"" + (declared.map { " encoding=\"\($0)\"" } ?? ""))
        try write(text, to: old)
        let recode =
            "import sys; p = sys.argv[1]; t = open(p, newline='').read(); open(p, 'wb').write(t.encode(sys.argv[2]))"
        #expect(try run("python3", ["-c", Word(recode), Word(old), encoding]).status == 0)
        let new = scratch.path.appending("New.sqlite")
        let done = try groupstore("migrate", Word(old), "--model", Word(model), "--to", Word(new), "--json")
        #expect(done.status == 0, "\(done.errors)")
        let names = "SELECT count(*) FROM ZFOLDER WHERE ZNAME = 'Ã©' || char(10)"
        #expect(try sqlite(new, names) == "1\n")
    }

    @Test(arguments: [
        ("<attribute name=\"pagecount\" type=\"int16\">7<", "<attribute name=\"pagecount\" type=\"int16\">70000<", 12),
        ("<attribute name=\"title\"", "<attribute name=\"unknown\"", 13),
        ("type=\"int16\"", "type=\"string\"", 12), ("type=\"FOLDER\" id", "type=\"SHELF\" id", 16),
        ("idrefs=\"z104 z103\"", "idrefs=\"z104 z199\"", 18), ("id=\"z103\"", "id=\"z104\"", 20),
        ("idrefs=\"z104 z103\"", "idrefs=\"z102\"", 18), ("</database>", "", 24),
        ("<attribute name=\"title\"", "<x", 13), ("<object type=\"FOLDER\"", "stray <object type=\"FOLDER\"", 16),
        ("<attribute name=\"title\"", "stray<attribute name=\"title\"", 13), ("<database>", "<database a='&nbsp;'>", 4),
    ])
    func refusesWhatItCannotConvert(_ part: String, _ replacement: String, _ line: Int) throws {
        let alone = scratch.path.appending("alone")
        try run("mkdir", [Word(alone)])
        let single = try ModelBundle.make(in: alone, [("Notes", Self.first)])
        let damaged = Self.file.replacing(part, with: replacement, maxReplacements: 1)
        #expect(damaged != Self.file)
        try write(damaged, to: old)
        let new = scratch.path.appending("New.sqlite")
        let done = try groupstore(
            "migrate", Word(old), "--model", Word(single), "--to", Word(new), "--json")
        #expect(done.status == 65)
        let error = done.summary.object("error")
        #expect(error?.string("code") == "bad_xml_store")
        #expect(error?.string("message")?.contains("line \(line):") == true, "\(error?.string("message") ?? "")")
        #expect(FileStatus(following: new) == nil)
        #expect(try run("ls", ["-A", Word(scratch.path)]).output.contains(".groupstore-new") == false)
        #expect(try run("cat", [Word(old)]).output == damaged)
    }

    /// `Tests/XMLStores/xmlstores.py`: random models and files, read by an independent implementation of SQLite stores.
    @Test(.soak) func conversionsMatchTheOracle() throws {
        let seed = "\(Tier.seed)"
        let done = try run(
            "python3",
            [
                Programs.source("Tests/XMLStores/xmlstores.py"), Programs.groupstore, "--seed", Word(seed), "--rounds",
                "25",
            ], within: .seconds(300))
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        #expect(done.output.contains(" rounds: "))
    }
}
