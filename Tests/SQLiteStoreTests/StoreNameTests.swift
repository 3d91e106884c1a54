import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

/// The names that a store may have, and the files that it may find under its other names.
@Suite struct StoreNameTests {
    let scratch: TemporaryDirectory
    let directory: Directory

    init() throws {
        scratch = try TemporaryDirectory()
        directory = try Directory(scratch.path)
    }

    @Test(arguments: [
        "Notes.sqlite-wal", "Notes.sqlite-shm", "Notes.sqlite-journal", "Notes.sqlite-WAL", "-journal", ".groupstore",
        ".groupstore-removal", ".Notes_SUPPORT", ".notes_support", "..", ".", String(repeating: "a", count: 248),
    ])
    func refusesANameOfOtherFiles(_ name: String) throws {
        let component = try #require(FilePath.Component(bytes: name.utf8))
        #expect(StoreName(component) == nil)
    }

    @Test(arguments: ["Notes.sqlite", "wal", "Notes-wal.sqlite", ".hidden", "_SUPPORT", "Notes.sqlite-journal2"])
    func acceptsOtherNames(_ name: String) throws {
        #expect(StoreName(try #require(FilePath.Component(bytes: name.utf8))) != nil)
    }

    /// A database that already has such a name can be read, and moved to another one.
    @Test func describesAnExistingDatabaseOfAnyName() throws {
        #expect(StoreName.existing("Notes.sqlite-wal")?.wal == "Notes.sqlite-wal-wal")
        #expect(try StoreName.existing(#require(FilePath.Component(String(repeating: "a", count: 248)))) == nil)
    }

    @Test(arguments: ["Notes.sqlite-wal", "Notes.sqlite-journal", "Notes.sqlite-shm"])
    func findsADatabaseInPlaceOfASideFile(_ name: String) throws {
        let location = StoreLocation(directory: directory, name: try #require(StoreName("Notes.sqlite")))
        let component = try #require(FilePath.Component(name))
        // A log, a journal or a wal-index is none.
        try DurableFile.write([0x37, 0x7F, 0x06, 0x82, 0, 0x2D, 0xE2, 0x18], as: component, in: directory, mode: 0o600)
        #expect(try location.databaseInPlaceOfSideFile() == nil)
        let database = Array("SQLite format 3\0".utf8) + [UInt8](repeating: 0, count: 4080)
        try DurableFile.write(database, as: component, in: directory, mode: 0o600)
        #expect(try location.databaseInPlaceOfSideFile() == scratch.path.appending(name))
        try DurableFile.write(database, as: "Notes.sqlite", in: directory, mode: 0o600)
        #expect(throws: StoreError.sideFileIsDatabase(scratch.path.appending(name))) {
            try StoreConnection(location, busyTimeout: .zero)
        }
        #expect(try directory.status(component)?.size == Int64(database.count))
    }
}
