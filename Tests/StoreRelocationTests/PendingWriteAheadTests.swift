import GRDB
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelocation

/// Tests of the write-ahead logging that a transfer has turned off and could not turn on again at once.
@Suite struct PendingWriteAheadTests {
    private let rig: TransferRig
    private var container: GroupContainer { rig.container }
    private var legacy: StoreLocation { rig.legacy }
    private var pending: PendingWriteAhead { PendingWriteAhead(container: container) }

    /// A store that had write-ahead logging, after its withdrawal.
    init() throws {
        rig = try TransferRig()
        let queue = try DatabaseQueue(path: rig.legacy.path.string)
        try queue.writeWithoutTransaction { try $0.execute(sql: "CREATE TABLE note (text TEXT)") }
        try queue.close()
    }

    private func mode(_ store: StoreLocation) throws -> DatabaseHeader.JournalMode? {
        try StoreSnapshot(store).header?.journalMode
    }

    private func relocate() throws -> RelocationSummary {
        var request = RelocationRequest(source: legacy.path, group: container.directory.path)
        request.gracePeriod = OpenerGracePeriod(quiet: .zero, maximum: .zero)
        return try Relocation(request).run()
    }

    /// The first attempt ends while a program writes the store, also by recovery in another process. A later one must
    /// not take the rollback mode for the store's own.
    @Test func aLaterRunRestoresTheModeBeforeTheFirst() throws {
        var transfer = Transfer(
            id: TransferIdentifier(), purpose: .publish(as: StoredPath("Notes.sqlite")),
            directory: legacy.directory.path, name: legacy.name.database,
            database: try #require(try legacy.directory.identity(legacy.name.database)), support: nil, copies: false,
            retirement: .delete, hadWAL: true)
        transfer.sourceDirectory = legacy.directory.identity
        let queue = try DatabaseQueue(path: legacy.path.string)
        try queue.writeWithoutTransaction { database in
            try database.execute(sql: "BEGIN IMMEDIATE")
            try container.write(TransferJournal(transfer: transfer, state: .withdrawn))
            try Recovery(container: container, report: { _ in }).run()
            #expect(try container.journal() == nil)
            #expect(try mode(legacy) == .rollback)
            #expect(try pending.wasOn(StoreSnapshot(legacy)))
            try database.execute(sql: "ROLLBACK")
        }
        try queue.close()
        #expect(try relocate().outcome == .relocated)
        #expect(try mode(StoreLocation(directory: container.directory, name: legacy.name)) == .writeAhead)
        #expect(try container.storesInRollbackMode().stores.isEmpty)
    }

    /// A store that is in use when the next run begins has its mode when it arrives.
    @Test func aTransferKnowsTheModeBeforeTheFirst() throws {
        try pending.remember(legacy)
        let relocation = Relocation(RelocationRequest(source: legacy.path, group: container.directory.path))
        #expect(try relocation.hadWAL(StoreSnapshot(legacy), container))
        try pending.forget(#require(try legacy.directory.identity(legacy.name.database)))
        #expect(try !relocation.hadWAL(StoreSnapshot(legacy), container))
    }

    @Test func anyRunOfTheGroupTurnsItOn() throws {
        try pending.remember(legacy)
        try Relocation(RelocationRequest(source: legacy.path, group: container.directory.path)).withGroupLock(container)
        {}
        #expect(try mode(legacy) == .writeAhead)
        #expect(try container.storesInRollbackMode().stores.isEmpty)
    }

    @Test func leavesAnotherFileOfThatNameAlone() throws {
        try pending.remember(legacy)
        let bytes = try legacy.directory.open(legacy.name.database, flags: O_RDONLY).read(count: 8192, at: 0)
        try DurableFile.write(bytes, as: legacy.name.database, in: legacy.directory, mode: 0o644)
        try pending.retry(relinquishedBy: nil)
        #expect(try mode(legacy) == .rollback)
        #expect(try container.storesInRollbackMode().stores.isEmpty)
    }
}
