import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import CoreDataStore
@testable import MappingModels
@testable import StoreMigration

/// Runs YAML mapping models on generated stores.
struct MappingMigrationTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    private func migrated(
        _ old: String, _ statements: [String], to new: String, by mapping: String,
        policies: EntityMigrationPolicies = [:]
    ) throws -> MigratedStore {
        let (source, destination) = (try model(old), try model(new))
        let path = try MigratedStore.make(source, in: directory, statements)
        let read = try YAMLMappingReader.read(Array(("mapping: 1\n" + mapping).utf8))
        return try MigratedStore(read, path, from: source, to: destination, in: directory, policies: policies)
    }

    private static func attribute(_ name: String, _ type: String, _ more: String = "") -> String {
        "<attribute name='\(name)' optional='YES' attributeType='\(type)' \(more)/>"
    }

    // MARK: An entity divided

    /// `Object` becomes `Human` and `Animal`. Objects that are neither are removed, with the links to them.
    @Test func anEntityIsDividedByFilters() throws {
        let old = """
            <entity name='Object'><attribute name='kind' optional='YES' attributeType='String'/>
            <attribute name='name' optional='YES' attributeType='String'/>
            <relationship name='owner' optional='YES' maxCount='1' destinationEntity='Object' inverseName='owned'/>
            <relationship name='owned' optional='YES' toMany='YES' destinationEntity='Object' inverseName='owner'/></entity>
            """
        let new = """
            <entity name='Human'><attribute name='name' optional='YES' attributeType='String'/>
            <relationship name='pets' optional='YES' toMany='YES' destinationEntity='Animal' inverseName='owner'/></entity>
            <entity name='Animal'><attribute name='title' attributeType='String' defaultValueString='?'/>
            <relationship name='owner' optional='YES' maxCount='1' destinationEntity='Human' inverseName='pets'/></entity>
            """
        let store = try migrated(
            old,
            [
                "INSERT INTO ZOBJECT (Z_PK, Z_ENT, Z_OPT, ZKIND, ZNAME, ZOWNER) VALUES (1,1,9,'human','Ann',NULL),"
                    + "(2,1,1,'animal','Rex',1),(3,1,1,'animal','Tom',4),(4,1,1,NULL,'thing',NULL),(7,1,1,'human','Bob',1)",
                "UPDATE Z_PRIMARYKEY SET Z_MAX = 9",
            ], to: new,
            by: """
                before:
                  - drop: Object
                    where: name == "Tom"
                  - sql: UPDATE ZOBJECT SET ZNAME = ZNAME || '!' WHERE ZNAME = 'Ann'
                entities:
                  - from: Object
                    to: Human
                    where: kind == "human"
                  - from: Object
                    to: Animal
                    where: kind == "animal"
                    attributes:
                      title: FUNCTION($source.name, "uppercaseString")
                    relationships:
                      owner: { mapping: ObjectToHuman, from: owner }
                after:
                  - sql: UPDATE ZHUMAN SET ZNAME = ZNAME || '?' WHERE ZNAME = 'Bob'
                """)
        #expect(try store.rows("SELECT Z_PK, Z_OPT, ZNAME FROM ZHUMAN") == ["1|1|Ann!", "7|1|Bob?"])
        #expect(try store.rows("SELECT Z_PK, ZTITLE, ZOWNER FROM ZANIMAL") == ["2|REX|1"])
        #expect(try store.rows("SELECT Z_NAME, Z_MAX FROM Z_PRIMARYKEY") == ["Animal|9", "Human|9"])
    }

    /// Two entities become one: their objects get new keys, and relationships follow.
    @Test func entitiesAreMerged() throws {
        let old = """
            <entity name='Cat'><attribute name='name' optional='YES' attributeType='String'/>
            <relationship name='friends' optional='YES' toMany='YES' destinationEntity='Dog' inverseName='friends'/></entity>
            <entity name='Dog'><attribute name='name' optional='YES' attributeType='String'/>
            <relationship name='friends' optional='YES' toMany='YES' destinationEntity='Cat' inverseName='friends'/></entity>
            """
        let new = """
            <entity name='Pet'><attribute name='name' optional='YES' attributeType='String'/>
            <attribute name='kind' attributeType='String'/>
            <relationship name='likes' optional='YES' toMany='YES' destinationEntity='Pet' inverseName='likedBy'/>
            <relationship name='likedBy' optional='YES' toMany='YES' destinationEntity='Pet' inverseName='likes'/></entity>
            """
        let oldModel = try model(old)
        let join = try #require(StoreLayout(oldModel).joinTables.first)
        let cats = join.owner.entity == "Cat" ? join.owner.column : join.inverse.column
        let dogs = join.owner.entity == "Cat" ? join.inverse.column : join.owner.column
        let store = try migrated(
            old,
            [
                "INSERT INTO ZCAT (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (1,1,1,'Mia'),(2,1,1,'Leo')",
                "INSERT INTO ZDOG (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (1,2,1,'Rex'),(2,2,1,'Bo')",
                "INSERT INTO \(join.name) (\(cats), \(dogs)) VALUES (1,1),(1,2),(2,2)",
            ], to: new,
            by: """
                entities:
                  - from: Cat
                    to: Pet
                    attributes: { kind: '"cat"' }
                    relationships:
                      likes: { mapping: DogToPet, from: friends }
                  - from: Dog
                    to: Pet
                    attributes: { kind: '"dog"' }
                """)
        #expect(
            try store.rows("SELECT ZKIND, ZNAME FROM ZPET ORDER BY Z_PK") == [
                "cat|Mia", "cat|Leo", "dog|Rex", "dog|Bo",
            ])
        let made = try #require(StoreLayout(model(new)).joinTables.first)
        let likes = made.owner.relationship == "likes" ? made.owner : made.inverse
        let likedBy = made.owner.relationship == "likes" ? made.inverse : made.owner
        #expect(
            try store.rows(
                "SELECT a.ZNAME, b.ZNAME FROM \(made.name) JOIN ZPET a ON a.Z_PK = \(likes.column) "
                    + "JOIN ZPET b ON b.Z_PK = \(likedBy.column) ORDER BY 1, 2") == ["Leo|Bo", "Mia|Bo", "Mia|Rex"])
    }

    // MARK: Expressions

    private static let people = """
        <entity name='Team'>\(attribute("name", "String"))\
        <relationship name='members' optional='YES' toMany='YES' ordered='YES' destinationEntity='Person' inverseName='team'/>\
        </entity><entity name='Person'>\(attribute("name", "String"))\(attribute("age", "Integer 16"))\
        \(attribute("pay", "Double"))\(attribute("born", "Date"))\(attribute("code", "UUID"))\
        <relationship name='team' optional='YES' maxCount='1' destinationEntity='Team' inverseName='members'/></entity>
        """
    private static let peopleRows = [
        "INSERT INTO ZTEAM (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (1,2,1,'Reds'),(2,2,1,'Blues')",
        "INSERT INTO ZPERSON (Z_PK, Z_ENT, Z_OPT, ZNAME, ZAGE, ZPAY, ZBORN, ZCODE, ZTEAM, Z_FOK_TEAM) VALUES "
            + "(1,1,1,'Ann',30,10.5,100,x'00112233445566778899AABBCCDDEEFF',1,3072),"
            + "(2,1,1,'Éric',41,2,200.25,NULL,1,2048),(3,1,1,NULL,NULL,NULL,NULL,NULL,NULL,NULL)",
    ]

    /// Each expression with its values for Ann, for Éric, and for a person without any values.
    private static let values: [(String, [String])] = [
        ("$source.age + 1", ["31", "42", "-"]), ("$source.age / 4", ["7", "10", "-"]),
        ("$source.pay / 4", ["2.625", "0.5", "-"]),
        ("$source.age ** 2", ["900.0", "1681.0", "-"]), ("$source.team.name", ["Reds", "Reds", "-"]),
        ("$source.team.members.@count", ["2", "2", "0"]), ("$source.team.members.@sum.age", ["71", "71", "0"]),
        ("max($source.team.members.pay)", ["10.5", "10.5", "-"]), ("uppercase($source.name)", ["ANN", "ÉRIC", "-"]),
        ("TERNARY($source.age > 35, \"old\", \"young\")", ["young", "old", "young"]),
        ("CAST($source.code, \"NSString\")", ["00112233-4455-6677-8899-AABBCCDDEEFF", "-", "-"]),
        ("FUNCTION($source.name, \"stringByAppendingString:\", \"!\")", ["Ann!", "Éric!", "-"]),
        ("FUNCTION($source.name, \"substringToIndex:\", 2)", ["An", "Ér", "-"]),
        ("SUBQUERY($source.team.members, $m, $m.age > $source.age).@count", ["1", "0", "0"]),
        ("$source.team.members[FIRST].name", ["Éric", "Éric", "-"]),
        ("$source.entity.name", ["Person", "Person", "Person"]),
        ("TERNARY(name BEGINSWITH[cd] \"er\", 1, 0)", ["0", "1", "0"]),
        ("TERNARY(name LIKE \"A*n\", 1, 0)", ["1", "0", "0"]),
        ("TERNARY(name MATCHES[c] \"[a-m]nn\", 1, 0)", ["1", "0", "0"]),
        ("TERNARY(NOT age > 35, 1, 0)", ["1", "0", "1"]),
        ("TERNARY(age IN {30, 31}, 1, 0)", ["1", "0", "0"]), ("TERNARY(age BETWEEN {40, 50}, 1, 0)", ["0", "1", "0"]),
        ("TERNARY(team == nil, 1, 0)", ["0", "0", "1"]), ("TERNARY(ANY team.members.age > 40, 1, 0)", ["1", "1", "0"]),
        ("TERNARY(ALL team.members.age > 35, 1, 0)", ["0", "0", "1"]), ("\"it's\"", ["it's", "it's", "it's"]),
        ("TERNARY(code == \"00112233-4455-6677-8899-AABBCCDDEEFF\", 1, 0)", ["1", "0", "0"]),
        ("sum({$source.age, 5, nil})", ["35", "46", "5"]), ("$entityMapping.name", ["M", "M", "M"]),
        ("FUNCTION($source.born, \"timeIntervalSince1970\")", ["978307300", "978307400.25", "-"]),
    ]

    @Test(arguments: values)
    func expressionsAreEvaluated(expression: String, expected: [String]) throws {
        let quoted = expression.replacing("'", with: "''")
        let store = try migrated(
            Self.people, Self.peopleRows,
            to: "<entity name='Value'><attribute name='value' optional='YES' attributeType='String'/></entity>",
            by: "entities:\n  - {name: M, from: Person, to: Value, attributes: {value: '\(quoted)'}}")
        #expect(try store.rows("SELECT ZVALUE FROM ZVALUE ORDER BY Z_PK") == expected)
    }

    @Test(arguments: [
        "$source.nothing", "$source.team", "$source.team.members.age", "nonsense(1)", "$destination.name",
        "FUNCTION($source.name, \"explode\")", "$source.name.length", "FUNCTION($entityPolicy, \"x\")",
        "TERNARY(name MATCHES \"(?i)ann\", 1, 0)", "TERNARY(name MATCHES[c] \"(ann\", 1, 0)",
    ])
    func refusesExpressionsThatCannotBeCompiled(expression: String) throws {
        do {
            _ = try migrated(
                Self.people, Self.peopleRows,
                to: "<entity name='Value'><attribute name='value' optional='YES' attributeType='String'/></entity>",
                by: "entities:\n  - {from: Person, to: Value, attributes: {value: '\(expression)'}}")
            Issue.record("it was run")
        } catch let error as MappingModelError {
            #expect(error.code == .invalid && error.element == "PersonToValue.value")
        }
    }

    // MARK: Relationships

    @Test func anOrderedRelationshipKeepsItsOrder() throws {
        let store = try migrated(
            Self.people, Self.peopleRows, to: Self.people.replacing("'pay'", with: "'wage'"),
            by: """
                entities:
                  - {from: Team, to: Team}
                  - {from: Person, to: Person, attributes: {wage: $source.pay}}
                """)
        #expect(
            try store.rows("SELECT ZNAME, ZWAGE, ZTEAM, Z_FOK_TEAM FROM ZPERSON ORDER BY Z_PK")
                == ["Ann|10.5|1|3072", "Éric|2.0|1|2048", "-|-|-|-"])
    }

    /// The mapping sets one end only. The other end follows, with new positions.
    @Test func setsTheInverse() throws {
        let new = """
            <entity name='Club'><relationship name='people' optional='YES' toMany='YES' ordered='YES' destinationEntity='Member' inverseName='club'/>
            <relationship name='head' optional='YES' maxCount='1' destinationEntity='Member' inverseName='headOf'/></entity>
            <entity name='Member'>\(Self.attribute("name", "String"))
            <relationship name='club' optional='YES' maxCount='1' destinationEntity='Club' inverseName='people'/>
            <relationship name='headOf' optional='YES' maxCount='1' destinationEntity='Club' inverseName='head'/></entity>
            """
        let store = try migrated(
            Self.people, Self.peopleRows, to: new,
            by: """
                entities:
                  - from: Team
                    to: Club
                    relationships:
                      people: { mapping: PersonToMember, from: members }
                      head: FUNCTION($manager, "destinationInstancesForEntityMappingNamed:sourceInstances:", "PersonToMember", $source.members[FIRST])
                  - {from: Person, to: Member}
                """)
        #expect(
            try store.rows("SELECT ZNAME, ZCLUB, Z_FOK_CLUB, ZHEADOF FROM ZMEMBER ORDER BY Z_PK")
                == ["Ann|1|3072|-", "Éric|1|2048|1", "-|-|-|-"])
        #expect(try store.rows("SELECT Z_PK, ZHEAD FROM ZCLUB ORDER BY 1") == ["1|2", "2|-"])
    }

    // MARK: Validation

    @Test func reportsInvalidObjects() throws {
        let new = """
            <entity name='Person'><attribute name='name' attributeType='String'/>
            <attribute name='age' optional='YES' attributeType='Integer 16'/>
            <relationship name='boss' maxCount='1' destinationEntity='Person'/></entity>
            """
        do {
            _ = try migrated(
                Self.people, Self.peopleRows, to: new,
                by: "entities:\n  - {from: Person, to: Person, attributes: {age: $source.name}}")
            Issue.record("it went through")
        } catch let error as MigrationError {
            #expect(error.code == CoreDataError.migration)
            #expect(error.findings.map(\.property) == ["age", "boss", "name"])
            #expect(error.findings.map(\.code) == [134110, 1570, 1570])
            #expect(error.findings[2].message.contains("1 object"))
        }
    }

    @Test func enforcesUniqueness() throws {
        let new = """
            <entity name='Person'><attribute name='name' optional='YES' attributeType='String'/>
            <uniquenessConstraints><uniquenessConstraint><constraint value='name'/></uniquenessConstraint></uniquenessConstraints></entity>
            """
        do {
            _ = try migrated(
                Self.people, Self.peopleRows, to: new,
                by: "entities:\n  - {from: Person, to: Person, attributes: {name: '\"same\"'}}")
            Issue.record("it went through")
        } catch let error as MigrationError { #expect(error.code == CoreDataError.migrationConstraintViolation) }
    }

    // MARK: Other content of a store

    @Test func metadataAndForeignTablesAreCarriedOver() throws {
        let path = try MigratedStore.make(
            model(Self.people), in: directory,
            [
                "CREATE TABLE app_notes (id INTEGER PRIMARY KEY, text)", "INSERT INTO app_notes VALUES (1, 'x')",
                "CREATE INDEX app_index ON app_notes (text)",
                "CREATE TRIGGER app_trigger AFTER DELETE ON app_notes BEGIN DELETE FROM app_notes; END",
                "CREATE TRIGGER gone AFTER INSERT ON ZPERSON BEGIN UPDATE ZTEAM SET ZNAME = NEW.ZPAY; END",
            ])
        let mapping = try YAMLMappingReader.read(Array("mapping: 1\nentities:\n  - {from: Team, to: Team}".utf8))
        let store = try MigratedStore(
            mapping, path, from: model(Self.people),
            to: model("<entity name='Team'>\(Self.attribute("name", "String"))</entity>"), in: directory)
        #expect(try store.rows("SELECT * FROM app_notes") == ["1|x"])
        #expect(
            try store.rows(
                "SELECT name FROM sqlite_schema WHERE name IN ('app_index', 'app_trigger', 'gone') ORDER BY 1")
                == ["app_index", "app_trigger"])
        #expect(store.notes.contains { $0.contains("gone") })
        #expect(
            try store.row("SELECT Z_UUID FROM Z_METADATA") == StoreRows(path).rows("SELECT Z_UUID FROM Z_METADATA")[0])
        #expect(try store.rows("SELECT count(*) FROM Z_MODELCACHE") == ["1"])
    }

    @Test func addsAndRemovesTheExternalDataMarker() throws {
        let old =
            "<entity name='A'>\(Self.attribute("inside", "Binary"))"
            + "\(Self.attribute("outside", "Binary", "allowsExternalBinaryDataStorage='YES'"))</entity>"
        let new =
            "<entity name='A'>\(Self.attribute("inside", "Binary", "allowsExternalBinaryDataStorage='YES'"))"
            + "\(Self.attribute("outside", "Binary"))</entity>"
        let store = try migrated(
            old, ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZINSIDE, ZOUTSIDE) VALUES (1,1,1,x'AA',x'01BB')"], to: new,
            by: "entities:\n  - {from: A, to: A}")
        #expect(try store.rows("SELECT hex(ZINSIDE), hex(ZOUTSIDE) FROM ZA") == ["01AA|BB"])
    }

    // MARK: Policies

    private final class NamingPolicy: EntityMigrationPolicy {
        override func value(
            forSelector selector: String, arguments: [PolicyArgument], manager: MigrationSession
        ) throws -> PolicyArgument {
            switch (selector, arguments.first) {
            case ("nameFor:", .value(let name)?): return .value(.string((name?.stringValue ?? "nobody") + "."))
            case ("matesOf:manager:", .objects(let mates)?):
                return .objects(
                    try manager.destinationInstances(forEntityMappingName: "PersonToPerson", sourceInstances: mates))
            default: return try super.value(forSelector: selector, arguments: arguments, manager: manager)
            }
        }

        override func createRelationships(
            forDestination destination: MigrationObject, in mapping: EntityMapping, manager: MigrationSession
        ) throws {
            try super.createRelationships(forDestination: destination, in: mapping, manager: manager)
            #expect(try destination.object(forKey: "team")?.entityName ?? "Team" == "Team")
        }

        override func performCustomValidation(forMapping mapping: EntityMapping, manager: MigrationSession) throws {
            #expect(try manager.destinationObjects(ofEntity: "Person", where: "name ENDSWITH \".\"").count == 3)
        }
    }

    @Test func evaluatesFunctionsOfAPolicy() throws {
        let new = Self.people.replacing(
            "'members' optional='YES' toMany='YES' ordered='YES'", with: "'members' optional='YES' toMany='YES'"
        ).replacing(
            "inverseName='members'/>",
            with: "inverseName='members'/>"
                + "<relationship name='mates' optional='YES' toMany='YES' destinationEntity='Person' inverseName='mateOf'/>"
                + "<relationship name='mateOf' optional='YES' toMany='YES' destinationEntity='Person' inverseName='mates'/>"
        )
        let store = try migrated(
            Self.people, Self.peopleRows, to: new,
            by: """
                entities:
                  - {from: Team, to: Team}
                  - from: Person
                    to: Person
                    policy: App.NamingPolicy
                    attributes:
                      name: FUNCTION($entityPolicy, "nameFor:", $source.name)
                    relationships:
                      mates: FUNCTION($entityPolicy, "matesOf:manager:", $source.team.members, $manager)
                """, policies: ["App.NamingPolicy": NamingPolicy.self])
        #expect(
            try store.rows("SELECT ZNAME, ZTEAM FROM ZPERSON ORDER BY Z_PK") == ["Ann.|1", "Éric.|1", "nobody.|-"])
        let join = try #require(StoreLayout(model(new)).joinTables.first)
        #expect(try store.rows("SELECT count(*) FROM \(join.name)") == ["4"])
    }

    private final class FailingPolicy: EntityMigrationPolicy {
        override func endInstanceCreation(forMapping mapping: EntityMapping, manager: MigrationSession) throws {
            throw PolicyError("it is Monday")
        }
    }

    @Test func namesAFailingPolicy() throws {
        do {
            _ = try migrated(
                Self.people, Self.peopleRows, to: Self.people,
                by: "entities:\n  - {from: Person, to: Person, policy: Failing}",
                policies: ["Failing": FailingPolicy.self])
            Issue.record("it went through")
        } catch let error as MigrationError {
            #expect(error.code == CoreDataError.entityMigrationPolicy)
            #expect(error.message.contains("Failing") && error.message.contains("it is Monday"))
        }
    }

    // MARK: In a chain of versions

    /// An inferred step across both versions doesn't bypass the mapping model between them, and the staged file keeps
    /// its identity.
    @Test func aChainGoesThroughTheMappingModel() throws {
        let first = try model("<entity name='A'>\(Self.attribute("x", "String"))</entity>")
        let second = try model("<entity name='A'>\(Self.attribute("y", "String"))</entity>")
        let third = try model(
            "<entity name='A'>\(Self.attribute("y", "String"))\(Self.attribute("z", "String"))</entity>")
        let file = directory.path.appending("OneToTwo.mapping.yaml")
        try TextFile.write(
            "mapping: 1\nsource: 1\ndestination: 2\nentities:\n  - {from: A, to: A, attributes: {y: $source.x}}\n",
            to: file)
        let mappings = [try MappingModelFile(reading: file)]
        let check = MigrationCheck(
            from: first, sourceName: "1", hashes: first.entityVersionHashesByName, to: third, named: "3",
            intermediates: [("2", second)], mappings: mappings)
        #expect(check.verdict == .stepwise(["2", "3"]))
        #expect(check.mappingNames == ["OneToTwo.mapping", nil])
        let plan = try MigrationPlan(
            from: first, sourceName: "1", to: third, named: "3", through: [("2", second)], mappings: mappings)
        let path = try MigratedStore.make(
            first, in: directory, ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZX) VALUES (1,1,1,'kept')"])
        let before = try #require(FileStatus(following: path)).identity
        var fractions: [Double] = []
        var manager = MigrationManager(plan)
        manager.progress = { fraction, _ in fractions.append(fraction) }
        _ = try manager.migrate(staged: path)
        #expect(try StoreRows(path).rows("SELECT ZY, ZZ FROM ZA") == ["kept|-"])
        #expect(FileStatus(following: path)?.identity == before)
        #expect(fractions == fractions.sorted() && fractions.last == 1)
    }
}
