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

    /// A process that has many stores open, with renamed logs. Comparing each file with all others took minutes here,
    /// and a watch was late for all that happened meanwhile.
    @Test func looksAtManyStoresOfOneProcessInTime() throws {
        let files = (0..<1500).map { number in
            HeldFile(
                descriptor: 3 + Int32(number), identity: FileIdentity(device: 1, inode: 100 + UInt64(number)),
                path: FilePath("/a/\(number / 3).db\(["", "-wal.bak", "-shm.bak"][number % 3])"))
        }
        let sides = Dictionary(
            uniqueKeysWithValues: files.enumerated().compactMap { index, file in
                [1: HeldStore.Side.log, 2: .index][index % 3].map { (file.identity, $0) }
            })
        let start = ContinuousClock.now
        for number in [0, 499] {
            let (database, own) = (files[3 * number], files[3 * number + 1])
            let named = NamedFiles(
                path: database.path, directory: Self.directory, database: database.identity, log: nil, index: nil)
            // What was seen at the store's names: its own.
            let known = sides.filter { [own.identity, files[3 * number + 2].identity].contains($0.key) }
            let holder = StoreHolderFiles(
                pid: 7, files: files, directories: ["/a": Self.directory],
                present: Dictionary(uniqueKeysWithValues: files.map { ($0.path, $0.identity) }), sides: known)
            let found = HazardDecision(named, [holder]).sightings
            #expect(found.map(\.code) == [.orphanedLog] && found.first?.identity == own.identity)
            let lost = HeldStore(.orphanedLog, own, among: files, named) { known[$0.identity] }
            #expect(lost?.database == database && lost?.log == own && lost?.index == files[3 * number + 2])
        }
        #expect(start.duration(to: .now) < .seconds(10))
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
