import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteFormat
import SQLiteStore
import StoreMigration
import StoreRelocation
import Synchronization
import SystemPackage
import TestSupport
import Testing

/// A migration is planned once, and the plan is carried through.
@Suite struct MigrationPlanTests {
    private func version(_ name: String, _ attributes: String...) throws -> ModelVersion {
        var note = EntityDescription(name: "Note")
        note.attributes = attributes.map { name in
            var attribute = AttributeDescription(name: name, type: .string)
            attribute.isOptional = true
            return attribute
        }
        return ModelVersion(name: name, model: try ManagedObjectModel(entities: [note]), path: "/Notes.xcdatamodeld")
    }

    private func bundle(_ versions: ModelVersion...) throws -> ModelBundle {
        try #require(ModelBundle(path: "/Notes.xcdatamodeld", versions: versions, currentName: nil))
    }

    /// Runs a relocation, and returns how many mappings were inferred meanwhile.
    private func inferences(
        expecting outcome: RelocationSummary.Outcome, _ body: () throws -> RelocationSummary
    ) rethrows -> Int {
        let count = Mutex(0)
        let summary = try InferenceObservation.$willInfer.withValue({ count.withLock { $0 += 1 } }) { try body() }
        #expect(summary.outcome == outcome)
        return count.withLock { $0 }
    }

    @Test func tellsWhetherContentMayBeRemoved() throws {
        let models = try [version("Notes", "title"), version("Notes 2", "title", "url"), version("Notes 3", "url")]
            .map(\.model)
        func plan(_ old: Int, _ new: Int) throws -> MigrationPlan {
            try MigrationPlan(from: models[old], to: models[new], named: "new")
        }
        let (none, one, other) = try (plan(0, 0), plan(0, 1), plan(1, 2))
        #expect(none.steps.isEmpty && !none.mayRemoveContent)
        #expect(one.steps.count == 1 && !one.mayRemoveContent)
        #expect(other.steps.count == 1 && other.mayRemoveContent)
    }

    @Test func aMigrationInPlaceInfersItsMappingOnce() async throws {
        let root = try TemporaryDirectory()
        let store = root.path.appending("Notes.sqlite")
        let (old, new) = (try version("Notes", "title"), try version("Notes 2", "title", "url"))
        _ = try await bundle(old).prepareStore(at: store)
        var request = RelocationRequest(source: store, group: root.path)
        request.deadline = .ample
        request.transform = try MigrationTransform(MigrationRequest(new.path), to: new, in: bundle(old, new))
        let count = try inferences(expecting: .migrated) { try Relocation(request).transform() }
        #expect(count == 1)
    }

    /// Another program may migrate a store after it was planned for.
    @Test func aStoreOfAnotherModelThanPlannedForIsPlannedAgain() async throws {
        let root = try TemporaryDirectory()
        let store = root.path.appending("Notes.sqlite")
        let location = StoreLocation(
            directory: try Directory(root.path), name: try #require(StoreName("Notes.sqlite")))
        let versions = try [
            version("Notes", "title"), version("Notes 2", "title", "url"), version("Notes 3", "title", "url", "tag"),
        ]
        let all = try bundle(versions[0], versions[1], versions[2])
        _ = try await bundle(versions[0]).prepareStore(at: store)
        let transform = try MigrationTransform(MigrationRequest(versions[2].path), to: versions[2], in: all)
            .planned(for: location)
        let plan = try transform.plan(for: location)
        #expect(plan?.sourceName == "Notes")
        _ = try await bundle(versions[0], versions[1]).prepareStore(at: store)
        let other = try transform.plan(for: location)
        #expect(other?.sourceName == "Notes 2")
        #expect(other?.steps.first?.source == versions[1].model)
    }

    @Test(arguments: [false, true]) func aRelocationInfersItsMappingOnce(isDryRun: Bool) async throws {
        let root = try TemporaryDirectory()
        let top = try Directory(root.path)
        for name: FilePath.Component in ["legacy", "group"] { try top.makeDirectory(name, mode: 0o700) }
        let store = root.path.appending("legacy").appending("Notes.sqlite")
        let old = try version("Notes", "title")
        let new = try version("Notes 2", "title", "url")
        _ = try await bundle(old).prepareStore(at: store)
        do {
            let writer = try StoreWriter(store)
            try writer.execute("INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTITLE) VALUES (1, 1, 1, 'x')")
            try writer.execute("UPDATE Z_PRIMARYKEY SET Z_MAX = 1")
        }
        var request = RelocationRequest(source: store, group: root.path.appending("group"))
        request.deadline = .ample
        request.transform = try MigrationTransform(MigrationRequest(new.path), to: new, in: bundle(old, new))
        let relocation = Relocation(request)
        let count = try inferences(expecting: .relocated) { try isDryRun ? relocation.dryRun() : relocation.run() }
        #expect(count == 1)
    }

    /// A mapping model that can't be read is in nobody's way as long as no migration is needed.
    @Test func anUpToDateStoreNeedsNoMappingModel() async throws {
        let root = try TemporaryDirectory()
        let store = root.path.appending("Notes.sqlite")
        let model = try bundle(version("Notes", "title"))
        _ = try await model.prepareStore(at: store)
        try DurableFile.write(Array("no mapping".utf8), as: "Broken.yaml", in: Directory(root.path), mode: 0o600)
        var options = StoreOptions()
        options.mappingModels = [root.path.appending("Broken.yaml")]
        #expect(try await model.prepareStore(at: store, options: options) == .upToDate)
    }

    private final class ShoutingPolicy: EntityMigrationPolicy {
        override func value(
            forSelector selector: String, arguments: [PolicyArgument], manager: MigrationSession
        ) throws -> PolicyArgument {
            guard case .value(let title)? = arguments.first else { return .value(nil) }
            return .value(title?.stringValue.map { .string($0.uppercased()) })
        }
    }

    /// An app's mapping model and policy are used, and a policy that the app doesn't give is refused.
    @Test func anAppGivesMappingModelsAndPolicies() async throws {
        let root = try TemporaryDirectory()
        let store = root.path.appending("Notes.sqlite")
        let old = try version("Notes", "title")
        let new = try version("Notes 2", "title", "url")
        _ = try await bundle(old).prepareStore(at: store)
        do {
            let writer = try StoreWriter(store)
            try writer.execute("INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTITLE) VALUES (1, 1, 1, 'x')")
            try writer.execute("UPDATE Z_PRIMARYKEY SET Z_MAX = 1")
        }
        let mapping = """
            mapping: 1
            entities:
              - from: Note
                to: Note
                policy: App.ShoutingPolicy
                attributes:
                  title: FUNCTION($entityPolicy, "shout:", $source.title)
            """
        try DurableFile.write(Array(mapping.utf8), as: "Loud.yaml", in: Directory(root.path), mode: 0o600)
        var options = StoreOptions()
        options.mappingModels = [root.path.appending("Loud.yaml")]
        options.infersMappingModelAutomatically = false
        await #expect(throws: StorePreparationError.self) {
            try await bundle(old, new).prepareStore(at: store, options: options)
        }
        options.policies = ["App.ShoutingPolicy": ShoutingPolicy.self]
        let preparation = try await bundle(old, new).prepareStore(at: store, options: options)
        guard case .migrated(through: ["Notes 2"], _) = preparation else {
            Issue.record("\(preparation)")
            return
        }
        let directory = try Directory(root.path)
        let location = StoreLocation(directory: directory, name: try #require(StoreName("Notes.sqlite")))
        #expect(try StoreReader.read(location) { try $0.text("SELECT ZTITLE FROM ZNOTE") } == "X")
    }
}
