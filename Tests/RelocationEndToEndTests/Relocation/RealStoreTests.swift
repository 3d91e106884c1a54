import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The stores in `$GROUPSTORE_REAL_STORES`, all written by apps.
enum RealStores {
    static let directory = getenv("GROUPSTORE_REAL_STORES").map { FilePath(String(cString: $0)) }

    /// Throws if the directory has no store.
    static func all() throws -> [StoreFiles] {
        guard let directory else { return [] }
        var found: [FilePath] = []
        try collect(Directory(directory), &found)
        guard !found.isEmpty else { throw Unexpected("no store in \(directory)") }
        return try found.sorted { $0.string < $1.string }.map { try StoreFiles($0) }
    }

    private static func collect(_ directory: Directory, _ found: inout [FilePath]) throws {
        for name in try directory.names() {
            switch try directory.status(name)?.kind {
            case .directory?: try collect(directory.directory(name), &found)
            case .regular?:
                let file = try Descriptor(opening: directory.path.appending(name), flags: O_RDONLY)
                if try file.read(count: 16, at: 0) == Array("SQLite format 3\0".utf8) {
                    found.append(directory.path.appending(name))
                }
            default: break
            }
        }
    }
}

@Suite(.ownThreads, .enabled(if: RealStores.directory != nil, "GROUPSTORE_REAL_STORES is not set"))
struct RealStoreTests {
    private struct Content: Equatable {
        let dump: String
        let support: DirectorySnapshot?

        init(_ store: StoreFiles) throws {
            dump = try store.dump()
            support = try store.supportSnapshot()
        }
    }

    @Test(arguments: try RealStores.all(), Places.FileSystem.allCases)
    func theCommandRelocatesEveryStore(_ original: StoreFiles, _ fileSystem: Places.FileSystem) throws {
        let places = try Places(fileSystem)
        let legacy = try original.copy(to: places.legacy)
        let content = try Content(legacy)

        let done = try groupstore("relocate", Word(legacy.path), Word(places.group), "--json")
        #expect(done.status == 0, "\(original.path): \(done.errors)")
        #expect(done.outcome == "relocated")
        #expect(done.summary.string("method") == (fileSystem == .same ? "rename" : "copy"))
        let published = try StoreFiles(places.group.appending(legacy.name.database))
        #expect(try holdsLinkAlone(places.legacy, to: published.path))
        #expect(try Content(published) == content, "\(original.path)")

        let again = try groupstore("relocate", Word(legacy.path), Word(places.group), "--json")
        #expect(again.status == 0, "\(again.errors)")
        #expect(["already_relocated", "nothing_to_do"].contains(again.outcome))
        #expect(try Content(published) == content)
    }

    @Test(.soak, arguments: try RealStores.all(), Places.FileSystem.allCases)
    func theAgentRelocatesEveryStore(_ original: StoreFiles, _ fileSystem: Places.FileSystem) throws {
        let places = try Places(fileSystem)
        let legacy = try original.copy(to: places.legacy)
        let content = try Content(legacy)

        let agent = try AgentProcess(places, legacy: [legacy.path])
        try awaitRetirement(of: legacy, agent)
        #expect(try agent.stop().status == 0)
        let published = try StoreFiles(places.group.appending(legacy.name.database))
        #expect(try Content(published) == content, "\(original.path)")

        let again = try groupstore("relocate", Word(legacy.path), Word(places.group), "--json")
        #expect(["already_relocated", "nothing_to_do"].contains(again.outcome), "\(again.output)")
        #expect(again.status == 0)
    }
}
