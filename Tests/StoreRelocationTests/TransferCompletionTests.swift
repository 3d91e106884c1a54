import Foundation
import GRDB
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelocation

/// Findings of the walks of `script/torture`, each reproduced by hand.
@Suite struct TransferCompletionTests {
    private let rig: TransferRig
    private var container: GroupContainer { rig.container }
    private var legacy: StoreLocation { rig.legacy }

    init() throws { rig = try TransferRig() }

    private func makeStore(at store: StoreLocation, _ more: String = "") throws {
        let queue = try DatabaseQueue(path: store.path.string)
        try queue.writeWithoutTransaction {
            try $0.execute(sql: "CREATE TABLE note (text TEXT); INSERT INTO note VALUES ('one'); \(more)")
        }
        try queue.close()
    }

    private func transfer(_ purpose: Transfer.Purpose) throws -> Transfer {
        Transfer(
            id: TransferIdentifier(), purpose: purpose, directory: legacy.directory.path, name: legacy.name.database,
            database: try #require(try legacy.directory.identity(legacy.name.database)), support: nil, copies: false,
            retirement: .delete, hadWAL: false)
    }

    /// A crash between the creation of the archive's directory and the journal left an empty archive behind.
    @Test func removesAnUnfinishedArchive() throws {
        try makeStore(at: legacy)
        _ = try StoreTransfer(
            transfer(.archive(reason: "a test")), source: legacy, container: container,
            options: .init(
                retries: RetryPolicy(Deadline(after: .zero)),
                gracePeriod: OpenerGracePeriod(quiet: .zero, maximum: .zero),
                assumeClosed: false,
                opaque: false, didPublish: {}),
            isStillValid: { true }, report: { _ in })
        #expect(try container.journal() != nil)
        try Recovery(container: container, report: { _ in }).run()
        #expect(try container.bookkeeping().directory("archive").names().isEmpty)
        #expect(try container.journal() == nil)
    }

    /// Of two transfers that each remove what the other keeps, the later one finds its counterpart gone and puts its
    /// store back.
    @Test func keepsTheNameIfTheCounterpartIsGone() throws {
        try makeStore(at: legacy)
        let before = try legacy.directory.identity(legacy.name.database)
        #expect(throws: StoreTransfer.RetryReason.self) {
            _ = try StoreTransfer(
                transfer(.discard), source: legacy, container: container,
                options: .init(
                    retries: RetryPolicy(Deadline(after: .zero)),
                    gracePeriod: OpenerGracePeriod(quiet: .zero, maximum: .zero),
                    assumeClosed: false,
                    opaque: false, didPublish: {}),
                isStillValid: { true }, counterpartExists: { false }, report: { _ in }
            ).run()
        }
        #expect(try legacy.directory.identity(legacy.name.database) == before)
        #expect(try legacy.directory.names() == ["Notes.sqlite"])
        #expect(try container.journal() == nil)
    }

    /// A program that was waited for made the folder of external data, after the transfer was planned without one.
    @Test(arguments: [false, true]) func takesAlongAFolderThatCameMeanwhile(copies: Bool) throws {
        try makeStore(at: legacy)
        var transfer = try transfer(.publish(as: StoredPath("Notes.sqlite")))
        transfer.copies = copies
        let folder = legacy.directory.path.appending(legacy.name.support)
        _ = try StoreTransfer(
            transfer, source: legacy, container: container,
            options: .init(
                retries: RetryPolicy(Deadline(after: .zero)),
                gracePeriod: OpenerGracePeriod(quiet: .zero, maximum: .zero), assumeClosed: false, opaque: true,
                didPublish: {}),
            isStillValid: {
                try FileManager.default.createDirectory(atPath: folder.string, withIntermediateDirectories: true)
                try Data("photo".utf8).write(to: URL(filePath: folder.appending("photo").string))
                return true
            }, report: { _ in }
        ).run()
        #expect(try legacy.directory.names().isEmpty)
        let published = try container.directory.directory(legacy.name.support)
        #expect(try published.open("photo", flags: O_RDONLY).read(count: 10, at: 0) == Array("photo".utf8))
    }

    /// A program copies the store in, and has the log open until all of it is written. SQLite would take what is there.
    @Test(arguments: [0, 100]) func leavesALogThatIsBeingCopied(frames: Int) throws {
        try makeStore(at: legacy, "PRAGMA journal_mode = wal")
        let whole = try DatabaseQueue(path: legacy.path.string)
        try whole.writeWithoutTransaction {
            try $0.execute(sql: "PRAGMA wal_autocheckpoint = 0; INSERT INTO note VALUES ('two')")
        }
        let log = try legacy.directory.open(legacy.name.wal, flags: O_RDONLY).read(count: 1 << 20, at: 0)
        try whole.close()
        try DurableFile.write(Array(log.prefix(frames * 4096)), as: legacy.name.wal, in: legacy.directory, mode: 0o644)
        let copy = try legacy.directory.open(legacy.name.wal, flags: O_WRONLY)
        let before = try legacy.directory.identity(legacy.name.wal)
        func relocate() throws {
            _ = try StoreTransfer(
                transfer(.publish(as: StoredPath("Notes.sqlite"))), source: legacy, container: container,
                options: .init(
                    retries: RetryPolicy(Deadline(after: .zero)),
                    gracePeriod: OpenerGracePeriod(quiet: .zero, maximum: .zero), assumeClosed: false, opaque: false,
                    didPublish: {}), isStillValid: { true }, report: { _ in }
            ).run()
        }
        #expect(throws: StoreTransfer.RetryReason.held(try #require(before))) { try relocate() }
        #expect(try legacy.directory.identity(legacy.name.wal) == before)
        #expect(try copy.status().links == 1)
        _ = consume copy
        try relocate()
        #expect(try legacy.directory.names().isEmpty)
    }

    /// The support folder had arrived, and the undo was interrupted too: the folder stayed in the group container.
    @Test func returnsTheSupportFolderAfterAnInterruptedUndo() throws {
        try makeStore(at: legacy)
        try legacy.directory.makeDirectory(legacy.name.support, mode: 0o755)
        let support = try legacy.directory.identity(legacy.name.support)
        let transfer = try transfer(.publish(as: StoredPath("Notes.sqlite")))
        let paths = try TransferPaths(transfer, source: legacy, container: container)
        try legacy.directory.rename(legacy.name.database, to: paths.hidden, in: legacy.directory, .refuse)
        try legacy.directory.makeDirectory(legacy.name.database, mode: 0o700)
        try legacy.directory.rename(legacy.name.support, to: legacy.name.support, in: container.directory, .refuse)
        try container.write(
            TransferJournal(
                transfer: transfer,
                state: .committing(database: transfer.database, support: support, receipt: nil)))

        // An obstacle fails the first attempt.
        try legacy.directory.makeDirectory(legacy.name.support, mode: 0o755)
        let recovery = Recovery(container: container, report: { _ in })
        #expect(throws: SystemError.self) { try recovery.run() }
        try legacy.directory.removeDirectory(legacy.name.support)
        try recovery.run()
        #expect(try legacy.directory.identity(legacy.name.support) == support)
        #expect(try legacy.directory.identity(legacy.name.database) == transfer.database)
        #expect(try container.directory.names() == [".groupstore"])
    }

    /// The process was killed while a closed folder was open for its move, before the move or after it. The boot may
    /// renumber devices.
    @Test(arguments: [false, true], [UInt64(0), 1000])
    func closesAFolderThatWasOpened(hasArrived: Bool, renumberedBy: UInt64) throws {
        try makeStore(at: legacy)
        try legacy.directory.makeDirectory(legacy.name.support, mode: 0o755)
        var transfer = try transfer(.publish(as: StoredPath("Notes.sqlite")))
        transfer.support = try legacy.directory.identity(legacy.name.support)
        transfer.sourceDirectory = legacy.directory.identity
        transfer.destinationDirectory = container.directory.identity
        transfer.sourceDirectory?.device += renumberedBy
        transfer.destinationDirectory?.device += renumberedBy
        transfer.database.device += renumberedBy
        transfer.support?.device += renumberedBy
        transfer.closedSupport = transfer.support
        let group = container.directory
        let name = legacy.name
        if hasArrived {
            for part in [name.support, name.database] {
                try legacy.directory.rename(part, to: part, in: group, .refuse)
            }
        }
        try container.write(
            TransferJournal(
                transfer: transfer,
                state: .committing(database: transfer.database, support: transfer.support, receipt: nil)))
        try Recovery(container: container, report: { _ in }).run()
        let place = hasArrived ? group : legacy.directory
        #expect(try place.status(name.support)?.permissions == 0o555)
        #expect(try place.identity(name.database)?.inode == transfer.database.inode)
        #expect(try container.journal() == nil)
    }

    /// A folder that isn't in the journal keeps its mode, even if it has the name by now.
    @Test func leavesOtherFoldersOpen() throws {
        try makeStore(at: legacy)
        for name in [legacy.name.support, "other"] { try legacy.directory.makeDirectory(name, mode: 0o755) }
        var transfer = try transfer(.publish(as: StoredPath("Notes.sqlite")))
        transfer.sourceDirectory = legacy.directory.identity
        transfer.destinationDirectory = container.directory.identity
        transfer.closedSupport = try legacy.directory.identity("other")
        try container.write(TransferJournal(transfer: transfer, state: .withdrawn))
        try Recovery(container: container, report: { _ in }).run()
        #expect(try legacy.directory.status(legacy.name.support)?.permissions == 0o755)
        #expect(try legacy.directory.status("other")?.permissions == 0o755)
    }

    /// SQLite was interrupted while it turned write-ahead logging on. The header says so already, and the journal
    /// beside it rolls that back when the next program opens the store.
    @Test func distrustsAHeaderBesideAHotJournal() throws {
        try makeStore(at: legacy)
        let working = StoreLocation(directory: legacy.directory, name: try #require(StoreName("Other.sqlite")))
        try makeStore(at: working)
        let queue = try DatabaseQueue(path: working.path.string)
        try queue.writeWithoutTransaction { database in
            try database.execute(sql: "PRAGMA journal_mode = PERSIST; PRAGMA cache_size = 1; BEGIN")
            try database.execute(sql: "CREATE TABLE more (x); INSERT INTO note VALUES (zeroblob(100000))")
            for (from, to) in [
                (working.name.database, legacy.name.database), (working.name.journal, legacy.name.journal),
            ] {
                let bytes = try DurableFile.read(from, in: legacy.directory) ?? []
                try DurableFile.write(bytes, as: to, in: legacy.directory, mode: 0o644)
            }
            try database.execute(sql: "ROLLBACK")
        }
        try queue.close()
        let file = try legacy.directory.open(legacy.name.database, flags: O_RDWR)
        try file.write([2, 2], at: 18)
        try #require(try StoreSnapshot(legacy).journalIsHot)

        #expect(try JournalMode.enableWriteAhead(at: legacy))
        #expect(try StoreSnapshot(legacy).journal == nil)
        #expect(try StoreSnapshot(legacy).header?.journalMode == .writeAhead)
    }
}
