import SQLiteStore
import Testing

@testable import MigrationAudit

/// The audit of everything except objects: Core Data's own tables, history, other tables.
struct SurroundingsAuditTests {
    private let a = "<entity name='A'/>"

    @Test func refusesAnotherStoreIdentity() throws {
        #expect(try AuditedStores(a, a, uuid: "OTHER").audit()?.property == "Z_UUID")
    }

    @Test(arguments: [
        "UPDATE Z_PRIMARYKEY SET Z_MAX = 8", "UPDATE Z_PRIMARYKEY SET Z_SUPER = 1", "DELETE FROM Z_PRIMARYKEY",
        "UPDATE Z_METADATA SET Z_PLIST = NULL", "UPDATE Z_METADATA SET Z_PLIST = replace(Z_PLIST, 'kept', 'lost')",
        "CREATE TABLE _T_ZA (x)", "PRAGMA user_version = 3",
    ])
    func refusesChangedBookkeeping(_ change: String) throws {
        #expect(try AuditedStores(a, a, after: [change]).audit() != nil)
    }

    @Test(arguments: [
        ("", true), ("UPDATE other SET x = 2", false), ("DELETE FROM other", false), ("DROP TABLE other", false),
        ("INSERT INTO other VALUES (1)", false), ("ALTER TABLE other ADD COLUMN y", false),
    ])
    func checksOtherTables(_ change: String, _ passes: Bool) throws {
        let rows = ["CREATE TABLE other (x)", "INSERT INTO other VALUES (1)"]
        let stores = try AuditedStores(a, a, rows: rows, after: change.isEmpty ? [] : [change])
        #expect(try (stores.audit() == nil) == passes)
    }

    /// Two Unicode forms of one text are two names, and two values.
    @Test(arguments: [
        ("", true), ("UPDATE t\u{E9} SET e\u{301} = 9", false), ("UPDATE te\u{301} SET \u{E9} = 9", false),
        ("UPDATE te\u{301} SET k = 'e\u{301}' WHERE k = '\u{E9}'", false),
    ])
    func tellsNormalFormsApart(_ change: String, _ passes: Bool) throws {
        let rows = ["\u{E9}", "e\u{301}"].flatMap {
            [
                "CREATE TABLE t\($0) (k TEXT, \u{E9}, e\u{301})",
                "INSERT INTO t\($0) VALUES ('\u{E9}', 1, 2), ('e\u{301}', 3, 4)",
            ]
        }
        let stores = try AuditedStores(a, a, rows: rows, after: change.isEmpty ? [] : [change])
        #expect(try (stores.audit() == nil) == passes)
    }

    @Test(arguments: [("2, x'40'", true), ("1, x'40'", false), ("2, x'80'", false)])
    func checksHistory(_ change: String, _ passes: Bool) throws {
        func entity(_ more: String) -> String {
            "<entity name='B'><attribute name='b' optional='YES' attributeType='String'/>\(more)</entity>"
        }
        let table = "CREATE TABLE ACHANGE (Z_PK INTEGER PRIMARY KEY, ZENTITY INTEGER, ZCOLUMNS BLOB)"
        let stores = try AuditedStores(
            entity(""), a + entity("<attribute name='a' optional='YES' attributeType='String'/>"),
            before: [table, "INSERT INTO ACHANGE VALUES (1, 1, x'80')"],
            after: [table, "INSERT INTO ACHANGE VALUES (1, \(change))"])
        #expect(try (stores.audit() == nil) == passes)
    }

    /// `A` is removed: its number is `B`'s now.
    @Test(
        arguments: [
            ("(2, 1, 7, 2)", "", nil), ("(1, 1, 7, 1), (2, 1, 7, 2)", "", "RECORDMETADATA"),
            ("(2, 2, 7, 2)", "", "RECORDMETADATA"),
            ("(2, 1, 8, 2)", "", "RECORDMETADATA"), ("(1, 2, 7, 1), (2, 1, 7, 2)", "", "RECORDMETADATA"),
            ("(2, 1, 7, 2)", "(1, 1)", "MOVERECEIPT"), ("", "", "RECORDMETADATA"),
        ] as [(String, String, String?)])
    func checksCloudKitsRecords(_ records: String, _ receipts: String, _ table: String?) throws {
        let tables = [
            "CREATE TABLE ANSCKRECORDMETADATA (Z_PK INTEGER PRIMARY KEY, ZENTITYID INTEGER, ZENTITYPK INTEGER, x)",
            "CREATE TABLE ANSCKRECORDZONEMOVERECEIPT (Z_PK INTEGER PRIMARY KEY, ZRECORDMETADATA INTEGER)",
        ]
        let b = "<entity name='B'/>"
        let stores = try AuditedStores(
            a + b, b, rows: tables,
            before: [
                "INSERT INTO ANSCKRECORDMETADATA VALUES (1, 1, 7, 1), (2, 2, 7, 2)",
                "INSERT INTO ANSCKRECORDZONEMOVERECEIPT VALUES (1, 1)",
            ],
            after: (records.isEmpty ? [] : ["INSERT INTO ANSCKRECORDMETADATA VALUES \(records)"])
                + (receipts.isEmpty ? [] : ["INSERT INTO ANSCKRECORDZONEMOVERECEIPT VALUES \(receipts)"]))
        let failure = try stores.audit()
        #expect((failure == nil) == (table == nil), "\(String(describing: failure))")
        #expect(table.map { failure?.entity?.contains($0) == true } ?? true)
    }

    /// `A` becomes `C`, its relationship `bs` `others`, and `as` is removed.
    @Test(arguments: [
        ("(1, 'C', 'B', 'others'), (3, 'X', NULL, NULL)", true),
        ("(1, 'A', 'B', 'others'), (3, 'X', NULL, NULL)", false),
        ("(1, 'C', 'B', 'bs'), (3, 'X', NULL, NULL)", false), ("(1, 'C', 'B', 'others')", false),
        ("(1, 'C', 'B', 'others'), (2, 'B', 'C', 'as'), (3, 'X', NULL, NULL)", false),
    ])
    func checksCloudKitsRelationships(_ rows: String, _ passes: Bool) throws {
        func link(_ name: String, _ other: String, _ more: String = "") -> String {
            "<relationship name='\(name)' optional='YES' toMany='YES' destinationEntity='\(other)' \(more)/>"
        }
        let table =
            "CREATE TABLE ANSCKMIRROREDRELATIONSHIP (Z_PK INTEGER PRIMARY KEY, ZCDENTITYNAME, ZRELATEDENTITYNAME, "
            + "ZRELATIONSHIPNAME)"
        let stores = try AuditedStores(
            "<entity name='A'>\(link("bs", "B"))</entity><entity name='B'>\(link("as", "A"))</entity>",
            "<entity name='B'/><entity name='C' elementID='A'>\(link("others", "B", "elementID='bs'"))</entity>",
            rows: [table],
            before: [
                "INSERT INTO ANSCKMIRROREDRELATIONSHIP VALUES (1, 'A', 'B', 'bs'), (2, 'B', 'A', 'as'), (3, 'X', NULL, NULL)"
            ], after: ["INSERT INTO ANSCKMIRROREDRELATIONSHIP VALUES \(rows)"])
        let failure = try stores.audit()
        #expect((failure == nil) == passes, "\(String(describing: failure))")
    }

    // MARK: Recorded writes

    @Test(arguments: [
        ("ALTER TABLE t ADD COLUMN z", false), ("ALTER TABLE t RENAME COLUMN y TO z", false),
        ("UPDATE t SET y = 1", true),
        ("DELETE FROM t", true), ("INSERT INTO t VALUES (1, 2)", true), ("ALTER TABLE t DROP COLUMN y", true),
        ("INSERT INTO u VALUES (1)", false), ("DROP TABLE t", true), ("CREATE TEMP TABLE v AS SELECT 1", false),
    ])
    func recordsWrittenTables(_ statement: String, _ isWritten: Bool) throws {
        let stores = try AuditedStores(a, a)
        let writer = try StoreWriter(stores.before)
        try writer.execute("CREATE TABLE t (x, y)")
        try writer.execute("CREATE TABLE u (x)")
        let writes = TableWrites()
        writer.record(writes)
        try writer.execute(statement)
        #expect((writes.writtenColumns(of: "t", earlier: "t", before: ["t", "u"]) != []) == isWritten)
    }

    @Test func recordsWrittenColumns() throws {
        let stores = try AuditedStores(a, a)
        let writer = try StoreWriter(stores.before)
        try writer.execute("CREATE TABLE t (x, y)")
        let writes = TableWrites()
        writer.record(writes)
        try writer.execute("UPDATE t SET Y = 1")
        #expect(writes.writtenColumns(of: "t", earlier: "t", before: ["t"]) == ["y"])
        // From here on, a name may belong to another column.
        try writer.execute("ALTER TABLE t RENAME COLUMN x TO z")
        try writer.execute("UPDATE t SET z = 1")
        #expect(writes.writtenColumns(of: "t", earlier: "t", before: ["t"]) == nil)
    }

    /// The table is written under a temporary name.
    @Test func recordsWritesUnderATemporaryName() throws {
        let stores = try AuditedStores(a, a)
        let writer = try StoreWriter(stores.before)
        try writer.execute("CREATE TABLE t (x, y)")
        let writes = TableWrites()
        writer.record(writes)
        for statement in ["ALTER TABLE t RENAME TO v", "UPDATE v SET y = 1", "ALTER TABLE v RENAME TO t"] {
            try writer.execute(statement)
        }
        #expect(writes.writtenColumns(of: "t", earlier: "t", before: ["t"]) == nil)
    }

    @Test func countsMappedObjects() throws {
        let text = "<attribute name='a' optional='YES' attributeType='String'/>"
        let entity = "<entity name='A'>\(text)</entity>"
        let copied = CopiedEntity(
            source: "A", destination: "A", isComplete: true, attributes: [(source: "a", destination: "a")])
        for (rows, passes) in [
            ("(5, 1, 1, 'y'), (6, 1, 1, 'x')", true), ("(5, 1, 1, 'y')", false),
            ("(5, 1, 1, 'y'), (6, 1, 1, 'y')", false),
        ] {
            let stores = try AuditedStores(
                entity, entity, before: ["INSERT INTO ZA VALUES (1, 1, 1, 'x'), (2, 1, 1, 'y')"],
                after: ["INSERT INTO ZA VALUES " + rows])
            #expect(try (stores.audit(.mapped(copied: [copied])) == nil) == passes)
        }
    }
}
