import Testing

@testable import MappingModels
@testable import StoreMigration

/// Both the check and the migration report content that the newer version can't store.
struct LostValuesTests {
    private func text(_ name: String, _ more: String = "") -> String {
        "<attribute name='\(name)' optional='YES' attributeType='String' \(more)/>"
    }

    private func findings(_ old: String, _ new: String) throws -> [MigrationFinding] {
        let old = try model(old)
        return MigrationCheck(from: old, hashes: old.entityVersionHashesByName, to: try model(new), named: "new")
            .findings
    }

    @Test func reportsRemovedObjectsAndValues() throws {
        let store = try StagedStore(
            entity(text("name") + text("code") + text("empty")) + "<entity name='B'/><entity name='C'/>",
            ["INSERT INTO ZA VALUES (1, 1, 1, 'c', NULL, 'n')", "INSERT INTO ZB VALUES (1, 2, 1), (2, 2, 1)"])
        let notes = try store.migrate(to: entity(text("name")))
        #expect(
            notes == [
                "A.code is not stored by the newer model: 1 value is removed",
                "B is not in the newer model: 2 objects are removed",
            ])
    }

    @Test func reportsDefaultsInPlaceOfMissingValues() throws {
        let store = try StagedStore(
            entity(text("name")), ["INSERT INTO ZA VALUES (1, 1, 1, NULL), (2, 1, 1, 'n'), (3, 1, 1, NULL)"])
        let mandatory = "<attribute name='name' attributeType='String' defaultValueString='x'/>"
        #expect(
            try store.migrate(to: entity(mandatory)) == [
                "A.name becomes mandatory: 2 objects without a value get its default"
            ])
    }

    @Test func reportsIndexesOfRemovedTables() throws {
        let store = try StagedStore(
            entity(text("name")) + "<entity name='B'/>",
            ["CREATE INDEX mine ON ZB (Z_OPT)", "CREATE INDEX Z_B_mine ON ZB (Z_OPT)"])
        #expect(
            try store.migrate(to: entity(text("name"))).sorted() == [
                "the index Z_B_mine is dropped: its name is one of Core Data's, but the model has no such index",
                "the index mine is dropped: a table or column that it names no longer exists",
            ])
    }

    @Test func reportsAnIndexOfAChangedTableOnce() throws {
        let store = try StagedStore(entity(text("name")), ["CREATE INDEX Z_A_mine ON ZA (ZNAME, Z_PK)"])
        #expect(
            try store.migrate(to: entity(text("name") + text("more"))) == [
                "the index Z_A_mine is dropped: its name is one of Core Data's, but the model has no such index"
            ])
    }

    @Test func reportsNothingForRenamedContent() throws {
        let store = try StagedStore(entity(text("name")), ["INSERT INTO ZA VALUES (1, 1, 1, 'n')"])
        #expect(
            try store.migrate(to: "<entity name='B' elementID='A'>\(text("title", "elementID='name'"))</entity>") == [])
    }

    @Test func reportsAnAttributeThatBecomesTransient() throws {
        let new = entity(text("name", "transient='YES'"))
        let store = try StagedStore(entity(text("name")), ["INSERT INTO ZA VALUES (1, 1, 1, 'n')"])
        #expect(try store.migrate(to: new) == ["A.name is not stored by the newer model: 1 value is removed"])
        let found = try findings(entity(text("name")), new)
        #expect(found.map(\.severity) == [.warning] && found[0].message.contains("becomes transient"))
    }

    @Test func reportsAnAttributeThatBecomesDerived() throws {
        let old = entity(text("name") + text("plain"))
        let new = entity(text("name") + text("plain", "derived='YES' derivationExpression='canonical:(name)'"))
        let found = try findings(old, new)
        #expect(found.map(\.property) == ["plain"] && found[0].message.contains("becomes derived"))
    }

    @Test func reportsUnsupportedDerivationsAndIndexes() throws {
        let derived = text("more", "derived='YES' derivationExpression='average:(name)'")
        let index =
            "<fetchIndex name='lower'><fetchIndexElement expression='lowercase:(name)' type='Binary'/></fetchIndex>"
        let new = entity(text("name") + derived + index)
        let found = try findings(entity(text("name")), new)
        #expect(found.map(\.severity) == [.note, .warning])
        #expect(found[0].message.contains("lower is not created") && found[1].message.contains("average:(name)"))
        let notes = try StagedStore(entity(text("name"))).migrate(to: new)
        #expect(notes.contains { $0.hasPrefix("A: the fetch index lower is not created") }, "\(notes)")
    }

    @Test func reportsALostOrderAndANarrowerDestination() throws {
        func relationship(_ destination: String, _ ordered: String) -> String {
            "<relationship name='parts' optional='YES' toMany='YES' \(ordered) destinationEntity='\(destination)'/>"
        }
        let others = "<entity name='B'/><entity name='C' parentEntity='B'/>"
        let found = try findings(
            entity(relationship("B", "ordered='YES'")) + others, entity(relationship("C", "")) + others)
        #expect(found.map(\.severity) == [.note, .warning])
        #expect(found[0].message.contains("order of its objects") && found[1].message.contains("inherits from it"))
    }

    @Test func aRefusalNamesEntityAndProperty() throws {
        let store = try StagedStore(entity(text("name")))
        let error = #expect(throws: MigrationError.self) {
            try store.migrate(to: entity("<attribute name='name' optional='YES' attributeType='Date'/>"))
        }
        #expect(error?.message.contains(": A.name: Source and destination") == true)
    }
}

/// Values that their new type can't represent.
struct ChangedValuesTests {
    private func count(_ type: String) -> String {
        entity("<attribute name='n' optional='YES' attributeType='\(type)'/>")
    }

    @Test(arguments: [
        ("Double", "Integer 16", ["1.5", "-2.25", "3.0", "NULL"], 2), ("Decimal", "Boolean", ["1", "0.5"], 1),
        ("Decimal", "Double", ["9007199254740993", "9223372036854775807", "-3", "0.1"], 2),
        ("Decimal", "Float", ["9007199254740993"], 1),
        ("Integer 64", "Double", ["9007199254740993", "9007199254740992", "7", "NULL"], 1),
        ("Integer 64", "Integer 16", ["70000", "32767", "-32768", "-32769"], 2),
        ("Integer 64", "Integer 32", ["2147483648", "2147483647"], 1), ("Integer 32", "Boolean", ["2", "1", "0"], 1),
        ("Double", "Float", ["0.1", "0.5", "1e300"], 2), ("Integer 32", "Float", ["16777217", "16777216"], 1),
        ("Double", "Decimal", ["1e200", "0.1"], 1), ("Float", "Double", ["1.5"], 0),
        ("Integer 16", "Integer 64", ["7"], 0), ("Boolean", "Integer 16", ["1"], 0),
    ])
    func areCounted(_ old: String, _ new: String, _ values: [String], _ changed: Int) throws {
        let rows = values.enumerated().map { "INSERT INTO ZA VALUES (\($0 + 1), 1, 1, \($1))" }
        let notes = try StagedStore(count(old), rows).migrate(to: count(new))
        #expect(notes.contains { $0.contains("A.n") && $0.contains("\(changed) value") } == (changed > 0), "\(notes)")
    }
}
