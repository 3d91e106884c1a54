import Testing

@testable import MigrationAudit

/// The audit of many-to-many relationships that a mapping model copied, and of tables that are large enough to be
/// compared in halves.
struct CopiedLinkAuditTests {
    private static let model = """
        <entity name='Note'><attribute name='text' optional='YES' attributeType='String'/>\
        <relationship name='tags' optional='YES' toMany='YES' destinationEntity='Tag' inverseName='notes'/></entity>\
        <entity name='Tag'><attribute name='text' optional='YES' attributeType='String'/>\
        <relationship name='notes' optional='YES' toMany='YES' destinationEntity='Note' inverseName='tags'/></entity>
        """
    private static let rows = [
        "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT) VALUES (1,1,1),(2,1,1),(3,1,1)",
        "INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT) VALUES (1,2,1),(2,2,1)",
        "CREATE TABLE Z_1TAGS (Z_1NOTES INTEGER, Z_2TAGS INTEGER, PRIMARY KEY (Z_1NOTES, Z_2TAGS))",
        "INSERT INTO Z_1TAGS VALUES (1,1),(2,2),(3,1)",
    ]
    private static let copied = [
        CopiedEntity(
            source: "Note", destination: "Note", isComplete: true, attributes: [("text", "text")],
            relationships: [("tags", "tags")]),
        CopiedEntity(
            source: "Tag", destination: "Tag", isComplete: true, attributes: [("text", "text")],
            relationships: [("notes", "notes")]),
    ]

    private func failure(before: [String] = [], after: [String]) throws -> AuditFailure? {
        try AuditedStores(Self.model, Self.model, rows: Self.rows, before: before, after: after).audit(
            .mapped(copied: Self.copied))
    }

    @Test func passesTheSameLinks() throws { #expect(try failure(after: []) == nil) }

    /// A migration drops links of missing objects.
    @Test func passesWithoutDanglingLinks() throws {
        #expect(try failure(before: ["INSERT INTO Z_1TAGS VALUES (1,9),(9,1),(NULL,1)"], after: []) == nil)
    }

    @Test(arguments: [
        "DELETE FROM Z_1TAGS WHERE Z_1NOTES = 2", "DELETE FROM Z_1TAGS", "INSERT INTO Z_1TAGS VALUES (2,1)",
        "UPDATE Z_1TAGS SET Z_2TAGS = 9 WHERE Z_1NOTES = 2", "UPDATE Z_1TAGS SET Z_2TAGS = NULL WHERE Z_1NOTES = 2",
    ])
    func findsOtherNumbersOfLinks(_ change: String) throws {
        let found = try failure(after: [change])
        #expect(found?.entity == "Note" || found?.entity == "Tag")
        #expect(found?.property == "tags" || found?.property == "notes")
    }

    private static let numbers = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 30000) "

    @Test(arguments: [
        nil, "UPDATE ZTAG SET ZTEXT = 'other' WHERE Z_PK = 1", "UPDATE ZTAG SET ZTEXT = NULL WHERE Z_PK = 15000",
        "UPDATE ZTAG SET ZTEXT = x'7461672031353030' WHERE Z_PK = 15001",
        "UPDATE ZTAG SET ZTEXT = 'other' WHERE Z_PK = 30000", "DELETE FROM ZTAG WHERE Z_PK = 1",
        "DELETE FROM ZTAG WHERE Z_PK = 29999", "INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT) VALUES (30001,2,1)",
        "UPDATE ZTAG SET Z_ENT = 1 WHERE Z_PK = 20000",
    ])
    func findsADifferenceAnywhereInALargeTable(_ change: String?) throws {
        let fill = Self.numbers + "INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT, ZTEXT) SELECT i, 2, 1, 'tag ' || i FROM n"
        let stores = try AuditedStores(
            Self.model, Self.model,
            rows: Self.rows.filter { !$0.contains("INTO ZTAG ") } + [fill, "UPDATE Z_PRIMARYKEY SET Z_MAX = 40000"],
            after: [change].compactMap(\.self))
        #expect((try stores.audit(.mapped(copied: Self.copied)) == nil) == (change == nil))
    }

    /// An inferred migration compares the same way.
    @Test(arguments: [1, 15_000, 15_001, 30_000])
    func findsADifferenceAnywhereAfterAnInferredMigration(key: Int) throws {
        let model = "<entity name='Tag'><attribute name='text' optional='YES' attributeType='String'/></entity>"
        let fill = Self.numbers + "INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT, ZTEXT) SELECT i, 1, 1, 'tag ' || i FROM n"
        let maximum = "UPDATE Z_PRIMARYKEY SET Z_MAX = 30000"
        #expect(try AuditedStores(model, model, rows: [fill, maximum]).audit() == nil)
        let change = "UPDATE ZTAG SET ZTEXT = 'other' WHERE Z_PK = \(key)"
        let found = try AuditedStores(model, model, rows: [fill, maximum], after: [change]).audit()
        #expect(found?.entity == "Tag" && found?.key == Int64(key))
    }

    private static let pair = """
        <entity name='Shelf'><attribute name='text' optional='YES' attributeType='String'/>\
        <relationship name='current' optional='YES' maxCount='1' destinationEntity='Volume' inverseName='shownOn'/></entity>\
        <entity name='Volume'><attribute name='text' optional='YES' attributeType='String'/>\
        <relationship name='shownOn' optional='YES' maxCount='1' destinationEntity='Shelf' inverseName='current'/></entity>
        """

    private func pairFailure(_ before: String, _ after: String) throws -> AuditFailure? {
        func rows(_ columns: String) -> [String] {
            let values = columns.split(separator: " ")
            return (0..<2).map {
                "INSERT INTO ZSHELF (Z_PK, Z_ENT, Z_OPT, ZCURRENT) VALUES (\($0 + 1), 1, 1, \(values[$0]))"
            }
                + (0..<2).map {
                    "INSERT INTO ZVOLUME (Z_PK, Z_ENT, Z_OPT, ZSHOWNON) VALUES (\($0 + 1), 2, 1, \(values[$0 + 2]))"
                }
        }
        let copied = [("Shelf", "current"), ("Volume", "shownOn")].map {
            CopiedEntity(
                source: $0.0, destination: $0.0, isComplete: true, attributes: [("text", "text")],
                relationships: [($0.1, $0.1)])
        }
        return try AuditedStores(Self.pair, Self.pair, before: rows(before), after: rows(after)).audit(
            .mapped(copied: copied))
    }

    /// The references of two shelves, then those of two volumes. A migration sets each end from the other one.
    @Test(arguments: [
        ("NULL NULL 1 NULL", "1 NULL 1 NULL"), ("1 1 NULL NULL", "1 1 1 NULL"), ("1 NULL NULL 1", "1 NULL 1 1"),
        ("NULL 2 2 NULL", "NULL 2 2 2"), ("9 NULL NULL NULL", "NULL NULL NULL NULL"),
    ])
    func passesAOneToOneRelationshipThatOneEndRecords(_ before: String, _ after: String) throws {
        #expect(try pairFailure(before, before.contains("9") ? after : before) == nil)
        #expect(try pairFailure(before, after) == nil)
    }

    @Test(arguments: [
        ("1 NULL 1 NULL", "NULL NULL 1 NULL"), ("NULL NULL 1 NULL", "1 2 1 2"), ("1 2 NULL NULL", "1 NULL 1 NULL"),
        ("NULL NULL NULL NULL", "1 NULL NULL NULL"),
    ])
    func findsOtherNumbersOfLinksThatOneEndRecords(_ before: String, _ after: String) throws {
        let found = try pairFailure(before, after)
        #expect(found?.property == "current" || found?.property == "shownOn")
    }
}
