import StoreRelocation
import Testing

@testable import StoreMerging

/// The proof finds each kind of damage that a faulty merge could do.
struct MergeProofTests {
    private static let schema = """
        CREATE TABLE folder (id INTEGER PRIMARY KEY, uuid TEXT UNIQUE, name TEXT);
        CREATE TABLE note (id INTEGER PRIMARY KEY, uuid TEXT UNIQUE, title, folder REFERENCES folder, changed REAL);
        CREATE TABLE tag (name TEXT PRIMARY KEY, color) WITHOUT ROWID;
        """

    private func rig() throws -> MergeRig {
        try MergeRig(
            Self.schema,
            group: """
                INSERT INTO folder VALUES (1, 'f1', 'one'), (2, 'f2', 'two');
                INSERT INTO note VALUES (1, 'a', 'A', 1, 1), (2, 'b', 'B', 2, 9), (3, 'c', 'C', NULL, 1);
                INSERT INTO tag VALUES ('x', 1), ('y', 2)
                """,
            legacy: """
                INSERT INTO folder VALUES (1, 'f2', 'two'), (2, 'f3', 'three');
                INSERT INTO note VALUES (1, 'b', 'B old', 1, 2), (2, 'a', 'A new', 2, 5), (4, 'd', 'D', 1, 1);
                INSERT INTO tag VALUES ('y', 2), ('z', 3)
                """)
    }

    private let options = MergeOptions("folder=uuid", "note=uuid", prefer: "newer:changed")

    @Test func acceptsACorrectMerge() throws {
        let rig = try rig()
        let report = try rig.merge(options)
        #expect(report.sum(\.onlyGroup) == 3)
        #expect(
            try rig.rows("SELECT id, uuid, title, folder FROM note ORDER BY id") == [
                "1|a|A new|3", "2|b|B|2", "3|c|C|-", "4|d|D|2",
            ])
        #expect(try rig.rows("SELECT * FROM tag") == ["x|1", "y|2", "z|3"])
    }

    @Test(arguments: [
        "DELETE FROM note WHERE uuid = 'd'", "DELETE FROM note WHERE uuid = 'c'",
        "INSERT INTO note VALUES (9, 'e', 'E', NULL, 1)", "UPDATE note SET title = 'x' WHERE uuid = 'c'",
        "UPDATE note SET title = 'x' WHERE uuid = 'd'", "UPDATE note SET title = 'A' WHERE uuid = 'a'",
        "UPDATE note SET title = 'B old' WHERE uuid = 'b'", "UPDATE note SET folder = 1 WHERE uuid = 'd'",
        "UPDATE note SET folder = NULL WHERE uuid = 'a'", "UPDATE note SET id = 8 WHERE uuid = 'd'",
        "UPDATE note SET changed = 4 WHERE uuid = 'a'", "UPDATE note SET title = x'42' WHERE uuid = 'b'",
        "DELETE FROM tag WHERE name = 'z'", "DELETE FROM tag WHERE name = 'x'", "INSERT INTO tag VALUES ('w', 0)",
        "UPDATE tag SET color = 5 WHERE name = 'y'", "UPDATE folder SET name = '' WHERE uuid = 'f3'",
        "DELETE FROM folder; INSERT INTO folder VALUES (1, 'f1', 'one'), (2, 'f3', 'three'), (3, 'f2', 'two')",
    ])
    func refusesATamperedResult(_ statement: String) throws {
        let rig = try rig()
        let error = #expect(throws: RelocationFailure.self) { try rig.merge(options, tampering: statement) }
        #expect(error?.code == "merge_proof")
    }

    @Test(arguments: [
        "DELETE FROM m1 WHERE lid = 4", "UPDATE m1 SET gid = 3 WHERE lid = 2",
        "DROP INDEX i1; UPDATE m1 SET gid = 1", "UPDATE m1 SET s = 3 WHERE lid = 1",
        "INSERT INTO m1 VALUES (77, 3, 1)", "UPDATE m1 SET s = 1 WHERE lid = 4",
    ])
    func refusesAFalseClaim(_ statement: String) throws {
        let rig = try rig()
        let error = #expect(throws: RelocationFailure.self) { try rig.merge(options, claiming: statement) }
        #expect(error?.code == "merge_proof")
    }
}
