import CoreDataStore
import Testing

/// Tables, indexes and triggers whose names conflict.
struct SchemaNameTests {
    private let old =
        "<attribute name='a' optional='YES' attributeType='String'/><attribute name='b' optional='YES' attributeType='String'/>"
        + "<attribute name='a_b' optional='YES' attributeType='String'/>"
    private let rows = ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZA, ZB, ZA_B) VALUES (1, 1, 1, 'a', 'b', 'ab')"]
    private let added = "<attribute name='z' optional='YES' attributeType='String'/>"

    private func constraints(_ all: [String]...) -> String {
        let tuples = all.map { names in
            "<uniquenessConstraint>" + names.map { "<constraint value='\($0)'/>" }.joined() + "</uniquenessConstraint>"
        }
        return "<uniquenessConstraints>\(tuples.joined())</uniquenessConstraints>"
    }

    @Test func eachUniquenessConstraintHasAnIndex() throws {
        let store = try StagedStore(entity(old), rows)
        try store.migrate(to: entity(old + constraints(["a", "b"], ["a_b"])))
        #expect(
            try store.rows(
                "SELECT group_concat(i.name) FROM sqlite_schema AS s, pragma_index_info(s.name) AS i "
                    + "WHERE s.sql LIKE 'CREATE UNIQUE%' GROUP BY s.name") == ["'ZA,ZB'", "'ZA_B'"])
    }

    /// Core Data's index of the table ZA has the name of the new entity's table.
    @Test func aTableMayBeNamedAsAnIndexWas() throws {
        let family = "<entity name='A'>\(old)</entity><entity name='B' parentEntity='A'/>"
        let store = try StagedStore(family, rows)
        try store.migrate(to: family + "<entity name='A_Z_ENT_INDEX'>\(added)</entity>")
        #expect(try store.rows("SELECT ZA, ZB, ZA_B FROM ZA") == ["'a' 'b' 'ab'"])
        #expect(try store.rows("SELECT count(*) FROM ZA_Z_ENT_INDEX") == ["0"])
        #expect(
            try store.rows("SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'ZA'")
                == ["'ZA_Z_ENT_INDEX1'"])
    }

    @Test func temporaryTablesAvoidNamesThatAreTaken() throws {
        let store = try StagedStore(
            entity(old), rows + ["CREATE TABLE _T_ZA (x)", "CREATE TABLE _t_t_za (x)", "INSERT INTO _T_ZA VALUES (1)"])
        try store.migrate(to: entity(added.replacing("'z'", with: "'a' versionHashModifier='2'")))
        #expect(try store.rows("SELECT ZA FROM ZA") == ["'a'"])
        #expect(try store.rows("SELECT x FROM _T_ZA") == ["1"])
    }

    /// Foreign triggers and indexes are kept or reported, whatever their names are.
    @Test func keepsOrReportsForeignObjects() throws {
        let store = try StagedStore(
            entity(old),
            rows + [
                "CREATE TABLE log (x)",
                "CREATE TRIGGER Z_DA_mine AFTER UPDATE ON ZA BEGIN INSERT INTO log VALUES (new.Z_PK); END",
                "CREATE INDEX Z_A_mine ON ZA (ZB)", "CREATE INDEX mine ON ZA (ZA)",
            ])
        let notes = try store.migrate(
            to: entity(
                old.replacing("name='b'", with: "name='b' versionHashModifier='2'").replacing("'a_b'", with: "'c'")))
        let left = try store.rows("SELECT name FROM sqlite_schema WHERE type IN ('trigger', 'index')")
        for name in ["Z_DA_mine", "Z_A_mine", "mine"] {
            #expect(left.contains("'\(name)'") || notes.contains { $0.contains(name) }, "\(name)")
        }
        #expect(left.contains("'Z_DA_mine'") && left.contains("'mine'"))
    }
}
