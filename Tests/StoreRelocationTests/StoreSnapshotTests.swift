import Foundation
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelocation

@Suite struct StoreSnapshotTests {
    private let root: TemporaryDirectory
    private let store: StoreLocation

    init() throws {
        root = try TemporaryDirectory()
        store = StoreLocation(
            directory: try Directory(root.path), name: try #require(StoreName("Notes.sqlite")))
    }

    /// A program's last connection removes side files between the snapshot and the check.
    @Test func ignoresRemovedSideFiles() throws {
        for file in [store.name.database, store.name.wal, store.name.sharedMemory] {
            try Data([1]).write(to: URL(filePath: store.directory.path.appending(file).string))
        }
        let seen = try StoreSnapshot(store)
        #expect(seen.wal != nil)
        try store.directory.removeFile(store.name.wal)
        try store.directory.removeFile(store.name.sharedMemory)
        #expect(try seen.unwritableFile() == nil)
    }

    /// A kernel may give two writes within 10 ms the same time.
    @Test func waitsForATimeThatAnyLaterWriteChanges() throws {
        let file = try store.directory.open(store.name.database, flags: O_RDWR | O_CREAT, mode: 0o600)
        try file.write([UInt8](repeating: 0, count: 100), at: 0, path: store.path)
        let fingerprint = try #require(try DatabaseFingerprint.settled(file, path: store.path))
        #expect(FileTime.isSettled(fingerprint.modified))
        #expect(try DatabaseFingerprint(file, path: store.path) == fingerprint)
    }

    @Test func detectsMissingPages() throws {
        try run("sqlite3", [Word(store.path), "CREATE TABLE note (text)"])
        try StoreSnapshot(store).checkWhole()
        let size = try #require(try store.directory.status(store.name.database)?.size)
        truncate(store.path.string, off_t(size) - 1)
        #expect(throws: StoreContents.Unreadable.self) { try StoreSnapshot(store).checkWhole() }
    }

    /// The header may be on disk before the last pages.
    @Test(arguments: ["DELETE", "WAL"]) func acceptsAStoreInCreation(_ mode: String) throws {
        let script = """
            for i in $(seq 200); do
                sqlite3 Notes.sqlite 'PRAGMA synchronous = OFF; PRAGMA journal_mode = \(mode); CREATE TABLE note (text)' && rm Notes.sqlite
            done
            """
        let maker = try RunningProcess("sh", ["-c", Word("cd '\(root.path)' && \(script)")])
        while try !maker.hasEnded(within: .zero) { try StoreSnapshot(store).checkWhole() }
        #expect(try maker.wait().status == 0)
    }
}
