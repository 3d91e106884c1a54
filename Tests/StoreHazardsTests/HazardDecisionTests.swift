import LinuxSystem
import SystemPackage
import Testing

@testable import StoreHazards

@Suite struct HazardDecisionTests {
    private static let directory = FileIdentity(device: 1, inode: 1)
    private static let journal = FileIdentity(device: 1, inode: 9)
    private let named = NamedFiles(
        path: "/a/app.db", directory: directory, database: FileIdentity(device: 1, inode: 2), log: nil, index: nil,
        journal: journal)

    /// Returns a process that has a database open, and a journal with the inode number of the store's.
    private func codes(
        database: FilePath, journal: FilePath, in directories: [FilePath: FileIdentity]
    ) -> [StoreHazard.Code] {
        let files = [
            HeldFile(descriptor: 3, identity: FileIdentity(device: 1, inode: 5), path: database),
            HeldFile(descriptor: 4, identity: Self.journal, path: journal),
        ]
        return HazardDecision(named, [StoreHolderFiles(pid: 7, files: files, directories: directories)])
            .sightings.map(\.code)
    }

    @Test func ignoresAJournalOfAnotherStoreThatGotItsInodeNumber() {
        let directories: [FilePath: FileIdentity] = [
            "/a": Self.directory, "/b": FileIdentity(device: 1, inode: 3),
        ]
        #expect(codes(database: "/b/app.db", journal: "/b/app.db-journal", in: directories).isEmpty)
        // A database that was renamed has the store's journal.
        #expect(
            codes(database: "/b/old.db", journal: "/a/app.db-journal", in: directories) == [.orphanedDatabase])
        // The process sees the store under another path.
        #expect(
            codes(database: "/mnt/old.db", journal: "/mnt/app.db-journal", in: ["/mnt": Self.directory])
                == [.orphanedDatabase])
        #expect(codes(database: "/c/old.db", journal: "/c/app.db-journal", in: [:]) == [.orphanedDatabase])
    }
}
