import SQLiteStore
import Testing

@testable import MigrationAudit

/// The audit of objects and the values of their attributes.
struct ValueAuditTests {
    static let text = "<attribute name='a' optional='YES' attributeType='String'/>"

    private func entity(_ content: String, _ name: String = "A", _ more: String = "") -> String {
        "<entity name='\(name)' \(more)>\(content)</entity>"
    }

    @Test func passesAnEqualCopy() throws {
        let rows = ["INSERT INTO ZA VALUES (1, 1, 3, 'x'), (7, 1, 1, NULL)"]
        #expect(try AuditedStores(entity(Self.text), entity(Self.text), rows: rows).audit() == nil)
    }

    /// Each argument is a wrong copy, and the key of the object that differs.
    @Test(arguments: [
        ("(1, 1, 3, 'y'), (7, 1, 1, NULL)", 1 as Int64?), ("(1, 1, 3, 'x'), (7, 1, 1, '')", 7),
        ("(1, 1, 3, NULL), (7, 1, 1, NULL)", 1), ("(1, 1, 3, x'78'), (7, 1, 1, NULL)", 1),
        ("(1, 1, 2, 'x'), (7, 1, 1, NULL)", 1), ("(1, 2, 3, 'x'), (7, 1, 1, NULL)", 1),
        ("(1, 1, 3, 'x')", 7), ("(1, 1, 3, 'x'), (8, 1, 1, NULL)", 7),
        ("(1, 1, 3, 'x'), (7, 1, 1, NULL), (8, 1, 1, NULL)", 8),
    ])
    func refusesADifferingCopy(_ rows: String, _ key: Int64?) throws {
        let stores = try AuditedStores(
            entity(Self.text), entity(Self.text), before: ["INSERT INTO ZA VALUES (1, 1, 3, 'x'), (7, 1, 1, NULL)"],
            after: ["INSERT INTO ZA VALUES " + rows])
        let failure = try #require(try stores.audit())
        #expect(failure.entity == "A")
        #expect(failure.key == key)
    }

    @Test func namesTheDifferingValues() throws {
        let stores = try AuditedStores(
            entity(Self.text), entity(Self.text), before: ["INSERT INTO ZA VALUES (1, 1, 3, 'x')"],
            after: ["INSERT INTO ZA VALUES (1, 1, 3, 'y')"])
        #expect(
            try stores.audit() == AuditFailure(entity: "A", property: "a", key: 1, expected: "'x'", found: "'y'"))
    }

    /// Each argument is an attribute before and after, its old and new value, and whether the audit passes.
    @Test(arguments: [
        ("attributeType='Double'", "attributeType='Integer 32'", "2.75", "2", true),
        ("attributeType='Double'", "attributeType='Integer 32'", "2.75", "3", false),
        ("attributeType='Integer 32'", "attributeType='Double'", "7", "7.0", true),
        ("attributeType='Integer 32'", "attributeType='Double'", "7", "NULL", false),
        (
            "attributeType='Binary'", "attributeType='Binary' allowsExternalBinaryDataStorage='YES'", "x'42'",
            "x'0142'", true
        ),
        (
            "attributeType='Binary'", "attributeType='Binary' allowsExternalBinaryDataStorage='YES'", "x'42'", "x'42'",
            false
        ),
        ("attributeType='Binary'", "attributeType='Binary'", "x''", "NULL", false),
        ("attributeType='Transformable'", "attributeType='Transformable'", "1", "1.0", false),
    ])
    func checksConversions(_ old: String, _ new: String, _ before: String, _ after: String, _ passes: Bool) throws {
        let stores = try AuditedStores(
            entity("<attribute name='a' optional='YES' \(old)/>"),
            entity("<attribute name='a' optional='YES' \(new)/>"),
            before: ["INSERT INTO ZA VALUES (1, 1, 1, \(before))"], after: ["INSERT INTO ZA VALUES (1, 1, 1, \(after))"]
        )
        #expect(try (stores.audit() == nil) == passes)
    }

    /// Each argument is a new attribute, its value, and whether the audit passes.
    @Test(arguments: [
        ("attributeType='String' defaultValueString='d'", "'d'", true),
        ("attributeType='String' defaultValueString='d'", "NULL", false),
        ("attributeType='String'", "NULL", true), ("attributeType='String'", "'x'", false),
        ("attributeType='Boolean' defaultValueString='YES'", "1", true),
        ("attributeType='Boolean' defaultValueString='YES'", "0", false),
        ("attributeType='Double' defaultValueString='0.5'", "0.5", true),
        ("attributeType='Decimal' defaultValueString='12.34'", "12.34", true),
        ("attributeType='Date' defaultDateTimeInterval='5'", "5", true),
        ("attributeType='Integer 64' defaultValueString='9223372036854775807'", "9223372036854775807", true),
    ])
    func checksDefaults(_ attribute: String, _ after: String, _ passes: Bool) throws {
        let stores = try AuditedStores(
            entity(""), entity("<attribute name='a' optional='YES' \(attribute)/>"),
            before: ["INSERT INTO ZA VALUES (1, 1, 1)"], after: ["INSERT INTO ZA VALUES (1, 1, 1, \(after))"])
        #expect(try (stores.audit() == nil) == passes)
    }

    @Test(arguments: [("'d'", true), ("NULL", false), ("'x'", false)])
    func requiresTheDefaultOfANewlyMandatoryAttribute(_ after: String, _ passes: Bool) throws {
        let stores = try AuditedStores(
            entity(Self.text), entity("<attribute name='a' attributeType='String' defaultValueString='d'/>"),
            before: ["INSERT INTO ZA VALUES (1, 1, 1, NULL)"], after: ["INSERT INTO ZA VALUES (1, 1, 1, \(after))"])
        #expect(try (stores.audit() == nil) == passes)
    }

    /// One attribute's name is a prefix of the other's, followed by an underscore.
    @Test func distinguishesAttributesWithACommonPrefix() throws {
        let url = "<attribute name='image_url' optional='YES' attributeType='String'/>"
        let image = "<attribute name='image' optional='YES' attributeType='Binary'/>"
        let stores = try AuditedStores(
            entity(url), entity(url + image),
            before: ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZIMAGE_URL) VALUES (1, 1, 1, 'u')"],
            after: ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZIMAGE_URL) VALUES (1, 1, 1, NULL)"])
        #expect(try stores.audit()?.property == "image_url")
    }

    /// `a` and `b` exchange their names.
    @Test(arguments: [("'was b', 'was a'", true), ("'was a', 'was b'", false)])
    func followsRenamingIdentifiers(_ after: String, _ passes: Bool) throws {
        let b = Self.text.replacing("'a'", with: "'b'")
        let new =
            "<attribute name='a' optional='YES' attributeType='String' elementID='b'/>"
            + "<attribute name='b' optional='YES' attributeType='String' elementID='a'/>"
        let stores = try AuditedStores(
            entity(Self.text + b), entity(new), before: ["INSERT INTO ZA VALUES (1, 1, 1, 'was a', 'was b')"],
            after: ["INSERT INTO ZA VALUES (1, 1, 1, \(after))"])
        #expect(try (stores.audit() == nil) == passes)
    }

    /// The entities are renumbered, and one is removed. The object with the unknown entity number 77 stays.
    @Test(arguments: [
        ("(1, 2, 1, 'x'), (3, 77, 1, NULL)", true), ("(1, 2, 1, 'x')", false),
        ("(1, 1, 1, 'x'), (3, 77, 1, NULL)", false),
        ("(1, 2, 1, 'x'), (2, 3, 1, NULL), (3, 77, 1, NULL)", false), ("(1, 2, 1, 'x'), (3, 2, 1, NULL)", false),
    ])
    func followsRenumberedEntities(_ after: String, _ passes: Bool) throws {
        let stores = try AuditedStores(
            entity("", "P") + entity(Self.text, "Q", "parentEntity='P'") + entity("", "R", "parentEntity='P'"),
            entity("", "P") + entity("", "N", "parentEntity='P'")
                + entity(Self.text, "Q2", "parentEntity='P' elementID='Q'"),
            before: ["INSERT INTO ZP VALUES (1, 2, 1, 'x'), (2, 3, 1, NULL), (3, 77, 1, NULL)"],
            after: [
                "INSERT INTO ZP VALUES " + after.replacing("(1, 2", with: "(1, 3").replacing("(2, 3,", with: "(2, 2,")
            ])
        #expect(try (stores.audit() == nil) == passes)
    }

    @Test func createsNoFilesBesideTheStore() throws {
        let stores = try AuditedStores(entity(Self.text), entity(Self.text))
        for path in [stores.before, stores.after] {
            try StoreWriter(path).execute("PRAGMA journal_mode = WAL")
        }
        let names = try stores.names
        #expect(try stores.audit() == nil)
        #expect(try stores.names == names)
    }
}
