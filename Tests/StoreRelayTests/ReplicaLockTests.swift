import Glibc
import LinuxSystem
import SQLiteFormat
import StoreReplication
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelay

/// One program at a time follows or promotes a replica.
@Suite struct ReplicaLockTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    private func location(in path: FilePath? = nil) throws -> StoreLocation {
        let name = try #require(StoreName("Notes.sqlite"))
        return StoreLocation(directory: try Directory(resolving: path ?? directory.path), name: name)
    }

    @Test func refusesASecondProgramAndNamesTheFirst() throws {
        // Nothing was followed here: what is promoted is no replica, and nothing is put beside it.
        #expect(try ReplicaLock.ifFollowed(location(), within: .zero) == nil)
        #expect(try Directory(directory.path).names().isEmpty)
        let link = directory.path.appending("link")
        #expect(symlink(directory.path.string, link.string) == 0)
        do {
            let lock = try ReplicaLock(location(), within: .zero)
            try withExtendedLifetime(lock) {
                for path in [directory.path, link] {
                    let error = ReplicationError.inUse(by: "\(getpid())", try location(in: path).path)
                    #expect(throws: error) { try ReplicaLock(location(in: path), within: .zero) }
                    #expect(throws: error) { try ReplicaLock.ifFollowed(location(in: path), within: .zero) }
                }
            }
        }
        let lock = try ReplicaLock.ifFollowed(location(in: link), within: .zero)
        #expect(lock != nil)
    }
}
