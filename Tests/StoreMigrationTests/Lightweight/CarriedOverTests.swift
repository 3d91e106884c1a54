import Testing

@testable import StoreMigration

/// Content that isn't the model's: foreign tables and triggers, history, derived values.
struct CarriedOverTests {
    private let name = "<attribute name='name' optional='YES' attributeType='String'/>"
    private let count = "<attribute name='count' optional='YES' attributeType='Integer 16'/>"

    @Test func foreignTablesAndTriggersAreCarriedOver() throws {
        let store = try StagedStore(
            entity(name + count),
            [
                "INSERT INTO ZA VALUES (1, 1, 1, 5, 'x')", "CREATE TABLE log (what TEXT)",
                "INSERT INTO log VALUES ('kept')",
                "CREATE TRIGGER logged AFTER UPDATE ON ZA BEGIN INSERT INTO log VALUES (NEW.ZNAME); END",
                "CREATE TRIGGER foreign_function AFTER DELETE ON ZA BEGIN SELECT their_function(OLD.ZNAME); END",
                "CREATE TRIGGER counted AFTER UPDATE OF ZCOUNT ON ZA BEGIN INSERT INTO log VALUES (NEW.ZCOUNT); END",
                "CREATE VIEW names AS SELECT ZNAME FROM ZA", "CREATE VIEW counts AS SELECT ZCOUNT FROM ZA",
                "CREATE INDEX my_names ON ZA (ZNAME)", "CREATE INDEX my_counts ON ZA (ZCOUNT)",
            ])
        let notes = try store.migrate(to: entity(name))
        #expect(notes.count == 4)
        for name in ["counted", "counts", "my_counts", "A.count"] {
            #expect(notes.contains { $0.contains(name) }, "\(name)")
        }
        #expect(try store.rows("SELECT * FROM log") == ["'kept'"])
        #expect(
            try store.rows("SELECT name FROM sqlite_schema WHERE type IN ('trigger', 'view', 'index') ORDER BY 1")
                == ["'foreign_function'", "'logged'", "'my_names'", "'names'"])
    }

    /// Triggers may watch rowids by names that no table lists, and a view has columns too.
    @Test func keepsTriggersOfRowIDsAndOfViews() throws {
        let store = try StagedStore(
            entity(name + count),
            [
                "CREATE TABLE log (what TEXT, \"odd name\")", "CREATE VIEW names AS SELECT * FROM inner_names",
                "CREATE VIEW inner_names AS SELECT ZNAME FROM ZA",
                "CREATE TRIGGER a AFTER UPDATE OF rowid, _rowid_, oid, Z_PK ON ZA BEGIN INSERT INTO log VALUES (1, 2); END",
                "CREATE TRIGGER b AFTER UPDATE OF \"odd name\" ON log BEGIN DELETE FROM ZA; END",
                "CREATE TRIGGER c INSTEAD OF UPDATE OF ZNAME ON names BEGIN INSERT INTO log VALUES (NEW.ZNAME, 2); END",
                "CREATE TRIGGER d INSTEAD OF INSERT ON names BEGIN INSERT INTO log VALUES (NEW.ZNAME, 2); END",
            ])
        #expect(try store.migrate(to: entity(name)).isEmpty)
        #expect(
            try store.rows("SELECT name FROM sqlite_schema WHERE type = 'trigger' ORDER BY 1")
                == ["'a'", "'b'", "'c'", "'d'"])
    }

    @Test func refusesAForeignTableWhoseNameTheModelNeeds() throws {
        let store = try StagedStore(entity(name), ["CREATE TABLE ZB (x)"])
        let error = #expect(throws: MigrationError.self) {
            try store.migrate(to: entity(name) + "<entity name='B'/>")
        }
        #expect(error?.message.contains("ZB") == true)
    }

    private let history = [
        "CREATE TABLE ACHANGE (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZCHANGETYPE INTEGER, "
            + "ZENTITY INTEGER, ZENTITYPK INTEGER, ZTRANSACTIONID INTEGER, ZCOLUMNS BLOB, ZTOMBSTONE0 BLOB)",
        "INSERT INTO Z_PRIMARYKEY VALUES (16001, 'CHANGE', 0, 9)",
        // Bits of count and name: the first change updated count, the second name.
        "INSERT INTO ACHANGE VALUES (1, 16001, NULL, 1, 1, 1, 1, x'80', NULL), (2, 16001, NULL, 1, 1, 1, 2, x'40', NULL)",
        "INSERT INTO ACHANGE VALUES (3, 16001, NULL, 2, 1, 1, 3, NULL, 'gone')",
    ]

    /// Entity numbers, bitmaps of updated columns and tombstones become those of the new model.
    @Test func rewritesHistoryForTheNewModel() throws {
        let kept = "<attribute name='name' optional='YES' attributeType='String' preserveAfterDeletion='YES'/>"
        let key = "<attribute name='key' optional='YES' attributeType='String' preserveAfterDeletion='YES'/>"
        let store = try StagedStore("<entity name='B'>\(kept)\(count)</entity>", history)
        try store.migrate(to: "<entity name='A'/><entity name='B'>\(kept)\(count)\(key)</entity>")
        #expect(
            try store.rows("SELECT ZENTITY, ZCOLUMNS, ZTOMBSTONE0, ZTOMBSTONE1 FROM ACHANGE")
                == ["2 x'80' NULL NULL", "2 x'20' NULL NULL", "2 NULL NULL 'gone'"])
        #expect(try store.rows("SELECT Z_ENT, Z_MAX FROM Z_PRIMARYKEY WHERE Z_ENT > 16000") == ["16001 9"])
    }

    @Test func refusesToLoseHistoryOfARemovedEntity() throws {
        let old = "<entity name='B'>\(name)\(count)</entity><entity name='C'/>"
        let error = #expect(throws: MigrationError.self) {
            try StagedStore(old, history).migrate(to: "<entity name='C'/>")
        }
        #expect(error?.message.contains("persistent history has 3 changes of it") == true)
        let store = try StagedStore(old, history)
        let notes = try store.migrate(to: "<entity name='C'/>", MigrationOptions(allowsPartialHistory: true))
        #expect(notes.count == 1)
        #expect(try store.rows("SELECT count(*) FROM ACHANGE") == ["0"])
    }

    @Test func aNewDerivedAttributeIsComputed() throws {
        let page =
            "<entity name='Page'><relationship name='book' optional='YES' maxCount='1' destinationEntity='Book' "
            + "inverseName='pages' inverseEntity='Book'/></entity>"
        let book = { (more: String) in
            "<entity name='Book'><relationship name='pages' optional='YES' toMany='YES' destinationEntity='Page' "
                + "inverseName='book' inverseEntity='Page'/>\(more)</entity>"
        }
        let derived =
            "<attribute name='n' optional='YES' attributeType='Integer 64' derived='YES' "
            + "derivationExpression='pages.@count'/>"
        let store = try StagedStore(
            book("") + page,
            [
                "INSERT INTO ZBOOK VALUES (1, 1, 1), (2, 1, 1)",
                "INSERT INTO ZPAGE (Z_PK, Z_ENT, Z_OPT, ZBOOK) VALUES (1, 2, 1, 1), (2, 2, 1, 1)",
            ])
        let target = try model(book(derived) + page)
        try store.migrate(to: target)
        #expect(try store.rows("SELECT Z_PK, ZN FROM ZBOOK") == ["1 2", "2 0"])
        #expect(try store.differences(from: target) == [])
    }

    /// Two objects of different entities have the same key. The pair is unique, and both numbers change.
    @Test func renumbersCloudMirroring() throws {
        let entities = "<entity name='B'/><entity name='C'/><entity name='D'/>"
        let store = try StagedStore(
            entities,
            [
                "CREATE TABLE ANSCKRECORDMETADATA (Z_PK INTEGER PRIMARY KEY, ZENTITYID INTEGER, ZENTITYPK INTEGER)",
                "CREATE UNIQUE INDEX Z_NSCKRecordMetadata_UNIQUE_entityId_entityPK ON ANSCKRECORDMETADATA "
                    + "(ZENTITYID, ZENTITYPK)",
                "INSERT INTO ANSCKRECORDMETADATA VALUES (1, 1, 5), (2, 2, 5), (3, 3, 5), (4, 17001, 5)",
            ])
        try store.migrate(to: "<entity name='A'/>" + entities)
        #expect(
            try store.rows("SELECT Z_PK, ZENTITYID, ZENTITYPK FROM ANSCKRECORDMETADATA ORDER BY 1")
                == ["1 2 5", "2 3 5", "3 4 5", "4 17001 5"])
    }

    @Test func reportsAForeignColumnThatIsDropped() throws {
        let attributes = ["a", "b", "c"].map { "<attribute name='\($0)' optional='YES' attributeType='String'/>" }
        let all = entity(attributes.joined())
        let kept = try StagedStore(
            all, ["ALTER TABLE ZA ADD COLUMN mine TEXT", "INSERT INTO ZA (Z_PK, mine) VALUES (1, 'x')"])
        #expect(try kept.migrate(to: entity(attributes[0] + attributes[1])) == [])
        #expect(try kept.rows("SELECT mine FROM ZA") == ["'x'"])
        let dropped = try StagedStore(all, ["ALTER TABLE ZA ADD COLUMN mine TEXT"])
        let notes = try dropped.migrate(to: entity(attributes[0]))
        #expect(notes == ["the column ZA.mine, which is not in the model, is dropped"])
    }

    @Test func restoresAMissingHighestKey() throws {
        let store = try StagedStore(
            entity("<attribute name='a' optional='YES' attributeType='String'/>"),
            ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT) VALUES (41, 1, 1)", "DELETE FROM Z_PRIMARYKEY"])
        try store.migrate(to: entity("<attribute name='b' optional='YES' attributeType='String' elementID='a'/>"))
        #expect(try store.rows("SELECT Z_ENT, Z_NAME, Z_MAX FROM Z_PRIMARYKEY") == ["1 'A' 41"])
    }
}
