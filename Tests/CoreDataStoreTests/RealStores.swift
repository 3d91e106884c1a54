import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage
import Testing

/// The stores and models of real apps in `$GROUPSTORE_REAL_STORES`.
enum RealStores {
    static let directory = getenv("GROUPSTORE_REAL_STORES").map { FilePath(String(cString: $0)) }

    static func all() throws -> [FilePath] {
        try files { path in
            guard FileStatus(following: path)?.kind == .regular else { return false }
            let file = try Descriptor(opening: path, flags: O_RDONLY)
            return try file.read(count: 16, at: 0) == Array("SQLite format 3\0".utf8)
        }
    }

    static func files(_ matches: (FilePath) throws -> Bool) rethrows -> [FilePath] {
        var found: [FilePath] = []
        var stack = directory.map { [$0] } ?? []
        while let next = stack.popLast() {
            for name in (try? Directory(next).names()) ?? [] {
                let path = next.appending(name)
                if FileStatus(following: path)?.kind == .directory { stack.append(path) }
                if try matches(path) { found.append(path) }
            }
        }
        return found.sorted { $0.string < $1.string }
    }

    static func location(_ path: FilePath) throws -> StoreLocation {
        StoreLocation(
            directory: try Directory(path.removingLastComponent()),
            name: try #require(path.lastComponent.flatMap(StoreName.init)))
    }
}
