import GRDB
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelocation

/// A change of a store's content, in place or as part of a relocation.
@Suite struct StoreTransformTests {
    private let root: TemporaryDirectory
    private let legacy: StoreLocation
    private let group: Directory

    init() throws {
        root = try TemporaryDirectory()
        let top = try Directory(root.path)
        for name: FilePath.Component in ["legacy", "group"] { try top.makeDirectory(name, mode: 0o755) }
        group = try top.directory("group")
        legacy = StoreLocation(
            directory: try top.directory("legacy"), name: try #require(StoreName("Notes.sqlite")))
        let queue = try DatabaseQueue(path: legacy.path.string)
        try queue.writeWithoutTransaction {
            try $0.execute(sql: "PRAGMA journal_mode = WAL; CREATE TABLE note (text TEXT)")
            try $0.execute(sql: "INSERT INTO note VALUES ('old')")
        }
        try queue.close()
        try legacy.directory.makeDirectory(legacy.name.support, mode: 0o755)
    }

    private struct Failure: Error {}

    /// Changes `old` notes to `new` ones.
    private struct Renewal: StoreTransform {
        var fails = false
        /// Called before the copy is changed.
        var interfere: @Sendable () throws -> Void = {}
        let target = "new"

        func isOpenable(knowing versions: Set<String>) -> Bool { versions.contains(target) }

        func isNeeded(_ store: StoreLocation) throws -> Bool {
            try StoreReader.read(store) { try $0.integer("SELECT count(*) FROM note WHERE text = 'old'") } != 0
        }

        func run(
            on staged: StoreLocation, of store: FilePath, supportBeside supportOwner: StoreLocation,
            progress: (_ fraction: Double, _ activity: String) -> Void
        ) throws -> TransformedStore {
            try interfere()
            let writer = try StoreWriter(staged.pathForSQLite)
            try writer.execute("UPDATE note SET text = 'new'")
            progress(1, "renewed")
            if fails { throw Failure() }
            return TransformedStore(before: "old", after: "new", notes: ["renewed"])
        }
    }

    private func request(_ directory: Directory, fails: Bool = false) -> RelocationRequest {
        var request = RelocationRequest(source: legacy.path, group: directory.path)
        request.transform = Renewal(fails: fails)
        request.deadline = .ample
        return request
    }

    private func notes(_ directory: Directory) throws -> String? {
        try StoreReader.read(StoreLocation(directory: directory, name: legacy.name)) {
            try $0.text("SELECT group_concat(text) FROM note")
        }
    }

    @Test func changesAStoreInPlace() throws {
        let support = try legacy.directory.identity(legacy.name.support)
        let summary = try Relocation(request(legacy.directory)).transform()
        #expect(summary.outcome == .migrated)
        #expect(summary.notes == ["renewed"])
        #expect(try notes(legacy.directory) == "new")
        #expect(try StoreSnapshot(legacy).header?.journalMode == .writeAhead)
        // The external files are the same, and nothing else is left.
        #expect(try legacy.directory.identity(legacy.name.support) == support)
        #expect(Set(try legacy.directory.names()) == [legacy.name.database, legacy.name.support, ".groupstore"])
        let container = GroupContainer(directory: legacy.directory)
        #expect(try container.journal() == nil)
        #expect(try container.receipts(of: legacy.name.database).isEmpty)
        #expect(try container.bookkeeping().directory("staging").names().isEmpty)
    }

    @Test func skipsAnUnneededChange() throws {
        _ = try Relocation(request(legacy.directory)).transform()
        let before = try legacy.directory.identity(legacy.name.database)
        #expect(try Relocation(request(legacy.directory)).transform().outcome == .nothingToDo)
        #expect(try legacy.directory.identity(legacy.name.database) == before)
    }

    @Test func leavesTheStoreUnchangedAfterAFailure() throws {
        let before = try legacy.directory.identity(legacy.name.database)
        #expect(throws: RelocationFailure.self) { () throws in
            try Relocation(request(legacy.directory, fails: true)).transform()
        }
        #expect(try notes(legacy.directory) == "old")
        #expect(try legacy.directory.identity(legacy.name.database) == before)
        #expect(try StoreSnapshot(legacy).header?.journalMode == .writeAhead)
        #expect(Set(try legacy.directory.names()) == [legacy.name.database, legacy.name.support, ".groupstore"])
    }

    /// Stands for a store that can't be changed, and must not take the place of one that can.
    private struct Empty: StoreReplacement {
        let description = "an empty store"
        let bytes: Int64 = 0

        func check() throws {}

        func make(at staged: StoreLocation, replacing old: StoreLocation, progress: (Double, String) -> Void) throws
            -> TransformedStore
        { TransformedStore(before: nil, after: "new") }
    }

    /// A program writes the store while it is copied: the copy may be torn, and fails for a reason that the store
    /// itself doesn't have.
    @Test(arguments: ["WAL", "DELETE"], [false, true])
    func triesAgainIfAProgramWroteMeanwhile(mode: String, inPlace: Bool) throws {
        let path = Word(legacy.path)
        _ = try run("sqlite3", [path, Word("PRAGMA journal_mode = \(mode)")])
        let attempts = Log()
        var request = request(inPlace ? legacy.directory : group)
        request.replacement = Empty()
        request.transform = Renewal(interfere: {
            attempts.note("attempt")
            guard attempts.entries.count < 3 else { return }
            let done = try run("sqlite3", [path, "INSERT INTO note VALUES ('old')"])
            #expect(done.status == 0, "\(done.errors)")
            var failure = RelocationFailure(.badData, code: "torn", "torn", remedy: "none")
            failure.isIncompatible = true
            throw failure
        })
        let relocation = Relocation(request)
        let summary = try inPlace ? relocation.transform() : relocation.run()
        #expect(summary.outcome == (inPlace ? .migrated : .relocated))
        #expect(summary.setAside == nil)
        #expect(attempts.entries.count == 3)
        #expect(try notes(inPlace ? legacy.directory : group) == "new,new,new")
    }

    @Test func changesAStoreDuringItsRelocation() throws {
        let summary = try Relocation(request(group)).run()
        #expect(summary.outcome == .relocated)
        #expect(summary.method == .migrate)
        #expect(summary.transformed?.after == "new")
        #expect(try notes(group) == "new")
        #expect(try legacy.directory.names().isEmpty)
        #expect(Set(try group.names()) == [legacy.name.database, legacy.name.support, ".groupstore"])
        // The old program couldn't open the store.
        let failure = #expect(throws: RelocationFailure.self) { try Relocation(request(group)).undo() }
        #expect(failure?.code == "migrated")
    }

    @Test func changesARelocatedStoreInPlace() throws {
        var plain = request(group)
        plain.transform = nil
        _ = try Relocation(plain).run()
        #expect(try notes(group) == "old")
        let summary = try Relocation(request(group)).run()
        #expect(summary.outcome == .migrated)
        #expect(try notes(group) == "new")
    }

    /// Without a legacy directory the group's store is changed too, and a dry run says so.
    @Test func changesAStoreWithoutALegacyDirectory() throws {
        var plain = request(group)
        plain.transform = nil
        _ = try Relocation(plain).run()
        try Directory(root.path).removeTree("legacy")
        #expect(try Relocation(plain).dryRun().outcome == .nothingToDo)
        let prospect = try Relocation(request(group)).dryRun()
        #expect(prospect.outcome == .migrated)
        #expect(try notes(group) == "old")
        let summary = try Relocation(request(group)).run()
        #expect(summary.outcome == .migrated)
        #expect((prospect.from, prospect.to, prospect.method) == (summary.from, summary.to, summary.method))
        #expect(try notes(group) == "new")
        #expect(try Relocation(request(group)).dryRun().outcome == .nothingToDo)
    }

    /// The process was killed after the old name was withdrawn, before or after the new content arrived.
    @Test(arguments: [false, true]) func undoesOrFinishesAnInterruptedChange(hasArrived: Bool) throws {
        let directory = legacy.directory
        let container = GroupContainer(directory: directory)
        let old = try #require(try directory.identity(legacy.name.database))
        let transfer = Transfer(
            id: TransferIdentifier(), purpose: .publish(as: StoredPath("Notes.sqlite")), directory: directory.path,
            name: legacy.name.database, database: old, support: nil, copies: true, retirement: .delete, hadWAL: true)
        let paths = try TransferPaths(transfer, source: legacy, container: container)
        let staging = try paths.staging()
        let bytes = try DurableFile.read(legacy.name.database, in: directory) ?? []
        try DurableFile.write(bytes, as: legacy.name.database, in: staging, mode: 0o644)
        let copy = StoreLocation(directory: staging, name: legacy.name)
        _ = try Renewal().run(on: copy, of: legacy.path, supportBeside: copy, progress: { _, _ in })
        let new = try #require(try staging.identity(legacy.name.database))
        try directory.rename(legacy.name.database, to: paths.hidden, in: directory, .refuse)
        try directory.makeDirectory(legacy.name.database, mode: 0o500)
        try container.write(
            TransferJournal(transfer: transfer, state: .committing(database: new, support: nil, receipt: nil)))
        if hasArrived {
            try directory.directory(legacy.name.database).setPermissions(0o700)
            try staging.rename(legacy.name.database, to: legacy.name.database, in: directory, .exchange)
        }

        try Recovery(container: container, report: { _ in }).run()
        #expect(try directory.identity(legacy.name.database) == (hasArrived ? new : old))
        #expect(try notes(directory) == (hasArrived ? "new" : "old"))
        #expect(try StoreSnapshot(legacy).header?.journalMode == .writeAhead)
        #expect(Set(try directory.names()) == [legacy.name.database, legacy.name.support, ".groupstore"])
        #expect(try container.bookkeeping().directory("staging").names().isEmpty)
        #expect(try container.journal() == nil)
    }
}
