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

/// Tests of what a later process needs to know before it removes one of two copies that another process has left.
@Suite struct ArrivalProofTests {
    private let rig: TransferRig
    private var container: GroupContainer { rig.container }
    private var legacy: StoreLocation { rig.legacy }
    private var published: StoreLocation { StoreLocation(directory: container.directory, name: legacy.name) }

    init() throws { rig = try TransferRig() }

    private func makeStore(at store: StoreLocation, _ more: String = "") throws {
        let queue = try DatabaseQueue(path: store.path.string)
        try queue.writeWithoutTransaction {
            try $0.execute(sql: "CREATE TABLE note (text TEXT); INSERT INTO note VALUES ('one'), ('two'); \(more)")
        }
        try queue.close()
    }

    private func execute(_ sql: String, at store: StoreLocation) throws {
        let queue = try DatabaseQueue(path: store.path.string)
        try queue.writeWithoutTransaction { try $0.execute(sql: sql) }
        try queue.close()
    }

    private func empty(_ store: StoreLocation) throws {
        try store.directory.open(store.name.database, flags: O_WRONLY).truncate(to: 0)
    }

    private func transfer(copies: Bool = true) throws -> Transfer {
        var transfer = Transfer(
            id: TransferIdentifier(), purpose: .publish(as: StoredPath("Notes.sqlite")),
            directory: legacy.directory.path, name: legacy.name.database,
            database: try #require(try legacy.directory.identity(legacy.name.database)), support: nil, copies: copies,
            retirement: .delete, hadWAL: false)
        transfer.sourceDirectory = legacy.directory.identity
        transfer.destinationDirectory = container.directory.identity
        return transfer
    }

    /// Leaves a relocation as a process that was killed after the commit point does. Returns the original's name.
    private func killAfterArrival() throws -> FilePath.Component {
        try makeStore(at: legacy)
        let transfer = try transfer()
        let bytes = try legacy.directory.open(legacy.name.database, flags: O_RDONLY).read(count: 1 << 20, at: 0)
        try DurableFile.write(bytes, as: published.name.database, in: container.directory, mode: 0o644)
        let hidden = transfer.id.hiddenName()
        try legacy.directory.rename(legacy.name.database, to: hidden, in: legacy.directory, .refuse)
        try legacy.directory.makeDirectory(legacy.name.database, mode: 0o500)
        let arrived = try #require(try container.directory.identity(published.name.database))
        try container.write(
            TransferJournal(
                transfer: transfer, state: .committing(database: arrived, support: nil, receipt: nil)))
        return hidden
    }

    @Test func removesTheOriginalOfACopyThatWentOn() throws {
        _ = try killAfterArrival()
        try execute("INSERT INTO note VALUES ('later')", at: published)
        try Recovery(container: container, report: { _ in }).run()
        #expect(try legacy.directory.names().isEmpty)
        #expect(try container.journal() == nil)
    }

    @Test(arguments: [nil, "DELETE FROM note", "DROP TABLE note"])
    func keepsTheOriginalOfACopyThatWasEmptied(sql: String?) throws {
        let hidden = try killAfterArrival()
        if let sql { try execute(sql, at: published) } else { try empty(published) }
        #expect(throws: TransferCompletion.OriginalNeeded.self) {
            try Recovery(container: container, report: { _ in }).run()
        }
        #expect(try legacy.directory.status(hidden)?.size ?? 0 > 0)
        // The user moves the original away, and the rest is finished.
        try legacy.directory.rename(hidden, to: "saved", in: legacy.directory, .refuse)
        try Recovery(container: container, report: { _ in }).run()
        #expect(try legacy.directory.names() == ["saved"])
    }

    /// The process was killed while it staged copies; the store was emptied since.
    @Test func keepsTheCopyOfAStoreThatWasEmptied() throws {
        try makeStore(at: legacy)
        let transfer = try transfer()
        try makeStore(at: StoreLocation(directory: container.staging(transfer.id), name: legacy.name))
        try container.write(TransferJournal(transfer: transfer, state: .intended))
        try empty(legacy)
        try Recovery(container: container, report: { _ in }).run()
        let archive = try #require(try container.existingArchive(transfer.id))
        #expect(try StoreSnapshot(StoreLocation(directory: archive, name: legacy.name)).header != nil)
    }

    /// The process was killed while it removed the old set, external files first. Then the copy lost its name.
    @Test(arguments: [false, true]) func keepsTheCopyOfExternalDataThatIsGone(isUndoneTwice: Bool) throws {
        let hidden = try killAfterArrival()
        let folder = container.directory.path.appending(legacy.name.support)
        for path in [folder, legacy.directory.path.appending(legacy.name.support)] {
            try FileManager.default.createDirectory(atPath: path.string, withIntermediateDirectories: false)
        }
        try Data("photo".utf8).write(to: URL(filePath: folder.appending("photo").string))
        let journal = try #require(try container.journal())
        guard case .committing(let database, _, let receipt) = journal.state else {
            Issue.record("the journal has another state")
            return
        }
        let support = try container.directory.identity(legacy.name.support)
        try container.write(
            TransferJournal(
                transfer: journal.transfer, state: .committing(database: database, support: support, receipt: receipt)))
        try container.directory.rename(published.name.database, to: "moved", in: container.directory, .refuse)
        try Recovery(container: container, report: { _ in }).run()
        if isUndoneTwice {
            // The process that undid it was killed before its journal was removed.
            try container.write(TransferJournal(transfer: journal.transfer, state: .withdrawn))
            try Recovery(container: container, report: { _ in }).run()
        }
        #expect(try legacy.directory.status(hidden) == nil)
        #expect(try legacy.directory.identity(legacy.name.database) == journal.transfer.database)
        let archive = try #require(try container.existingArchive(journal.transfer.id))
        let kept = try archive.directory(legacy.name.support).open("photo", flags: O_RDONLY)
        #expect(try kept.read(count: 10, at: 0) == Array("photo".utf8))
    }

    /// A store that is removed in favour of the group's was compared with it; a write since then counts.
    @Test func keepsAStoreWhoseCounterpartWasWritten() throws {
        try makeStore(at: legacy)
        try makeStore(at: published)
        let endpoints = try RelocationEndpoints(RelocationRequest(source: legacy.path, group: container.directory.path))
        let decision = try RelocationDecision(
            endpoints, RelocationRequest(source: legacy.path, group: container.directory.path))
        #expect(decision.plan == .retireLegacy)
        #expect(try decision.isStillValid(for: .discard))
        #expect(try decision.counterpartExists(.discard, endpoints.legacy))
        try empty(published)
        #expect(try !decision.counterpartExists(.discard, endpoints.legacy))
    }
}
