import GRDB
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelocation

/// An interrupted transfer whose places differ from those in its journal: after a boot that renumbered the devices, or
/// restored from a backup.
@Suite struct RestoredPlacesTests {
    private let rig: TransferRig
    private var container: GroupContainer { rig.container }
    private var legacy: StoreLocation { rig.legacy }

    init() throws { rig = try TransferRig() }

    private func makeStore(_ text: String, at path: FilePath) throws {
        let queue = try DatabaseQueue(path: path.string)
        try queue.write {
            try $0.execute(sql: "CREATE TABLE note (text TEXT); INSERT INTO note VALUES (?)", arguments: [text])
        }
        try queue.close()
    }

    private func text(at path: FilePath) throws -> String? {
        let queue = try DatabaseQueue(path: path.string)
        defer { try? queue.close() }
        return try queue.read { try String.fetchOne($0, sql: "SELECT text FROM note") }
    }

    /// Returns a transfer whose store has lost its old name.
    private func withdrawn(copies: Bool) throws -> (Transfer, TransferPaths) {
        try makeStore("one", at: legacy.path)
        var transfer = Transfer(
            id: TransferIdentifier(), purpose: .publish(as: StoredPath("Notes.sqlite")),
            directory: legacy.directory.path, name: legacy.name.database,
            database: try #require(try legacy.directory.identity(legacy.name.database)), support: nil, copies: copies,
            retirement: .delete, hadWAL: false)
        transfer.sourceDirectory = legacy.directory.identity
        transfer.databaseBirth = legacy.directory.birth(legacy.name.database)
        transfer.destinationDirectory = container.directory.identity
        let paths = try TransferPaths(transfer, source: legacy, container: container)
        try legacy.directory.rename(legacy.name.database, to: paths.hidden, in: legacy.directory, .refuse)
        try legacy.directory.makeDirectory(legacy.name.database, mode: 0o700)
        return (transfer, paths)
    }

    private func recover(_ transfer: Transfer, _ state: TransferState) throws {
        try container.write(TransferJournal(transfer: transfer, state: state))
        try Recovery(container: container, report: { _ in }).run()
        #expect(try container.journal() == nil)
    }

    private func renumbered(_ file: FileIdentity?) -> FileIdentity? {
        file.map { FileIdentity(device: $0.device + 1, inode: $0.inode) }
    }

    @Test(arguments: [false, true])
    func recognizesAStoreOnARenumberedDevice(isCommitting: Bool) throws {
        var (transfer, _) = try withdrawn(copies: false)
        let database = transfer.database
        transfer.database = try #require(renumbered(database))
        transfer.sourceDirectory = renumbered(transfer.sourceDirectory)
        transfer.destinationDirectory = renumbered(transfer.destinationDirectory)
        try recover(
            transfer,
            isCommitting ? .committing(database: transfer.database, support: nil, receipt: nil) : .withdrawn)
        #expect(try legacy.directory.identity(legacy.name.database) == database)
        #expect(try legacy.directory.names() == ["Notes.sqlite"])
    }

    @Test(arguments: [false, true])
    func recognizesAStoreInACopyOfItsDirectory(isCommitting: Bool) throws {
        var (transfer, _) = try withdrawn(copies: false)
        transfer.database.inode += 1
        transfer.sourceDirectory?.inode += 1
        try recover(
            transfer,
            isCommitting ? .committing(database: transfer.database, support: nil, receipt: nil) : .withdrawn)
        #expect(try legacy.directory.names() == ["Notes.sqlite"])
        #expect(try text(at: legacy.path) == "one")
    }

    /// The group was restored from a snapshot. Its copy is the only one, and another program has created a store since.
    @Test func keepsACopyIfAnotherStoreHasTheOldName() throws {
        let (transfer, paths) = try withdrawn(copies: true)
        let staging = try paths.staging()
        try makeStore("one", at: staging.path.appending(legacy.name.database))
        try legacy.directory.removeFile(paths.hidden)
        try legacy.directory.removeDirectory(legacy.name.database)
        try makeStore("two", at: legacy.path)
        try recover(transfer, .withdrawn)
        let archive = container.archivePath(transfer.id)
        #expect(try text(at: archive.appending(legacy.name.database)) == "one")
        #expect(try text(at: legacy.path) == "two")
        #expect(try #require(try container.existingArchive(transfer.id)).status("about.json") != nil)
    }

    /// The group was copied before the store arrived there: only the old store is left.
    @Test func keepsTheOldStoreIfTheGroupHasNone() throws {
        var (transfer, paths) = try withdrawn(copies: true)
        _ = try paths.staging()
        transfer.destinationDirectory?.inode += 1
        try recover(
            transfer,
            .committing(database: FileIdentity(device: 1, inode: 1), support: nil, receipt: nil))
        #expect(try text(at: legacy.path) == "one")
        #expect(try container.directory.names() == [".groupstore"])
    }
}
