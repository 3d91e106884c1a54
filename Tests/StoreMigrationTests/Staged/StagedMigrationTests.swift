import ManagedObjectModels
import Testing

@testable import MappingModels
@testable import StoreMigration

/// Stages like those of `NSStagedMigrationManager`: the work between two versions, and the resulting steps.
@Suite struct StagedMigrationTests {
    private let versions: [(name: String, model: ManagedObjectModel)]

    init() throws {
        let attributes = [
            "<attribute name='name' optional='YES' attributeType='String'/>",
            "<attribute name='name' optional='YES' attributeType='String'/>"
                + "<attribute name='first' optional='YES' attributeType='String'/>",
            "<attribute name='first' optional='YES' attributeType='String'/>",
            "<attribute name='first' optional='YES' attributeType='String'/>"
                + "<attribute name='age' optional='YES' attributeType='Integer 16'/>",
        ]
        versions = try attributes.enumerated().map { ("V\($0 + 1)", try model("<entity name='Person'>\($1)</entity>")) }
    }

    private func checksum(_ number: Int) -> String { versions[number - 1].model.versionChecksum }

    private func plan(from: Int, to: Int, _ stages: [MigrationStage]) throws -> MigrationPlan {
        try MigrationPlan(
            from: versions[from - 1].model, to: versions[to - 1].model, named: "V\(to)", stages: stages, among: versions
        )
    }

    /// The name is split in the version that has both attributes.
    private var stages: [MigrationStage] {
        [
            .lightweight(versionChecksums: [checksum(1)]),
            .custom(
                from: checksum(1), to: checksum(2), label: "split",
                willMigrate: { store in
                    #expect(store.column(of: "first", in: "Person") == nil)
                    try store.execute("UPDATE ZPERSON SET ZNAME = trim(ZNAME)")
                },
                didMigrate: { store in
                    let table = try #require(store.table(of: "Person"))
                    let column = try #require(store.column(of: "first", in: "Person"))
                    #expect(store.number(of: "Person") == 1)
                    for row in try store.rows("SELECT Z_PK, ZNAME FROM \(table) ORDER BY 1") {
                        let first = row[1]?.stringValue?.split(separator: " ").first.map {
                            AttributeValue.string("\($0)")
                        }
                        try store.execute("UPDATE \(table) SET \(column) = ? WHERE Z_PK = ?", [first, row[0]])
                    }
                }),
            .lightweight(versionChecksums: [checksum(3), checksum(4)]),
        ]
    }

    private let people = [
        "INSERT INTO ZPERSON (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (1, 1, 1, ' Ada Lovelace'), (2, 1, 1, NULL)"
    ]

    @Test func aCustomStageWorksOnBothVersions() throws {
        let store = try StagedStore(versions[0].model, people)
        let plan = try plan(from: 1, to: 4, stages)
        #expect(plan.steps.map(\.destinationName) == ["V2", "V4"])
        #expect(plan.steps.map { $0.stage?.label } == ["split", nil])
        _ = try MigrationManager(plan).migrate(staged: store.path)
        #expect(try store.rows("SELECT Z_PK, ZFIRST, ZAGE FROM ZPERSON") == ["1 'Ada' NULL", "2 NULL NULL"])
        #expect(try store.differences(from: versions[3].model) == [])
    }

    /// A store passes only through the stages after its own version.
    @Test func laterVersionsSkipEarlierStages() throws {
        #expect(try plan(from: 2, to: 4, stages).steps.map(\.destinationName) == ["V4"])
        #expect(try plan(from: 3, to: 4, stages).steps.map(\.destinationName) == ["V4"])
        #expect(try plan(from: 4, to: 4, stages).steps.isEmpty)
        #expect(try plan(from: 1, to: 3, stages).steps.map(\.destinationName) == ["V2", "V3"])
    }

    @Test func refusesStagesThatDoNotLeadToTheTarget() throws {
        func code(_ body: () throws -> MigrationPlan) -> Int? {
            (#expect(throws: MigrationError.self) { _ = try body() })?.code
        }
        #expect(code { try plan(from: 4, to: 1, stages) } == CoreDataError.backwardMigration)
        let short = [MigrationStage.lightweight(versionChecksums: [checksum(2), checksum(3)])]
        #expect(code { try plan(from: 1, to: 3, short) } == CoreDataError.modelReferenceNotFound)
        #expect(code { try plan(from: 2, to: 4, short) } == CoreDataError.modelReferenceNotFound)
        let twice = [MigrationStage.lightweight(versionChecksums: [checksum(1), checksum(2), checksum(1)])]
        #expect(code { try plan(from: 1, to: 2, twice) } == CoreDataError.migration)
        #expect(code { try plan(from: 1, to: 2, []) } == CoreDataError.migration)
        let unknown = [
            MigrationStage.custom(from: checksum(1), to: "nobody's"),
            .custom(from: "nobody's", to: checksum(2)),
        ]
        #expect(code { try plan(from: 1, to: 2, unknown) } == CoreDataError.modelReferenceNotFound)
    }

    @Test func failsWhenAHandlerThrows() throws {
        struct Refusal: Error {}
        let store = try StagedStore(versions[0].model, people)
        let refusing = [
            MigrationStage.custom(from: checksum(1), to: checksum(2), willMigrate: { _ in throw Refusal() })
        ]
        let wrong = [
            MigrationStage.custom(
                from: checksum(1), to: checksum(2), didMigrate: { try $0.execute("UPDATE ZPERSON SET ZNOTHING = 1") })
        ]
        for stages in [refusing, wrong] {
            let error = #expect(throws: MigrationError.self) {
                _ = try MigrationManager(plan(from: 1, to: 2, stages)).migrate(staged: store.path)
            }
            #expect(error?.code == CoreDataError.migration)
        }
    }
}
