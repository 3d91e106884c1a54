import StoreRelocation
import Testing

@testable import StoreMerging

/// References that the schema doesn't declare.
struct DeclaredReferenceTests {
    private static let schema = """
        CREATE TABLE tag (id INTEGER PRIMARY KEY, name TEXT UNIQUE);
        CREATE TABLE note (id INTEGER PRIMARY KEY, uuid TEXT, parent INT);
        CREATE TABLE note_tag (note_id INT, tag_id INT, PRIMARY KEY (note_id, tag_id));
        """

    private func rig() throws -> MergeRig {
        try MergeRig(
            Self.schema,
            group: """
                INSERT INTO tag VALUES (1, 'red'); INSERT INTO note VALUES (1, 'u1', NULL);
                INSERT INTO note_tag VALUES (1, 1)
                """,
            legacy: """
                INSERT INTO tag VALUES (1, 'blue'), (2, 'red'); INSERT INTO note VALUES (1, 'u2', NULL), (2, 'u1', 1);
                INSERT INTO note_tag VALUES (1, 1), (1, 2), (2, 1)
                """)
    }

    private func options(_ references: String...) -> MergeOptions {
        var options = MergeOptions("tag=name", "note=uuid", prefer: "legacy")
        options.references = references.compactMap(MergeReference.init)
        return options
    }

    @Test func followRenumberedRows() throws {
        let rig = try rig()
        let report = try rig.merge(
            options("note_tag.tag_id=tag.id", "NOTE_TAG.note_id=note.ID", "note.parent=note.id"))
        let links = "SELECT uuid, name FROM note_tag JOIN note ON note.id = note_id JOIN tag ON tag.id = tag_id "
        #expect(try rig.rows(links + "ORDER BY 1, 2") == ["u1|blue", "u1|red", "u2|blue", "u2|red"])
        #expect(
            try rig.rows("SELECT p.uuid FROM note AS n JOIN note AS p ON p.id = n.parent WHERE n.uuid = 'u1'")
                == ["u2"])
        #expect(report.references.map(\.changed) == [3, 3, 1])
        #expect(report.references.map(\.column) == ["tag_id", "note_id", "parent"])
    }

    @Test func aChangedReferenceFailsTheProof() throws {
        let error = #expect(throws: RelocationFailure.self) {
            try rig().merge(options("note.parent=note.id"), tampering: "UPDATE note SET parent = 1 WHERE uuid = 'u1'")
        }
        #expect(error?.code == "merge_proof")
    }

    @Test(arguments: ["note_tag.tag=tag.id", "nothing.x=tag.id", "note_tag.tag_id=tag.x", "note_tag.tag_id=labels.id"])
    func mustExist(_ reference: String) throws {
        let rig = try rig()
        let error = #expect(throws: RelocationFailure.self) { try rig.merge(options(reference)) }
        #expect(error?.code == "unknown_reference")
        #expect(try rig.rows("SELECT count(*) FROM note") == ["1"])
    }

    @Test(arguments: ["", "a", "a.b", "a.b=c", "=c.d", "a.=c.d", ".b=c.d", "a.b=", "a.b=c."])
    func refusesAMalformedReference(_ text: String) { #expect(MergeReference(text) == nil) }

    @Test func dotsMayBePartOfATablesName() throws {
        let reference = try #require(MergeReference("main.log.note=note.id"))
        #expect(reference.source.table == "main.log")
        #expect(reference.source.column == "note")
        #expect(reference.text == "main.log.note=note.id")
        #expect([reference, reference].firstRepeated == reference)
    }
}
