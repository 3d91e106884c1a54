import Foundation
import LinuxSystem
import PersistentStore
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelocation

@Suite struct StoreSightingTests {
    private let root: TemporaryDirectory
    private let store: StoreLocation

    init() throws {
        root = try TemporaryDirectory()
        store = StoreLocation(
            directory: try Directory(root.path), name: try #require(StoreName("Notes.sqlite")))
    }

    /// A program's last connection removes them between our look and our question.
    @Test func aSideFileThatIsGoneIsNotCalledUnwritable() throws {
        for file in [store.name.database, store.name.wal, store.name.sharedMemory] {
            try Data([1]).write(to: URL(filePath: store.directory.path.appending(file).string))
        }
        let seen = try StoreSighting(store)
        #expect(seen.wal != nil)
        try store.directory.removeFile(store.name.wal)
        try store.directory.removeFile(store.name.sharedMemory)
        #expect(try seen.unwritableFile() == nil)
    }
}
