import Testing

@testable import MappingModels
@testable import StoreMigration

/// Inferred migrations of attributes, rule by rule.
struct LightweightAttributeTests {
    private let person = "<attribute name='name' optional='YES' attributeType='String'/>"
    private let two = ["INSERT INTO ZA VALUES (1, 1, 3, 'x'), (2, 1, 1, NULL)"]

    private func migrated(
        _ old: String, _ rows: [String], to new: String, _ options: MigrationOptions = MigrationOptions()
    ) throws -> StagedStore {
        let store = try StagedStore(old, rows)
        let target = try model(new)
        try store.migrate(to: target, options)
        #expect(try store.differences(from: target) == [])
        return store
    }

    @Test func anAddedAttributeHasItsDefault() throws {
        let new = person + "<attribute name='age' optional='YES' attributeType='Integer 16' defaultValueString='7'/>"
        let store = try migrated(entity(person), two, to: entity(new))
        #expect(try store.rows("SELECT Z_PK, Z_ENT, Z_OPT, ZNAME, ZAGE FROM ZA") == ["1 1 3 'x' 7", "2 1 1 NULL 7"])
    }

    @Test func anAddedAttributeWithoutDefaultIsNull() throws {
        let new = person + "<attribute name='at' optional='YES' attributeType='Date'/>"
        let store = try migrated(entity(person), two, to: entity(new))
        #expect(try store.rows("SELECT ZAT FROM ZA") == ["NULL", "NULL"])
    }

    @Test func aRemovedAttributeIsGone() throws {
        let old = person + "<attribute name='age' optional='YES' attributeType='Integer 16'/>"
        let store = try migrated(entity(old), ["INSERT INTO ZA VALUES (5, 1, 3, 8, 'x')"], to: entity(person))
        #expect(try store.rows("SELECT * FROM ZA") == ["5 1 3 'x'"])
    }

    @Test func aRenamedAttributeKeepsItsValues() throws {
        let new = "<attribute name='title' optional='YES' attributeType='String' elementID='name'/>"
        let store = try migrated(entity(person), two, to: entity(new))
        #expect(try store.rows("SELECT ZTITLE FROM ZA") == ["'x'", "NULL"])
    }

    /// The attributes swap names, so neither may overwrite the other.
    @Test func attributesExchangeTheirNames() throws {
        let old =
            "<attribute name='a' optional='YES' attributeType='String'/>"
            + "<attribute name='b' optional='YES' attributeType='String'/>"
        let new =
            "<attribute name='a' optional='YES' attributeType='String' elementID='b' versionHashModifier='2'/>"
            + "<attribute name='b' optional='YES' attributeType='String' elementID='a'/>"
        let store = try migrated(entity(old), ["INSERT INTO ZA VALUES (1, 1, 1, 'was a', 'was b')"], to: entity(new))
        #expect(try store.rows("SELECT ZA, ZB FROM ZA") == ["'was b' 'was a'"])
    }

    /// An app may have written anything; values that aren't numbers are kept.
    @Test func keepsValuesThatAreNotNumbers() throws {
        let integer = "<attribute name='n' optional='YES' attributeType='Integer 16'/>"
        let rows = [
            "INSERT INTO ZA VALUES (1, 1, 1, 7), (2, 1, 1, '0x10'), (3, 1, 1, x'02'), (4, 1, 1, 9e999), (5, 1, 1, 2.5)"
        ]
        let store = try migrated(entity(integer), rows, to: entity(integer.replacing("Integer 16", with: "Double")))
        #expect(
            try store.rows("SELECT typeof(ZN) || hex(ZN) FROM ZA") == [
                "'real372E30'", "'text30783130'", "'blob02'", "'real496E66'", "'real322E35'",
            ])
    }

    @Test func optionalBecomesMandatoryWithADefault() throws {
        let new = "<attribute name='name' attributeType='String' defaultValueString='it''s'/>"
            .replacing("''", with: "&apos;")
        let store = try migrated(entity(person), two, to: entity(new))
        #expect(try store.rows("SELECT ZNAME FROM ZA") == ["'x'", "'it''s'"])
    }

    @Test func aDefaultIsGivenWhereTheTypeChangesToo() throws {
        let old = "<attribute name='size' optional='YES' attributeType='Double'/>"
        let new = "<attribute name='size' attributeType='Integer 32' defaultValueString='7'/>"
        let store = try migrated(
            entity(old), ["INSERT INTO ZA VALUES (1, 1, 1, 2.5), (2, 1, 1, NULL)"], to: entity(new))
        #expect(try store.rows("SELECT ZSIZE FROM ZA") == ["2", "7"])
    }

    /// A column with a table constraint, as Core Data once declared for uniqueness, can't be dropped alone.
    @Test func aConstrainedAttributeIsRemoved() throws {
        let old = person + "<attribute name='age' optional='YES' attributeType='Integer 16'/>"
        let store = try migrated(
            entity(old),
            [
                "DROP TABLE ZA",
                "CREATE TABLE ZA ( Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZAGE INTEGER, ZNAME VARCHAR, "
                    + "CONSTRAINT ZAGE UNIQUE (ZAGE))",
                "INSERT INTO ZA VALUES (5, 1, 3, 8, 'x')",
            ], to: entity(person))
        #expect(try store.rows("SELECT * FROM ZA") == ["5 1 3 'x'"])
    }

    @Test func aMandatoryAttributeWithoutValuesIsRefused() throws {
        let store = try StagedStore(entity(person), two)
        let error = #expect(throws: MigrationError.self) {
            try store.migrate(to: entity("<attribute name='name' attributeType='String'/>"))
        }
        #expect(error?.code == CoreDataError.migration)
        #expect(error?.message.contains("A.name") == true)
        #expect(error?.message.contains("1 object") == true)
    }

    @Test func allowsAMandatoryAttributeWithoutObjects() throws {
        _ = try migrated(entity(person), [], to: entity("<attribute name='name' attributeType='String'/>"))
    }

    @Test(arguments: [
        ("Integer 16", "Integer 64", "9", "9"), ("Boolean", "Integer 32", "1", "1"),
        ("Integer 32", "Double", "3", "3.0"), ("Double", "Integer 32", "2.75", "2"),
        ("Integer 64", "Decimal", "12", "12"), ("Float", "Double", "1.5", "1.5"),
    ])
    func numbersChangeTheirType(_ old: String, _ new: String, _ value: String, _ expected: String) throws {
        let attribute = { (type: String) in entity("<attribute name='n' optional='YES' attributeType='\(type)'/>") }
        let store = try migrated(attribute(old), ["INSERT INTO ZA VALUES (1, 1, 1, \(value))"], to: attribute(new))
        #expect(try store.rows("SELECT ZN FROM ZA") == [expected])
    }

    /// Inline values get the marker of an external attribute's values.
    @Test func inlineBecomesExternal() throws {
        let attribute = { (storage: String) in
            entity("<attribute name='d' optional='YES' attributeType='Binary' \(storage)/>")
        }
        let rows = ["INSERT INTO ZA VALUES (1, 1, 1, x'00ff00'), (2, 1, 1, NULL), (3, 1, 1, x'')"]
        let store = try migrated(attribute(""), rows, to: attribute("allowsExternalBinaryDataStorage='YES'"))
        #expect(try store.rows("SELECT ZD FROM ZA") == ["x'0100ff00'", "NULL", "x'01'"])
    }

    @Test func aTransientAttributeThatIsStoredNowIsNew() throws {
        let attribute = { (kind: String) in
            entity(person + "<attribute name='t' optional='YES' attributeType='String' \(kind)/>")
        }
        let store = try migrated(attribute("transient='YES'"), two, to: attribute("defaultValueString='d'"))
        #expect(try store.rows("SELECT ZT FROM ZA") == ["'d'", "'d'"])
    }

    @Test(arguments: [
        ("String", "defaultValueString='a\"b'", "'a\"b'"), ("Boolean", "defaultValueString='YES'", "1"),
        ("Double", "defaultValueString='0.5'", "0.5"), ("Decimal", "defaultValueString='1.25'", "1.25"),
        ("Date", "defaultDateTimeInterval='600000000.5'", "600000000.5"),
        ("URI", "defaultValueString='http://a'", "'http://a'"),
        ("UUID", "defaultValueString='00112233-4455-6677-8899-AABBCCDDEEFF'", "x'00112233445566778899aabbccddeeff'"),
    ])
    func defaultsOfEachType(_ type: String, _ value: String, _ expected: String) throws {
        let new = person + "<attribute name='v' optional='YES' attributeType='\(type)' \(value)/>"
        let store = try migrated(entity(person), two, to: entity(new.replacing("a\"b", with: "a&quot;b")))
        #expect(try store.rows("SELECT ZV FROM ZA LIMIT 1") == [expected])
    }

    @Test func uniquenessThatIsViolatedIsRefused() throws {
        let constraint =
            "<uniquenessConstraints><uniquenessConstraint><constraint value='name'/></uniquenessConstraint>"
            + "</uniquenessConstraints>"
        let rows = ["INSERT INTO ZA VALUES (1, 1, 1, 'x'), (2, 1, 1, 'x')"]
        let store = try StagedStore(entity(person), rows)
        let error = #expect(throws: MigrationError.self) { try store.migrate(to: entity(person + constraint)) }
        #expect(error?.code == CoreDataError.migrationConstraintViolation)
        _ = try migrated(entity(person), two, to: entity(person + constraint))
    }

    @Test func keepsTheStoresIdentifier() throws {
        let store = try migrated(entity(person), two, to: entity(person, "versionHashModifier='2'"))
        #expect(try store.rows("SELECT Z_UUID FROM Z_METADATA") == ["'STORE-1'"])
    }

    @Test func reportsThatAMigrationWasCancelled() throws {
        let rows = [
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000) "
                + "INSERT INTO ZA SELECT i, 1, 1, 'x' FROM n"
        ]
        let store = try StagedStore(entity(person), rows)
        let new = try model(entity("<attribute name='other' optional='YES' attributeType='String'/>"))
        let error = #expect(throws: MigrationError.self) { try store.migrate(to: new, isCancelled: { true }) }
        #expect(error?.code == CoreDataError.migrationCancelled)
    }
}
