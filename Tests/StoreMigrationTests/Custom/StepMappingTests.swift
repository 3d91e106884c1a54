import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import SystemPackage
import TestSupport
import Testing

@testable import MappingModels
@testable import StoreMigration

/// Several mapping models for one step.
@Suite struct StepMappingTests {
    private static let text = "<attribute name='name' optional='YES' attributeType='String'/>"
    private static let old = "<entity name='A'>\(text)</entity><entity name='B'>\(text)</entity>"
    private static let new = old.replacing("'name'", with: "'title'")

    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    private func file(_ name: String, _ content: String, isNamed: Bool = false) throws -> MappingModelFile {
        let path = directory.path.appending(name)
        try TextFile.write("mapping: 1\n" + content, to: path)
        var file = try MappingModelFile(reading: path)
        file.isNamed = isNamed
        return file
    }

    private func entityMapping(_ entity: String, _ value: String = "$source.name") -> String {
        "entities:\n  - {from: \(entity), to: \(entity), attributes: {title: '\(value)'}}\n"
    }

    private func steps(_ files: [MappingModelFile]) throws -> [MigrationStep] {
        try MigrationPlan(from: model(Self.old), to: model(Self.new), named: "new", mappings: files).steps
    }

    private func migrated(_ files: [MappingModelFile]) throws -> [String] {
        let store = try StagedStore(
            Self.old,
            [
                "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (1, 1, 1, 'a')",
                "INSERT INTO ZB (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (1, 2, 1, 'b')",
            ])
        _ = try MigrationManager(MigrationPlan(steps: steps(files))).migrate(staged: store.path)
        return try store.rows("SELECT ZTITLE FROM ZA UNION ALL SELECT ZTITLE FROM ZB")
    }

    @Test func combinesMappingModelsOfSeparateEntities() throws {
        let files = [
            try file("AtoA.mapping.yaml", entityMapping("A")), try file("BtoB.mapping.yaml", entityMapping("B")),
        ]
        #expect(try migrated(files) == ["'a'", "'b'"])
        #expect(try steps(files).map(\.mappingName) == ["AtoA.mapping + BtoB.mapping"])
        let check = try MigrationCheck(
            from: model(Self.old), hashes: model(Self.old).entityVersionHashesByName, to: model(Self.new), named: "new",
            mappings: files)
        #expect(check.mappingNames == ["AtoA.mapping + BtoB.mapping"])
    }

    @Test func refusesMappingModelsThatDisagreeOnAnEntity() throws {
        let files = [
            try file("One.mapping.yaml", entityMapping("A")), try file("Two.mapping.yaml", entityMapping("A", "\"x\"")),
        ]
        let error = #expect(throws: MigrationError.self) { try steps(files) }
        let message = error?.message ?? ""
        #expect(message.contains("One.mapping.yaml") && message.contains("Two.mapping.yaml"), "\(message)")
        #expect(message.contains("both map A") && error?.remedy.contains("--mapping") == true)
        let check = try MigrationCheck(
            from: model(Self.old), hashes: model(Self.old).entityVersionHashesByName, to: model(Self.new), named: "new",
            mappings: files)
        #expect(check.isRefused && check.findings.map(\.message) == [message])
        // Two that agree count as one.
        let same = [files[0], try file("Same.mapping.yaml", entityMapping("A"))]
        #expect(try steps(same).map(\.mappingName) == ["One.mapping"])
    }

    @Test func prefersANamedMappingModelToOnesBesideTheModel() throws {
        let files = [
            try file("Beside.mapping.yaml", entityMapping("A") + "  - {from: B, to: B}\n"),
            try file("Named.mapping.yaml", entityMapping("A", "\"x\"") + "  - {from: B, to: B}\n", isNamed: true),
        ]
        #expect(try migrated(files) == ["'x'", "NULL"])
        let remarks = try steps(files).flatMap(\.remarks)
        #expect(remarks.count == 1 && remarks[0].contains("Beside.mapping.yaml fits the same step"), "\(remarks)")
    }

    // MARK: Names that read as constants

    @Test(arguments: ["no", "Yes", "nil", "true", "false", "null"])
    func reportsAPropertyNamedLikeAConstant(_ name: String) throws {
        let old =
            "<entity name='A'><attribute name='\(name)' optional='YES' attributeType='Boolean'/>\(Self.text)</entity>"
        let new = "<entity name='A'>\(Self.text)</entity>"
        func remarks(_ condition: String) throws -> [String] {
            let mapping = try file("A.mapping.yaml", "entities:\n  - {from: A, to: A, where: '\(condition)'}\n")
            let plan = try MigrationPlan(from: model(old), to: model(new), named: "new", mappings: [mapping])
            let review = try mapping.mappingModel.review(from: model(old), to: model(new)).filter {
                $0.property == name
            }
            #expect(review.count == plan.remarks.count)
            return plan.remarks
        }
        let found = try remarks("\(name) == 1")
        #expect(found.count == 1 && found[0].contains("SELF.\(name)"), "\(found)")
        #expect(try remarks("SELF.\(name) == 1") == [])
        #expect(try remarks("#\(name) == 1") == [])
        #expect(try remarks("name == \"x\"") == [])
    }

    private func version(_ name: String, _ content: String) throws -> ModelVersion {
        ModelVersion(name: name, model: try model(content), path: "/M.xcdatamodeld")
    }

    private static let both = "entities:\n  - {from: C, to: C}\n"

    /// A store of version 2 becomes version 3. An app migrates stores of several versions with the same mapping models.
    @Test(arguments: [
        ("source: M 2\ndestination: M 3\n", both, true), ("source: M 2\ndestination: M 4\n", both, false),
        ("source: M 3\ndestination: M 2\n", both, false), ("destination: M 3\n", both, true), ("", both, true),
        ("source: M\ndestination: M 3\n", "entities:\n  - {from: A, to: A}\n", true),
        ("", "entities:\n  - {from: D, to: D}\n", false),
    ])
    func refusesANamedMappingModelThatFitsNoVersions(_ versions: String, _ content: String, _ fits: Bool) throws {
        let all = try [
            version("M", Self.old), version("M 2", Self.old + "<entity name='C'/>"),
            version("M 3", Self.new + "<entity name='C'/>"),
        ]
        let bundle = ModelBundle(path: "/M.xcdatamodeld", versions: all, currentName: "M 3")
        func use(isNamed: Bool) throws {
            try [file("X.yaml", versions + content, isNamed: isNamed)].requireUse(
                from: ("M 2", all[1].model), to: all[2], in: bundle)
        }
        try use(isNamed: false)
        guard !fits else { return try use(isNamed: true) }
        let error = #expect(throws: MigrationError.self) { try use(isNamed: true) }
        #expect(error?.message.contains("X.yaml isn't used") == true && error?.isOfNamedMapping == true)
    }
}
