import CoreDataStore
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

@testable import MappingModels
@testable import StoreMigration

/// The content that a migration removes is counted before it runs.
@Suite struct RemovedContentTests {
    private func text(_ name: String, _ more: String = "") -> String {
        "<attribute name='\(name)' optional='YES' attributeType='String' \(more)/>"
    }

    /// Returns what a dry run reports; the migration itself reports the same.
    private func losses(
        _ store: StagedStore, _ steps: [MigrationStep], policies: EntityMigrationPolicies = [:]
    ) throws -> [String] {
        let plan = MigrationPlan(steps: steps, policies: policies)
        let (directory, last) = try Directory.resolving(file: store.path)
        let location = StoreLocation(directory: directory, name: try #require(StoreName(last)))
        let trial = try #require(MigrationDryRun(plan))
        let losses = try StoreReader.read(location) { try trial.run(on: $0).losses }
        let copy = FilePath(store.path.string + ".run")
        try StagedFile.copy(store.path, to: copy)
        #expect(try MigrationManager(plan).migrate(staged: copy).losses == losses)
        return losses.sentences
    }

    private func inferred(_ versions: [String]) throws -> [MigrationStep] {
        let models = try versions.map { try model($0) }
        return try zip(models, models.dropFirst()).enumerated().map { index, pair in
            MigrationStep(
                from: pair.0, to: pair.1, named: "v\(index + 2)",
                by: .inferred(try MappingModel.inferred(from: pair.0, to: pair.1)))
        }
    }

    private func mapped(_ old: String, _ new: String, by mapping: String) throws -> [MigrationStep] {
        let read = try YAMLMappingReader.read(Array(("mapping: 1\n" + mapping).utf8))
        let (source, destination) = (try model(old), try model(new))
        return [
            MigrationStep(
                from: source, to: destination, named: "new",
                by: .custom(try read.resolved(from: source, to: destination)))
        ]
    }

    @Test func countsObjectsAndValuesOfEachEntity() throws {
        let parts = text("name") + text("code")
        let old = entity(parts) + "<entity name='S' parentEntity='A'/><entity name='B'/>"
        let store = try StagedStore(
            old,
            [
                "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZNAME, ZCODE) VALUES (1, 1, 1, 'n', 'c'), (2, 2, 1, NULL, 'd'),"
                    + "(3, 2, 1, 'n', NULL)", "INSERT INTO ZB VALUES (1, 3, 1), (2, 3, 1)",
            ])
        let new = entity(text("name")) + "<entity name='S' parentEntity='A'/>"
        #expect(
            try losses(store, inferred([old, new])) == [
                "A.code is not stored by the newer model: 2 values are removed",
                "B is not in the newer model: 2 objects are removed",
            ])
        // The values are removed with their objects.
        let without = entity(text("name") + text("code"))
        #expect(
            try losses(store, inferred([old, without])).first == "S is not in the newer model: 2 objects are removed")
    }

    /// A property that a version on the path lacks comes back empty.
    @Test func countsContentThatAVersionOnThePathLacks() throws {
        let (full, less) = (entity(text("name") + text("code")) + "<entity name='B'/>", entity(text("name")))
        let store = try StagedStore(
            full,
            [
                "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZNAME, ZCODE) VALUES (1, 1, 1, 'n', 'c')",
                "INSERT INTO ZB VALUES (1, 2, 1)",
            ])
        #expect(
            try losses(store, inferred([full, less, full])) == [
                "A.code is not stored by v2, a version on the migration path: 1 value is removed",
                "B is not in v2, a version on the migration path: 1 object is removed",
            ])
        #expect(try losses(store, inferred([full, full + "<entity name='C'/>", full])) == [])
    }

    private func related(_ forth: String, _ back: String) -> String {
        "<entity name='A'>\(forth)</entity><entity name='B'>\(back)</entity>"
    }

    private func relationship(_ name: String, to destination: String, inverse: String, _ more: String) -> String {
        "<relationship name='\(name)' optional='YES' \(more) destinationEntity='\(destination)' inverseName='\(inverse)' "
            + "inverseEntity='\(destination)'/>"
    }

    @Test(arguments: [
        ("maxCount='1'", "toMany='YES'"), ("toMany='YES'", "toMany='YES'"), ("maxCount='1'", "maxCount='1'"),
    ])
    func countsLinksOfARemovedRelationship(_ forth: String, _ back: String) throws {
        let old = related(
            relationship("b", to: "B", inverse: "a", forth), relationship("a", to: "A", inverse: "b", back))
        let store = try StagedStore(
            old,
            [
                "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT) VALUES (1, 1, 1)",
                "INSERT INTO ZB (Z_PK, Z_ENT, Z_OPT) VALUES (1, 2, 1)",
            ])
        let layout = StoreLayout(try model(old))
        if let join = layout.joinTables.first {
            try StoreWriter(store.path).execute(
                "INSERT INTO \(join.name) (\(join.owner.column), \(join.inverse.column)) VALUES (1, 1)")
        } else {
            try StoreWriter(store.path).execute("UPDATE ZA SET ZB = 1")
            if back == "maxCount='1'" { try StoreWriter(store.path).execute("UPDATE ZB SET ZA = 1") }
        }
        #expect(
            try losses(store, inferred([old, related("", "")])) == [
                "A.b is not stored by the newer model: 1 link is removed"
            ])
        // One end is renamed: the links stay.
        let renamed = related(
            relationship("c", to: "B", inverse: "a", forth + " elementID='b'"),
            relationship("a", to: "A", inverse: "c", back))
        #expect(try losses(store, inferred([old, renamed])) == [])
    }

    @Test func countsLinksWhoseRowHoldsAnotherLink() throws {
        func related(_ count: String) -> String {
            entity("<relationship name='b' optional='YES' \(count) destinationEntity='B'/>") + "<entity name='B'/>"
        }
        let store = try StagedStore(
            related("maxCount='1'"),
            [
                "INSERT INTO ZB (Z_PK, Z_ENT, Z_OPT) VALUES (1, 2, 1), (2, 2, 1)",
                "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZB) VALUES (1, 1, 1, 1), (2, 1, 1, 1), (3, 1, 1, 1), (4, 1, 1, 2)",
            ])
        let steps = try inferred([related("maxCount='1'"), related("toMany='YES'")])
        let counted = "A.b has no inverse, so no two objects can be related to the same object: 2 links are removed"
        #expect(try losses(store, steps) == [counted])
        #expect(try MigrationManager(MigrationPlan(steps: steps)).migrate(staged: store.path).notes == [counted])
    }

    /// A version on the path had no place for some of the links.
    @Test func countsLinksThatAVersionOnThePathLacks() throws {
        func related(_ destination: String) -> String {
            entity("<relationship name='b' optional='YES' maxCount='1' destinationEntity='\(destination)'/>")
                + "<entity name='B'/><entity name='C' parentEntity='B'/>"
        }
        let store = try StagedStore(
            related("B"),
            [
                "INSERT INTO ZB (Z_PK, Z_ENT, Z_OPT) VALUES (1, 2, 1), (2, 3, 1)",
                "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZB, Z2_B) VALUES (1, 1, 1, 1, 2), (2, 1, 1, 2, 3), (3, 1, 1, 1, 2)",
            ])
        #expect(
            try losses(store, inferred([related("B"), related("C"), related("B")])) == [
                "A.b can't lead to some of its objects any more: 2 links are removed"
            ])
    }

    /// An app's own code may remove objects between two versions.
    @Test func countsObjectsThatAStageRemoves() throws {
        let store = try StagedStore(
            entity(text("name")), ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (1, 1, 1, 'a'), (2, 1, 1, NULL)"])
        var step = try #require(try inferred([entity(text("name")), entity(text("name") + text("more"))]).first)
        step.stage = MigrationStageHandlers(
            label: "tidy", willMigrate: { try $0.execute("DELETE FROM ZA WHERE ZNAME IS NULL") }, didMigrate: nil)
        let outcome = try MigrationManager(MigrationPlan(steps: [step])).migrate(staged: store.path)
        #expect(
            outcome.losses.sentences == ["A is removed in part by a stage of the migration: 1 object is removed"])
    }

    // MARK: Mapping models

    @Test func countsLinksToObjectsThatAConditionExcludes() throws {
        func related(_ more: String) -> String {
            "<entity name='Owner'><relationship name='one' optional='YES' maxCount='1' destinationEntity='Object'/>"
                + "</entity>" + object(text("kind") + more)
        }
        let store = try StagedStore(
            related(""),
            [
                "INSERT INTO ZOBJECT (Z_PK, Z_ENT, Z_OPT, ZKIND) VALUES (1, 1, 1, 'a'), (2, 1, 1, 'b')",
                "INSERT INTO ZOWNER (Z_PK, Z_ENT, Z_OPT, ZONE) VALUES (1, 2, 1, 1), (2, 2, 1, 2), (3, 2, 1, 2)",
            ])
        let mapping = """
            entities:
              - {from: Object, to: Object, where: kind == "a"}
              - {from: Owner, to: Owner}
            """
        #expect(
            try losses(store, mapped(related(""), related(text("new")), by: mapping)) == [
                "Object matches no entity mapping's condition: 1 object is removed",
                "Owner.one leads to objects that are removed: 2 links are removed",
            ])
    }

    private func object(_ properties: String) -> String { "<entity name='Object'>\(properties)</entity>" }

    @Test func countsObjectsThatMatchNoEntityMapping() throws {
        let old = object(text("kind") + text("name") + text("rest")) + "<entity name='Other'/>"
        let new = "<entity name='Human'>\(text("title"))</entity>"
        let store = try StagedStore(
            old,
            [
                "INSERT INTO ZOBJECT (Z_PK, Z_ENT, Z_OPT, ZKIND, ZNAME, ZREST) VALUES (1, 1, 1, 'human', 'a', 'r'),"
                    + "(2, 1, 1, 'thing', 'b', 'r'), (3, 1, 1, NULL, 'c', NULL), (4, 1, 1, 'human', 'drop', NULL)",
                "INSERT INTO ZOTHER VALUES (1, 2, 1)",
            ])
        let mapping = """
            before:
              - drop: Object
                where: name LIKE[c] "DROP"
            entities:
              - {from: Object, to: Human, where: kind == "human", attributes: {title: $source.name}}
            """
        #expect(
            try losses(store, mapped(old, new, by: mapping)) == [
                "Object is dropped by the mapping model: 1 object is removed",
                "Object matches no entity mapping's condition: 2 objects are removed",
                "Object.rest is not read by any mapping: 2 values are removed",
                "Other has no entity mapping: 1 object is removed",
            ])
    }

    /// Values that go into another value, a condition or another object's value count as read.
    @Test func countsNoValuesThatExpressionsRead() throws {
        let old =
            object(text("a") + text("b") + text("c"))
            + "<entity name='Owner'><relationship name='one' optional='YES' maxCount='1' destinationEntity='Object'/></entity>"
        let new = "<entity name='Object'>\(text("ab"))</entity><entity name='Owner'>\(text("label"))</entity>"
        let store = try StagedStore(
            old,
            [
                "INSERT INTO ZOBJECT (Z_PK, Z_ENT, Z_OPT, ZA, ZB, ZC) VALUES (1, 1, 1, 'a', 'b', 'c')",
                "INSERT INTO ZOWNER (Z_PK, Z_ENT, Z_OPT, ZONE) VALUES (1, 2, 1, 1)",
            ])
        let mapping = """
            entities:
              - from: Object
                to: Object
                attributes: {ab: 'FUNCTION($source.a, "stringByAppendingString:", $source.b)'}
              - {from: Owner, to: Owner, attributes: {label: $source.one.c}}
            """
        #expect(try losses(store, mapped(old, new, by: mapping)) == [])
    }

    /// A policy's effect can't be known in advance.
    @Test func countsNothingThatAPolicyMayUse() throws {
        let old = object(text("a"))
        let store = try StagedStore(old, ["INSERT INTO ZOBJECT (Z_PK, Z_ENT, Z_OPT, ZA) VALUES (1, 1, 1, 'a')"])
        let mapping = "entities:\n  - {from: Object, to: Object, policy: App.Policy}\n"
        let found = try losses(
            store, mapped(old, object(text("b")), by: mapping), policies: ["App.Policy": EntityMigrationPolicy.self])
        #expect(found == [])
    }
}
