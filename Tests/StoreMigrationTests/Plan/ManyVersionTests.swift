import Synchronization
import TestSupport
import Testing

@testable import ManagedObjectModels
@testable import MappingModels
@testable import StoreMigration

/// Ways through a model of many versions.
struct ManyVersionTests {
    typealias Version = (name: String, model: ManagedObjectModel)

    /// Returns versions, each with one more attribute. After each version in `breaks`, an attribute has a type to which
    /// no inferred mapping leads.
    private static func versions(_ count: Int, breaks: [Int] = []) throws -> [Version] {
        try (0..<count).map { number in
            let kind = breaks.filter { $0 < number }.count
            let added = (0...number).map { "<attribute name='a\($0)' optional='YES' attributeType='String'/>" }.joined()
            let types = ["String", "Date", "Binary", "UUID", "URI"]
            return (
                "V\(number)",
                try model(
                    "<entity name='Note'>\(added)<attribute name='kind' optional='YES' "
                        + "attributeType='\(types[kind % types.count])'/></entity>")
            )
        }
    }

    private static func path(
        _ versions: [Version], from index: Int, _ cache: MigrationStepCache
    ) throws -> [String]? {
        try MigrationPath.shortest(
            from: (versions[index].name, versions[index].model), to: versions[versions.count - 1],
            through: Array(versions[(index + 1)..<(versions.count - 1)]), using: cache)?.map(\.destinationName)
    }

    private static func inferences(_ body: () throws -> Void) rethrows -> Int {
        let count = Mutex(0)
        try InferenceObservation.$willInfer.withValue({ count.withLock { $0 += 1 } }) { try body() }
        return count.withLock { $0 }
    }

    @Test func versionsWithoutAWayAreRefusedWithoutAnInferenceForEachPair() throws {
        let versions = try Self.versions(40, breaks: [19])
        let cache = MigrationStepCache()
        let count = try Self.inferences { () throws in
            for index in 0..<39 { #expect(try Self.path(versions, from: index, cache) == (index < 20 ? nil : ["V39"])) }
        }
        // One for each version that leads to the last one, and one for the first that doesn't.
        #expect(count <= 40)
    }

    @Test func aPropertyThatPreventedAnInferenceDoesNotPreventOthers() throws {
        // The fifth break leads back to the first type.
        let versions = try Self.versions(12, breaks: [1, 3, 5, 7, 9])
        let cache = MigrationStepCache()
        for index in 0..<11 {
            let alone = try Self.path(versions, from: index, MigrationStepCache())
            #expect(try Self.path(versions, from: index, cache) == alone)
            #expect((alone != nil) == (index < 2 || index > 9))
        }
    }

    /// A version in between may lack the attribute, so that both types meet in it.
    @Test func aWayLeadsThroughTheOldestVersionThatMakesItShort() throws {
        var versions = try Self.versions(9, breaks: [2, 5])
        let without = try model(
            "<entity name='Note'><attribute name='other' attributeType='Date' optional='YES'/></entity>")
        versions[4] = ("V4", without)
        let cache = MigrationStepCache()
        #expect(try Self.path(versions, from: 0, cache) == ["V4", "V8"])
        #expect(try Self.path(versions, from: 3, cache) == ["V4", "V8"])
        #expect(try Self.path(versions, from: 6, cache) == ["V8"])
    }

    @Test func aStepThatManyWaysShareIsFoundOutOnce() throws {
        let versions = try Self.versions(20)
        let mapping = try YAMLMappingReader.read(
            Array("mapping: 1\nsource: V9\ndestination: V10\nentities:\n  - {from: Note, to: Note}\n".utf8))
        let file = try TemporaryDirectory()
        let path = file.path.appending("Middle.mapping.yaml")
        try TextFile.write(mapping.yaml, to: path)
        let cache = MigrationStepCache([try MappingModelFile(reading: path)])
        let count = try Self.inferences { () throws in
            for index in 0..<19 {
                let names = index < 9 ? ["V9", "V10", "V19"] : index == 9 ? ["V10", "V19"] : ["V19"]
                #expect(try Self.path(versions, from: index, cache) == names)
            }
        }
        #expect(count <= 20)
    }
}
