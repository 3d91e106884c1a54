import SystemPackage
import Testing

@testable import ManagedObjectModels

@Suite struct MergedModelBundleTests {
    private func version(
        _ name: String, _ entities: [String], configurations: [String: [String]] = [:], type: AttributeType = .string
    ) throws -> ModelVersion {
        let entities = entities.map { name in
            var entity = EntityDescription(name: name)
            entity.attributes = [AttributeDescription(name: "x", type: type)]
            return entity
        }
        return ModelVersion(
            name: name, model: try ManagedObjectModel(entities: entities, configurations: configurations),
            path: FilePath("/" + name))
    }

    private func bundle(_ path: FilePath, _ versions: [ModelVersion], current: String? = nil) throws -> ModelBundle {
        try #require(ModelBundle(path: path, versions: versions, currentName: current))
    }

    @Test func mergesEveryCombinationOfVersions() throws {
        let notes = try bundle(
            "/Notes.xcdatamodeld", [version("Notes", ["Note"]), version("Notes 2", ["Note", "Page"])],
            current: "Notes 2")
        let tags = try bundle("/Tags.xcdatamodeld", [version("Tags", ["Tag"]), version("Tags 2", ["Tag", "Word"])])
        let merged = try ModelBundle(merging: [notes, tags])
        #expect(
            merged.versions.map(\.name)
                == ["Notes + Tags", "Notes + Tags 2", "Notes 2 + Tags", "Notes 2 + Tags 2"])
        #expect(merged.current.name == "Notes 2 + Tags 2")
        #expect(merged.current.model.entities.map(\.name) == ["Note", "Page", "Tag", "Word"])
        #expect(merged.paths == ["/Notes.xcdatamodeld", "/Tags.xcdatamodeld"])
        let store = try ManagedObjectModel(
            merging: [notes.versions[0].model, tags.versions[1].model]).entityVersionHashesByName
        #expect(merged.versions(matching: store).map(\.name) == ["Notes + Tags 2"])
        #expect(try ModelBundle(merging: [notes]).versions.map(\.name) == ["Notes", "Notes 2"])
    }

    @Test func namesTheEntityAndTheModelsThatClash() throws {
        let notes = try bundle("/Notes.xcdatamodeld", [version("Notes", ["Note", "Tag"])])
        let tags = try bundle("/Tags.xcdatamodeld", [version("Tags", ["Tag"], type: .integer16)])
        let error = try #require(throws: ModelError.self) { try ModelBundle(merging: [notes, tags]) }
        #expect(error.code == .unmergeable)
        #expect(error.element == "Tag")
        #expect(error.message.contains("/Notes.xcdatamodeld (Notes) and /Tags.xcdatamodeld (Tags)"))
        let same = try bundle("/Same.xcdatamodeld", [version("Same", ["Tag"])])
        #expect(try ModelBundle(merging: [notes, same]).current.model.entities.count == 2)
    }

    @Test func leavesOutCombinationsThatCantHaveExisted() throws {
        let notes = try bundle(
            "/Notes.xcdatamodeld",
            [version("Notes", ["Note", "Tag"], type: .integer16), version("Notes 2", ["Note", "Tag"])],
            current: "Notes 2")
        let tags = try bundle("/Tags.xcdatamodeld", [version("Tags", ["Tag"])])
        #expect(try ModelBundle(merging: [notes, tags]).versions.map(\.name) == ["Notes 2 + Tags"])
    }

    @Test func refusesTooManyCombinations() throws {
        let versions = try (0..<50).map { try version("V\($0)", ["A\($0)"]) }
        let many = try bundle("/A", versions)
        #expect(throws: ModelError.self) { try ModelBundle(merging: [many, many]) }
    }

    @Test func restrictsAModelToAConfiguration() throws {
        let notes = try bundle(
            "/Notes.xcdatamodeld",
            [
                version("Notes", ["Note"]),
                version("Notes 2", ["Note", "Draft"], configurations: ["Local": ["Draft"], "Cloud": ["Note"]]),
            ])
        let local = try notes.restricted(toConfiguration: "Local")
        #expect(local.versions.map(\.name) == ["Notes 2"])
        #expect(local.current.model.entities.map(\.name) == ["Draft"])
        let hash = notes.current.model.entityVersionHashesByName["Draft"]
        #expect(local.current.model.entityVersionHashesByName == ["Draft": hash ?? []])
        let error = try #require(throws: ModelError.self) { try notes.restricted(toConfiguration: "Other") }
        #expect(error.remedy.contains("Cloud, Local"))
    }
}
