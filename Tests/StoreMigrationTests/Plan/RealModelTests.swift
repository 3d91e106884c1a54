import Glibc
import LinuxSystem
import ManagedObjectModels
import SystemPackage
import Testing

@testable import StoreMigration

private let directory = getenv("GROUPSTORE_REAL_STORES").map { FilePath(String(cString: $0)) }

/// Checks models that apps have shipped, in `$GROUPSTORE_REAL_STORES`.
@Suite(.enabled(if: directory != nil, "GROUPSTORE_REAL_STORES is not set"))
struct RealModelTests {
    private static func bundles() -> [FilePath] {
        var found: [FilePath] = []
        var pending = directory.map { [$0] } ?? []
        while let next = pending.popLast() {
            for name in (try? Directory(next).names()) ?? [] {
                let path = next.appending(name)
                if ["xcdatamodeld", "momd"].contains(name.extension) { found.append(path) }
                if FileStatus(following: path)?.kind == .directory { pending.append(path) }
            }
        }
        return found.sorted { $0.string < $1.string }
    }

    private static func check(_ old: ModelVersion, _ new: ModelVersion) -> MigrationCheck {
        MigrationCheck(
            from: old.model, hashes: old.model.entityVersionHashesByName, to: new.model, named: new.name)
    }

    /// Checks from each version to the next one, back, and to the last one. Each refusal has a reason.
    @Test func checksEveryPairOfVersions() throws {
        let bundles = Self.bundles()
        try #require(!bundles.isEmpty)
        for path in bundles {
            let versions = try ModelBundle(reading: path).versions
            let forward = zip(versions, versions.dropFirst()).map { ($0, $1) }
            let last = versions.suffix(1)
            let pairs = forward + forward.map { ($1, $0) } + versions.flatMap { old in last.map { (old, $0) } }
            for (old, new) in pairs {
                let check = Self.check(old, new)
                if case .refused = check.verdict {
                    #expect(check.findings.contains { $0.severity == .error }, "\(path) \(old.name) \(new.name)")
                }
                #expect((check.verdict == .compatible) == check.differingEntities.isEmpty)
                if old.name == new.name { #expect(check.verdict == .compatible) }
            }
        }
    }

    /// An inferred mapping accounts for every entity of both models once.
    @Test func everyEntityIsMapped() throws {
        for path in Self.bundles() {
            let versions = try ModelBundle(reading: path).versions
            for (old, new) in zip(versions, versions.dropFirst()) {
                guard case .inferred(let mapping) = Self.check(old, new).verdict else { continue }
                #expect(
                    mapping.entityMappings.compactMap(\.sourceEntityName).sorted()
                        == old.model.entities.map(\.name).sorted())
                #expect(
                    mapping.entityMappings.compactMap(\.destinationEntityName).sorted()
                        == new.model.entities.map(\.name).sorted())
            }
        }
    }
}
