import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `--validate`: what Core Data would refuse to save, after a migration.
@Suite(.ownThreads) struct ValidationTests {
    private let scratch: TemporaryDirectory
    private let model: FilePath
    private let store: FilePath

    private static func note(limits: Bool, extra: String = "") -> String {
        func limit(_ text: String) -> String { limits ? text : "" }
        return """
            <entity name="Note">
            <attribute name="date" optional="YES" attributeType="Date" \(limit("minDateTimeInterval='100'"))
              usesScalarValueType="NO"/>
            <attribute name="stars" optional="YES" attributeType="Integer 16"
              \(limit("minValueString='1' maxValueString='5'")) usesScalarValueType="NO"/>
            <attribute name="title" optional="YES" attributeType="String"
              \(limit("minValueString='2' maxValueString='4'"))/>
            <attribute name="word" optional="YES" attributeType="String"
              \(limit(#"regularExpressionString="[a-z]+'?\d*""#))/>
            <relationship name="folder" optional="YES" maxCount="1" deletionRule="Nullify"
              destinationEntity="Folder" inverseName="notes" inverseEntity="Folder"/>
            \(extra)</entity>
            <entity name="Memo" parentEntity="Note"/>
            """
    }

    private static let folder = """
        <entity name="Folder"><attribute name="name" optional="YES" attributeType="String"/>
        <relationship name="notes" optional="YES" toMany="YES" deletionRule="Deny" destinationEntity="Note"
          inverseName="folder" inverseEntity="Note"/></entity>
        """

    init() throws {
        scratch = try TemporaryDirectory()
        model = try ModelBundle.make(
            in: scratch,
            [
                ("Notes", Self.note(limits: false) + Self.folder),
                (
                    "Notes 2",
                    Self.note(limits: true, extra: "<attribute name='new' optional='YES' attributeType='String'/>")
                        + Self.folder
                ),
            ])
        try run("mkdir", [Word(scratch.path.appending("stores"))])
        store = scratch.path.appending("stores/Notes.sqlite")
        #expect(try groupstore("create", Word(store), "--model", Word(model), "--version", "Notes").status == 0)
    }

    /// Folder is entity 1, Note 2 and Memo 3.
    private func fill(_ rows: String...) throws {
        try sqlite(
            store,
            "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZDATE, ZSTARS, ZTITLE, ZWORD, ZFOLDER) VALUES "
                + rows.joined(separator: ", ")
                + "; INSERT INTO ZFOLDER (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (1, 1, 1, 'one'), (2, 1, 1, 'two');"
                + "UPDATE Z_PRIMARYKEY SET Z_MAX = (SELECT max(Z_PK) FROM ZNOTE) WHERE Z_NAME = 'Note';"
                + "UPDATE Z_PRIMARYKEY SET Z_MAX = 2 WHERE Z_NAME = 'Folder'")
    }

    private func migrate(_ options: Word..., to new: FilePath? = nil) throws -> FinishedProcess {
        try groupstore(
            "migrate", Word(store), "--model", Word(new ?? model), "--json", options: options)
    }

    private func faults(_ done: FinishedProcess) -> [String: [Int64]] {
        var found: [String: [Int64]] = [:]
        for object in done.objects where object.type == "fault" {
            guard case .array(let keys)? = object["keys"] else { continue }
            let name =
                "\(object.string("entity") ?? "").\(object.string("property") ?? "") \(object.integer("code") ?? 0)"
            found[name, default: []] += keys.compactMap { if case .integer(let key) = $0 { key } else { nil } }
        }
        return found
    }

    private let hash = "SELECT count(*) || group_concat(quote(ZTITLE)) FROM ZNOTE"

    @Test func listsEveryFaultWithItsObjectsAndRefuses() throws {
        try fill(
            "(1, 2, 1, 100, 1, 'ab', 'fine', 1)", "(2, 2, 1, 99.5, 0, 'a', 'X', NULL)",
            "(3, 2, 1, NULL, NULL, NULL, NULL, NULL)", "(4, 3, 1, 101, 6, 'abcde', 'it''s', 2)",
            // Two emoji are four UTF-16 units, as Core Data counts: allowed. Three are not.
            "(5, 2, 1, 100, 5, '😀😀', 'a''7', 2)", "(6, 2, 1, 100, 5, '😀😀😀', '', 2)", "(7, 2, 1, 1, 5, '', 'ok', 2)")
        let expected: [String: [Int64]] = [
            "Note.date 1640": [2, 7], "Note.stars 1620": [2], "Note.title 1670": [2, 7], "Note.title 1660": [6],
            "Note.word 1680": [2, 6], "Memo.stars 1610": [4], "Memo.title 1660": [4], "Memo.word 1680": [4],
        ]
        let before = try run("sha256sum", [Word(store)]).output
        let rehearsed = try migrate("--validate", "refuse", "--dry-run")
        #expect(rehearsed.status == 65 && faults(rehearsed) == expected)
        let refused = try migrate("--validate", "refuse")
        #expect(refused.status == 65)
        #expect(faults(refused) == expected)
        #expect(refused.summary.object("error")?.string("code") == "core_data_1560")
        #expect(try run("sha256sum", [Word(store)]).output == before)
        let content = try sqlite(store, hash)
        let reported = try migrate("--validate", "report")
        #expect(reported.status == 0 && reported.outcome == "migrated")
        #expect(faults(reported) == expected)
        #expect(try sqlite(store, hash) == content)
    }

    @Test func printsRangesOfKeysForPeople() throws {
        try fill(
            "(1, 2, 1, 100, 9, 'ab', NULL, 1)", "(2, 2, 1, 100, 9, 'ab', NULL, 1)", "(4, 2, 1, 100, 9, 'ab', NULL, 1)")
        let done = try groupstore("migrate", Word(store), "--model", Word(model), "--validate", "report")
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.output.contains("fault: Note.stars: its number is too large (SELF <= 5): objects 1-2, 4\n"))
        #expect(done.output.contains("note: 3 faults of validation"))
    }

    @Test func findsNothingWhereAllIsValid() throws {
        try fill("(1, 2, 1, 100, 1, 'ab', 'fine', 1)")
        let done = try migrate("--validate", "refuse")
        #expect(done.status == 0 && done.outcome == "migrated" && faults(done).isEmpty, "\(done.errors)")
    }

    /// Folder 1 has a note, which stays; folder 2 has none.
    @Test func findsDroppedObjectsWhoseDeletionIsDenied() throws {
        try fill("(1, 2, 1, 100, 1, 'ab', 'fine', 1)", "(2, 3, 1, 100, 1, 'ab', 'fine', NULL)")
        let notes = Self.note(limits: true).replacing("<relationship name=\"folder\"", with: "<x name=\"folder\"")
            .replacing("inverseName=\"notes\" inverseEntity=\"Folder\"/>", with: "/>")
        let other = try TemporaryDirectory()
        let new = try ModelBundle.make(
            in: other, [("Notes", Self.note(limits: false) + Self.folder), ("Notes 2", notes)])
        let refused = try migrate("--validate", "refuse", to: new)
        #expect(refused.status == 65 && faults(refused) == ["Folder.notes 1600": [1]], "\(refused.errors)")
        let done = try migrate("--validate", "report", to: new)
        #expect(done.status == 0 && faults(done) == ["Folder.notes 1600": [1]])
    }

    @Test func findsObjectsThatAMappingModelLeavesOut() throws {
        try fill("(1, 2, 1, 100, 1, 'ab', 'fine', 1)", "(2, 3, 1, 100, 1, 'ab', 'fine', 2)")
        let mapping = scratch.path.appending("some.mapping.yaml")
        // Folder 1 is dropped with its note; folder 2 is dropped, but its memo stays.
        try write(
            """
            mapping: 1
            entities:
              - from: Folder
                to: Folder
                where: name == "three"
              - from: Note
                to: Note
                where: title == "none"
              - from: Memo
                to: Memo

            """, to: mapping)
        let done = try migrate("--validate", "refuse", "--mapping", Word(mapping))
        #expect(done.status == 65 && faults(done) == ["Folder.notes 1600": [2]], "\(done.errors)")
    }

    @Test(arguments: [true, false]) func validatesOnTheWayToAGroup(_ withAgent: Bool) throws {
        try fill("(1, 2, 1, 100, 1, 'a', 'fine', 1)")
        let group = scratch.path.appending("group")
        try run("mkdir", ["-m", "700", Word(group)])
        var agent: AgentProcess?
        if withAgent {
            let configuration = scratch.path.appending("config.yaml")
            try write(
                "groups: [{ id: group.com.example.notes, directory: \(group), stores: [{ name: Notes.sqlite }] }]\n",
                to: configuration)
            agent = try AgentProcess(["--config", Word(configuration)], socket: scratch.path.appending("agent.sock"))
        }
        for (policy, status) in [("refuse", 65), ("report", 0)] {
            let done = try groupstore(
                "relocate", Word(store), Word(group), "--model", Word(model), "--json", "--validate", Word(policy),
                environment: agent?.environment ?? [:])
            #expect(done.status == status, "\(done.errors)")
            #expect(faults(done) == ["Note.title 1670": [1]])
            #expect((try sqlite(status == 0 ? group.appending("Notes.sqlite") : store, hash)) == "1'a'\n")
        }
    }

    @Test func needsAModelAndAKnownPolicy() throws {
        #expect(try groupstore("relocate", Word(store), Word(scratch.path), "--validate", "report").status == 64)
        #expect(try migrate("--validate", "perhaps").status == 64)
    }

    /// Stores that Core Data wrote have objects without any object in a mandatory to-many relationship.
    @Test(arguments: ["", "minCount='1'"], [nil, "map"])
    func aMandatoryToManyRelationshipNeedsObjectsOnlyIfItHasAMinimum(_ minimum: String, _ mapped: String?) throws {
        let other = try TemporaryDirectory()
        func shelf(_ minimum: String, _ more: String = "") -> String {
            """
            <entity name="Book"><attribute name="title" optional="YES" attributeType="String"/>
            <relationship name="shelf" optional="YES" maxCount="1" destinationEntity="Shelf" inverseName="books"
              inverseEntity="Shelf"/></entity>
            <entity name="Shelf">\(more)<relationship name="books" toMany="YES" \(minimum) destinationEntity="Book"
              inverseName="shelf" inverseEntity="Book"/></entity>
            """
        }
        let new = try ModelBundle.make(
            in: other,
            [
                ("Shelf", shelf("")),
                ("Shelf 2", shelf(minimum, "<attribute name='new' optional='YES' attributeType='String'/>")),
            ])
        let shelves = scratch.path.appending("stores/Shelf.sqlite")
        #expect(try groupstore("create", Word(shelves), "--model", Word(new), "--version", "Shelf").status == 0)
        try sqlite(
            shelves, "INSERT INTO ZSHELF VALUES (1, 2, 1); UPDATE Z_PRIMARYKEY SET Z_MAX = 1 WHERE Z_NAME = 'Shelf'")
        let isValid = minimum.isEmpty
        let check = try groupstore("model", "check", Word(shelves), Word(new), "--json")
        #expect(check.objects.contains { $0.string("property") == "books" } == !isValid, "\(check.output)")
        var options: [Word] = ["--validate", "refuse"]
        if mapped != nil {
            let mapping = other.path.appending("all.map")
            try write("mapping: 1\nentities:\n  - {from: Shelf, to: Shelf}\n  - {from: Book, to: Book}\n", to: mapping)
            options = ["--mapping", Word(mapping)]
        }
        let done = try groupstore("migrate", Word(shelves), "--model", Word(new), "--json", options: options)
        #expect(done.status == (isValid ? 0 : 65), "\(done.errors)")
        let diagram = try groupstore("model", "show", Word(new), "--format", "mermaid")
        #expect(diagram.output.contains("\"1..*\"") == !isValid, "\(diagram.output)")
    }
}
