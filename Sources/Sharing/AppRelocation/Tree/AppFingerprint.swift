import Glibc
import LinuxSystem
import SQLiteStore
import SystemPackage

/// What a person changes in a directory so that a move of it may end in another way: its names, and its stores with
/// their tables. The commits of its programs, and the files that SQLite makes beside a store, change nothing of it.
package struct AppFingerprint: Hashable, Sendable {
    private struct Store: Hashable {
        let path: [UInt8]
        let identity: FileIdentity
        /// The number that SQLite changes with the tables (https://sqlite.org/fileformat2.html, §1.3.9).
        let schemaCookie: [UInt8]
    }

    private let root: FileIdentity
    private let names: Set<[UInt8]>
    private let stores: Set<Store>

    /// Reads the directory. Returns nil if it isn't there, or can't be read.
    package init?(_ place: FilePath) {
        guard let name = place.lastComponent, let parent = try? Directory(resolving: place.removingLastComponent()),
            let directory = try? parent.directory(name), let root = try? directory.status().identity,
            let names = try? directory.names(), let survey = try? AppSurvey(directory, .names)
        else { return nil }
        self.root = root
        self.names = Set(names.filter { FilePath(root: nil, [$0]).databaseOfSideFile == nil }.map(\.bytes))
        stores = Set(survey.stores.compactMap { Self.store($0, in: directory) })
    }

    private static func store(_ path: FilePath, in root: Directory) -> Store? {
        guard let name = path.lastComponent,
            let file = try? root.descendant(path.removingLastComponent()).open(name, flags: O_RDONLY | O_NONBLOCK),
            let identity = try? file.status().identity, let cookie = try? file.read(count: 4, at: 40)
        else { return nil }
        return Store(path: path.bytes, identity: identity, schemaCookie: cookie)
    }
}
