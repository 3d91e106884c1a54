import FoundationEssentials
import Glibc
import LinuxSystem
import SystemPackage
import Testing
import XMLDocuments

@testable import ManagedObjectModels
@testable import PropertyLists

enum RealModels {
    static let directory = getenv("GROUPSTORE_REAL_STORES").map { FilePath(String(cString: $0)) }
}

/// The models of real apps in `$GROUPSTORE_REAL_STORES`.
@Suite(.enabled(if: RealModels.directory != nil, "GROUPSTORE_REAL_STORES is not set"))
struct RealModelTests {
    static func all(_ kind: String) -> [FilePath] {
        var found: [FilePath] = []
        var stack = RealModels.directory.map { [$0] } ?? []
        while let next = stack.popLast() {
            for name in (try? Directory(next).names()) ?? [] {
                let path = next.appending(name)
                if name.extension == kind { found.append(path) }
                if FileStatus(following: path)?.kind == .directory { stack.append(path) }
            }
        }
        return found.sorted { $0.string < $1.string }
    }

    @Test func readsEveryModel() throws {
        let bundles = Self.all("xcdatamodeld") + Self.all("momd") + Self.all("xcdatamodel") + Self.all("mom")
        try #require(!bundles.isEmpty)
        for path in bundles {
            let bundle = try ModelBundle(reading: path)
            for version in bundle.versions {
                #expect(!version.model.entities.isEmpty, "\(path)")
                #expect(version.model.entityVersionHashesByName.count == version.model.entities.count)
            }
        }
    }

    /// `VersionInfo.plist` beside a compiled model contains the hashes that Xcode computed.
    @Test func computesTheHashesOfVersionInfo() throws {
        let bundles = Self.all("momd")
        try #require(!bundles.isEmpty)
        for path in bundles {
            let bytes = try Array(Data(contentsOf: URL(filePath: path.appending("VersionInfo.plist").string)))
            let list = try #require(try PropertyListValue(parsing: bytes).dictionary)
            let versions = try #require(list["NSManagedObjectModel_VersionHashes"]?.dictionary)
            let checksums = list["NSManagedObjectModel_VersionChecksums"]?.dictionary ?? [:]
            let bundle = try ModelBundle(reading: path)
            #expect(bundle.current.name == list["NSManagedObjectModel_CurrentVersionName"]?.string)
            #expect(Set(bundle.versions.map(\.name)) == Set(versions.keys))
            for version in bundle.versions {
                let expected = try #require(versions[version.name]?.dictionary).mapValues { $0.data ?? [] }
                #expect(version.model.entityVersionHashesByName == expected, "\(path) \(version.name)")
                if let checksum = checksums[version.name] {
                    #expect(.string(version.model.versionChecksum) == checksum)
                }
            }
        }
    }

    /// A source and its compiled model are equal in everything that both record.
    @Test func readsCompiledModelsLikeTheirSources() throws {
        for path in Self.all("momd") {
            let name = try #require(path.stem)
            guard let source = Self.all("xcdatamodeld").first(where: { $0.stem == name }) else { continue }
            let sources = try ModelBundle(reading: source)
            for compiled in try ModelBundle(reading: path).versions {
                let original = try #require(sources.versions.first { $0.name == compiled.name })
                #expect(compiled.model.comparable == original.model.comparable, "\(path) \(compiled.name)")
            }
        }
    }
}

extension ManagedObjectModel {
    /// The entities in one order, without settings that only one of the two formats records.
    fileprivate var comparable: [EntityDescription] {
        entities.map { entity in
            var entity = entity
            entity.attributes = entity.attributes.map { attribute in
                var attribute = attribute
                attribute.usesScalarValueType = nil
                attribute.valueClassName = nil
                return attribute
            }.sorted { $0.name < $1.name }
            entity.relationships.sort { $0.name < $1.name }
            return entity
        }
    }
}
