import ManagedObjectModels
import SystemPackage
import TestSupport
import Testing

@testable import MappingModels
@testable import StoreMigration

/// Runs the mapping models of real apps on their stores, and expects the results of the apps' own tests.
@Suite(.enabled(if: SampleStores.directory != nil, "GROUPSTORE_REAL_STORES is not set"))
struct RealMappingTests {
    private struct App {
        let root: FilePath
        let versions: [ModelVersion]

        init(_ name: String, model: String) throws {
            root = try #require(SampleStores.directory).appending(name)
            versions = try ModelBundle(reading: root.appending(FilePath(model).components)).versions
        }

        func model(_ name: String) throws -> ManagedObjectModel {
            try #require(versions.first { $0.name == name }).model
        }

        func mapping(_ path: String) throws -> MappingModel {
            try MappingModelFile(reading: root.appending(FilePath(path).components)).mappingModel
        }
    }

    private static let tests = "CoreDataMigration-ExampleTests/Resources/SQLite/CoreDataMigration_Example_"
    private static let bundle =
        "CoreDataMigration-Example/CoreData/Model/CoreDataMigration_Example.xcdatamodeld"
    private static let mappings = "CoreDataMigration-Example/CoreData/Migration/Mappings/"

    /// wibosco, `CoreDataMigratorTests.test_individualStepMigration_2to3` of the revised example.
    @Test func postsGetSections() throws {
        let directory = try TemporaryDirectory()
        let app = try App("wibosco__CoreDataMigrationRevised-Example", model: Self.bundle)
        let source = try MigratedStore.copy(
            app.root.appending(FilePath(Self.tests + "2.sqlite").components), to: directory)
        let store = try MigratedStore(
            app.mapping(Self.mappings + "Migration2to3ModelMapping.xcmappingmodel"), source,
            from: app.model("CoreDataMigration_Example 2"), to: app.model("CoreDataMigration_Example 3"), in: directory,
            policies: ["Post2ToPost3MigrationPolicy": SectionPolicy.self])
        #expect(try store.row("SELECT count(*) FROM ZPOST") == "10")
        #expect(try store.row("SELECT count(*) FROM ZSECTION") == "10")
        #expect(
            try store.row(
                "SELECT ZPOSTID, ZHEXCOLOR, ZTITLE, ZBODY, ZINDEX, ZDATE + 978307200 FROM ZPOST JOIN ZSECTION "
                    + "ON ZSECTION.ZPOST = ZPOST.Z_PK ORDER BY ZPOSTID DESC")
                == "FFFECB21-6645-4FDD-B8B0-B960D0E61F5A|1BB732|Test...|Test body|0|1547494150.05882")
        // Objects keep their keys; new ones follow.
        #expect(try store.rows("SELECT Z_NAME, Z_MAX FROM Z_PRIMARYKEY ORDER BY Z_ENT") == ["Post|10", "Section|10"])
    }

    private final class SectionPolicy: EntityMigrationPolicy {
        override func createDestinationInstances(
            forSource source: MigrationObject, in mapping: EntityMapping, manager: MigrationSession
        ) throws {
            try super.createDestinationInstances(forSource: source, in: mapping, manager: manager)
            let posts = try manager.destinationInstances(forEntityMappingName: mapping.name, sourceInstances: [source])
            let post = try #require(posts.first)
            let body = try source.value(forKey: "content")?.stringValue
            let section = try manager.insertNewObject(forEntityName: "Section")
            try section.setValue(body.map { .string($0.prefix(4) + "...") }, forKey: "title")
            try section.setValue(body.map { .string($0) }, forKey: "body")
            try section.setValue(0, forKey: "index")
            try section.setObject(post, forKey: "post")
            try post.setObjects([section], forKey: "sections")
            #expect(try post.objects(forKey: "sections") == [section])
        }
    }

    /// wibosco's first example: an expression, then a policy that creates a color for each post.
    @Test func postsGetColors() throws {
        let directory = try TemporaryDirectory()
        let app = try App("wibosco__CoreDataMigration-Example", model: Self.bundle)
        let first = try MigratedStore.copy(
            app.root.appending(FilePath(Self.tests + "1.sqlite").components), to: directory)
        let (model1, model2, model3) = (
            try app.model("CoreDataMigration_Example"), try app.model("CoreDataMigration_Example 2"),
            try app.model("CoreDataMigration_Example 3")
        )
        let second = try MigratedStore(
            app.mapping(Self.mappings + "Migration1to2.xcmappingmodel"), first, from: model1, to: model2, in: directory)
        let before = try StoreRows(first).rows("SELECT Z_PK, ZPOSTID, ZDATE, ZCOLOR FROM ZPOST ORDER BY Z_PK")
        #expect(before.count == 1001)
        #expect(try second.rows("SELECT Z_PK, ZPOSTID, ZDATE, ZHEXCOLOR FROM ZPOST ORDER BY Z_PK") == before)
        let next = try TemporaryDirectory()
        let third = try MigratedStore(
            app.mapping(Self.mappings + "Migration2to3.xcmappingmodel"), second.path, from: model2, to: model3,
            in: next,
            policies: ["CoreDataMigration_Example.Post2ToPost3MigrationPolicy": ColorPolicy.self])
        // A policy creates the objects one by one, so they have new keys.
        #expect(
            try third.rows(
                "SELECT ZPOST.Z_PK - 1001, ZPOSTID, ZDATE, ZHEX FROM ZPOST JOIN ZCOLOR ON ZPOST.ZCOLOR = ZCOLOR.Z_PK "
                    + "AND ZCOLOR.ZPOST = ZPOST.Z_PK ORDER BY ZPOST.Z_PK"
            ).map { $0.split(separator: "|").dropFirst() }
                == before.map { $0.split(separator: "|").dropFirst() })
    }

    private final class ColorPolicy: EntityMigrationPolicy {
        override func createDestinationInstances(
            forSource source: MigrationObject, in mapping: EntityMapping, manager: MigrationSession
        ) throws {
            let post = try manager.insertNewObject(forEntityName: "Post")
            for key in ["date", "postID"] { try post.setValue(source.value(forKey: key), forKey: key) }
            let color = try manager.insertNewObject(forEntityName: "Color")
            try color.setValue(source.value(forKey: "hexColor"), forKey: "hex")
            try post.setObject(color, forKey: "color")
            try manager.associate(sourceInstance: source, withDestinationInstance: post, for: mapping)
        }
    }

    /// CoreDataPlus, `Migrations_Tests.test_MigrationFromV2ToV3`, with Xcode's mapping model and the compiled one.
    @Test(arguments: ["MappingModels/V2toV3.xcmappingmodel", "Fixtures/V2toV3.cdm"])
    func carsGetMakers(mapping: String) throws {
        let directory = try TemporaryDirectory()
        let resources = "Tests/Resources/SampleModel/"
        let app = try App("alemar11__CoreDataPlus", model: resources + "SampleModel.xcdatamodeld")
        let source = try MigratedStore.copy(
            app.root.appending(FilePath(resources + "Fixtures/SampleModel_V2.sqlite").components), to: directory)
        let store = try MigratedStore(
            app.mapping(resources + mapping), source, from: app.model("SampleModel2"), to: app.model("SampleModel3"),
            in: directory, policies: ["V2to3MakerPolicy": MakerPolicy.self])
        #expect(try store.row("SELECT count(*) FROM ZMAKER") == "10")
        let old = try StoreRows(source)
        let columns = "Z_PK, Z_ENT, ZNUMBERPLATE, ZMODEL, ZOWNER, ZISLIMITEDEDITION, ZMARKEDFORDELETIONASOF"
        let cars = try old.rows("SELECT \(columns) FROM ZCAR ORDER BY Z_PK")
        #expect(cars.count == 125)
        #expect(try store.rows("SELECT \(columns) FROM ZCAR ORDER BY Z_PK") == cars)
        #expect(
            try store.rows("SELECT ZCAR.Z_PK, ZNAME FROM ZCAR JOIN ZMAKER ON ZCREATEDBY = ZMAKER.Z_PK ORDER BY 1")
                == old.rows("SELECT Z_PK, ZMAKER FROM ZCAR ORDER BY 1"))
        let people = "SELECT Z_PK, ZFIRSTNAME, ZLASTNAME, ZUPDATEDAT FROM ZPERSON ORDER BY 1"
        #expect(try store.rows(people) == old.rows(people))
        let join = try #require(try store.row("SELECT name FROM sqlite_schema WHERE name GLOB 'Z_[0-9]*'"))
        #expect(
            try store.rows("SELECT * FROM \(join) ORDER BY 1, 2").map { Set($0.split(separator: "|")) }.count
                == old.rows("SELECT 1 FROM ZCAR WHERE ZOWNER IS NOT NULL").count)
    }

    private final class MakerPolicy: EntityMigrationPolicy {
        override func createDestinationInstances(
            forSource source: MigrationObject, in mapping: EntityMapping, manager: MigrationSession
        ) throws {
            try super.createDestinationInstances(forSource: source, in: mapping, manager: manager)
            guard let name = try source.value(forKey: "maker")?.stringValue else { return }
            let cars = try manager.destinationInstances(forEntityMappingName: mapping.name, sourceInstances: [source])
            var makers = manager.userInfo["makers"] as? [String: MigrationObject] ?? [:]
            let maker = try makers[name] ?? manager.insertNewObject(forEntityName: "Maker")
            if makers.updateValue(maker, forKey: name) == nil { try maker.setValue(.string(name), forKey: "name") }
            manager.userInfo["makers"] = makers
            try maker.add(#require(cars.first), forKey: "cars")
        }
    }

    /// LanarsInc, `XCMIgrationV2_V3Test`: the app's sources include no store, so its test creates one.
    @Test func messagesAreDivided() throws {
        let directory = try TemporaryDirectory()
        let app = try App(
            "LanarsInc__core-data-migration-example",
            model: "v3/CoreDataMigrationExample/CoreDataMigrationExample.xcdatamodeld")
        let old = try app.model("CoreDataMigrationExample v2")
        let source = try MigratedStore.make(
            old, in: directory,
            [
                "INSERT INTO ZMESSAGE (Z_PK, Z_ENT, Z_OPT, ZTITLE, ZTEXT, ZISPRIVATE) VALUES (1, 1, 1, 't1', 'b1', 1)",
                "INSERT INTO ZMESSAGE (Z_PK, Z_ENT, Z_OPT, ZTITLE, ZTEXT, ZISPRIVATE) VALUES (2, 1, 1, 't2', 'b2', 0)",
            ])
        let mapping = try app.mapping("v3/CoreDataMigrationExample/MessageToPrivateAndPublic.xcmappingmodel")
        let new = try app.model("CoreDataMigrationExample v3")
        let store = try MigratedStore(
            mapping, source, from: old, to: new, in: directory,
            policies: ["MessageToPrivateAndPublicPolicy": DividingPolicy.self])
        #expect(
            try store.rows("SELECT Z_NAME, ZTITLE, ZTEXT FROM ZMESSAGE JOIN Z_PRIMARYKEY USING (Z_ENT) ORDER BY Z_PK")
                == ["PrivateMessage|t1|b1", "PublicMessage|t2|b2"])
        do {
            _ = try MigratedStore(mapping, source, from: old, to: new, in: TemporaryDirectory())
            Issue.record("an unregistered policy was not reported")
        } catch let error as MappingModelError {
            #expect(error.code == .unknownPolicy)
            #expect("\(error)".contains("CoreDataMigrationExample.MessageToPrivateAndPublicPolicy"))
        }
    }

    private final class DividingPolicy: EntityMigrationPolicy {
        override func createDestinationInstances(
            forSource source: MigrationObject, in mapping: EntityMapping, manager: MigrationSession
        ) throws {
            let isPrivate = try source.value(forKey: "isPrivate")?.booleanValue == true
            let message = try manager.insertNewObject(forEntityName: isPrivate ? "PrivateMessage" : "PublicMessage")
            for key in ["title", "text", "dateCreated"] { try message.setValue(source.value(forKey: key), forKey: key) }
        }
    }
}
