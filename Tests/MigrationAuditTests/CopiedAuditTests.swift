import Testing

@testable import MigrationAudit

/// The audit of what a mapping model copied, with the objects' keys and without.
struct CopiedAuditTests {
    private static let model = """
        <entity name='Team'><attribute name='name' optional='YES' attributeType='String'/>\
        <relationship name='members' optional='YES' toMany='YES' destinationEntity='Person' inverseName='team'/></entity>\
        <entity name='Person'><attribute name='name' optional='YES' attributeType='String'/>\
        <attribute name='pay' optional='YES' attributeType='Double'/>\
        <relationship name='team' optional='YES' maxCount='1' destinationEntity='Team' inverseName='members'/></entity>
        """
    private static let rows = [
        "INSERT INTO ZTEAM (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (1,2,1,'Reds'),(2,2,1,'Blues')",
        "INSERT INTO ZPERSON (Z_PK, Z_ENT, Z_OPT, ZNAME, ZPAY, ZTEAM) VALUES (1,1,1,'Ann',1.5,1),(2,1,1,'Bob',NULL,1),"
            + "(3,1,1,'',9.0,NULL)",
    ]
    private static let copied = [
        CopiedEntity(
            source: "Team", destination: "Team", isComplete: true, attributes: [("name", "name")],
            relationships: [("members", "members")]),
        CopiedEntity(
            source: "Person", destination: "Person", isComplete: true, attributes: [("name", "name"), ("pay", "pay")],
            relationships: [("team", "team")]),
    ]

    private func failure(after statements: String...) throws -> AuditFailure? {
        try AuditedStores(Self.model, Self.model, rows: Self.rows, after: statements).audit(
            .mapped(copied: Self.copied))
    }

    @Test func passesWhatWasCopiedWithItsKeys() throws { #expect(try failure() == nil) }

    /// A mapping model may number objects from 1.
    @Test func passesWhatWasCopiedWithOtherKeys() throws {
        #expect(
            try failure(
                after: "UPDATE ZPERSON SET Z_PK = Z_PK + 5", "UPDATE ZTEAM SET Z_PK = Z_PK + 6",
                "UPDATE ZPERSON SET ZTEAM = ZTEAM + 6") == nil)
    }

    @Test(arguments: [
        ("UPDATE ZPERSON SET ZNAME = 'Bo' WHERE Z_PK = 2", "Person", "name, pay"),
        ("UPDATE ZPERSON SET ZNAME = NULL WHERE Z_PK = 3", "Person", "name, pay"),
        ("UPDATE ZPERSON SET ZNAME = x'416E6E' WHERE Z_PK = 1", "Person", "name, pay"),
        ("UPDATE ZPERSON SET ZPAY = 1.5000000000000002 WHERE Z_PK = 1", "Person", "name, pay"),
        ("UPDATE ZPERSON SET ZPAY = '9.0' WHERE Z_PK = 3", "Person", "name, pay"),
        ("UPDATE ZPERSON SET ZTEAM = NULL WHERE Z_PK = 2", "Person", "team"),
        ("UPDATE ZPERSON SET ZTEAM = 7 WHERE Z_PK = 2", "Person", "team"),
        ("DELETE FROM ZPERSON WHERE Z_PK = 1", "Person", nil),
        ("UPDATE ZPERSON SET Z_ENT = 2 WHERE Z_PK = 1", "Person", nil),
        ("INSERT INTO ZPERSON (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (4,1,1,'Eve')", "Person", nil),
        ("UPDATE ZTEAM SET ZNAME = 'Red' WHERE Z_PK = 1", "Team", "name"),
        ("DELETE FROM ZTEAM WHERE Z_PK = 2", "Team", nil),
    ])
    func findsWhatWasNotCopied(_ change: String, _ entity: String, _ property: String?) throws {
        let found = try failure(after: change)
        #expect(found?.entity == entity)
        #expect(found?.property == property)
    }

    /// A team that lost its members loses links, although all persons are as they were.
    @Test func findsALinkToAMissingObject() throws {
        let found = try failure(after: "UPDATE ZTEAM SET Z_PK = 3 WHERE Z_PK = 1")
        #expect(found?.entity == "Person" || found?.entity == "Team")
        #expect(found?.expected == "2 links")
    }

    /// Other entities' objects in the same table are none of the mapping's.
    @Test func comparesTheEntitiesOfAHierarchyEachForItself() throws {
        let model = """
            <entity name='Animal'><attribute name='name' optional='YES' attributeType='String'/></entity>\
            <entity name='Cat' parentEntity='Animal'><attribute name='lives' optional='YES' attributeType='Integer 16'/></entity>
            """
        let rows = ["INSERT INTO ZANIMAL (Z_PK, Z_ENT, Z_OPT, ZNAME, ZLIVES) VALUES (1,1,1,'Rex',NULL),(2,2,1,'Tom',9)"]
        let copied = [
            CopiedEntity(source: "Animal", destination: "Animal", isComplete: true, attributes: [("name", "name")]),
            CopiedEntity(
                source: "Cat", destination: "Cat", isComplete: true,
                attributes: [("name", "name"), ("lives", "lives")]),
        ]
        func failure(_ change: String...) throws -> AuditFailure? {
            try AuditedStores(model, model, rows: rows, after: change).audit(.mapped(copied: copied))
        }
        #expect(try failure() == nil)
        #expect(try failure("UPDATE ZANIMAL SET ZLIVES = 8 WHERE Z_PK = 2")?.entity == "Cat")
        #expect(try failure("UPDATE ZANIMAL SET ZNAME = 'Max' WHERE Z_PK = 1")?.entity == "Animal")
        #expect(try failure("UPDATE ZANIMAL SET Z_ENT = 1 WHERE Z_PK = 2") != nil)
    }
}
