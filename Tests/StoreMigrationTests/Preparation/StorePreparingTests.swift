import CoreDataStore
import Dispatch
import Glibc
import GroupContainers
import LinuxSystem
import ManagedObjectModels
import SQLiteStore
import StoreMigration
import Synchronization
import SystemPackage
import TestSupport
import Testing

/// The call that an app makes before it opens its store.
@Suite struct StorePreparingTests {
    private let directory: TemporaryDirectory
    private let store: FilePath

    init() throws {
        directory = try TemporaryDirectory()
        store = directory.path.appending("Notes.sqlite")
    }

    private func version(_ name: String, _ attributes: [String]) throws -> ModelVersion {
        var note = EntityDescription(name: "Note")
        note.attributes = attributes.map { name in
            var attribute = AttributeDescription(name: name, type: .string)
            attribute.isOptional = true
            return attribute
        }
        return ModelVersion(name: name, model: try ManagedObjectModel(entities: [note]), path: "/Notes.xcdatamodeld")
    }

    private func bundle(_ versions: ModelVersion...) throws -> ModelBundle {
        try #require(ModelBundle(path: "/Notes.xcdatamodeld", versions: versions, currentName: nil))
    }

    private static let lostTitles = "Note.title is not stored by the newer model: 3 values are removed"

    private var old: ModelVersion { get throws { try version("Notes", ["title"]) } }
    private var new: ModelVersion { get throws { try version("Notes 2", ["title", "url"]) } }

    private func fill(_ rows: Int) throws {
        let writer = try StoreWriter(store)
        try writer.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(rows)) "
                + "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTITLE) SELECT i, 1, 1, 'x' FROM n")
        try writer.execute("UPDATE Z_PRIMARYKEY SET Z_MAX = \(rows)")
    }

    /// Of several callers that find no store, one creates it and the others find it.
    @Test func concurrentCallsCreateOneStore() async throws {
        for round in 1...10 {
            let path = directory.path.appending("Store \(round).sqlite")
            let bundle = try bundle(old)
            let outcomes = try await withThrowingTaskGroup(of: StorePreparation.self) { group in
                for _ in 1...6 { group.addTask { try await bundle.prepareStore(at: path) } }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(outcomes.filter { $0 == .created }.count == 1)
            #expect(outcomes.filter { $0 == .upToDate }.count == 5)
        }
        #expect(try Directory(directory.path).names().allSatisfy { $0.string.hasPrefix("Store ") })
    }

    @Test func createsAMissingStore() async throws {
        #expect(try await bundle(old).prepareStore(at: store) == .created)
        #expect(try await bundle(old).prepareStore(at: store) == .upToDate)
        var options = StoreOptions()
        options.createsMissingStore = false
        let other = directory.path.appending("Other.sqlite")
        await #expect(throws: StorePreparationError.self) { () async throws in
            try await bundle(old).prepareStore(at: other, options: options)
        }
    }

    @Test func anOlderStoreIsMigrated() async throws {
        _ = try await bundle(old).prepareStore(at: store)
        try fill(3)
        let both = try bundle(old, new)
        #expect(try await both.prepareStore(at: store) == .migrated(through: ["Notes 2"], notes: []))
        let writer = try StoreWriter(store)
        #expect(try writer.integer("SELECT count(*) FROM ZNOTE WHERE ZTITLE = 'x' AND ZURL IS NULL") == 3)
    }

    /// Each caller plans the migration before it waits for the others, but only one performs it.
    @Test func concurrentCallsMigrateAnOlderStoreOnce() async throws { try await migrateConcurrently(rounds: 1) }

    /// A relocation or another call has a lease on the store at the moment when it replaces it.
    @Test func waitsForALeaseOnTheStore() async throws {
        _ = try await bundle(old).prepareStore(at: store)
        let both = try bundle(old, new)
        FileLease.ignoreBreakSignal()
        let preparing: Task<StorePreparation, any Error>
        do {
            let descriptor = try Descriptor(opening: store, flags: O_RDONLY | O_CLOEXEC)
            guard let lease = try FileLease(descriptor) else { throw Unexpected("no lease") }
            preparing = Task { try await both.prepareStore(at: store) }
            let deadline = Deadline(after: .ample)
            while lease.isIntact, !deadline.hasPassed { try await Task.sleep(for: .milliseconds(1)) }
            if lease.isIntact { throw Unexpected("nobody opens the store") }
        }
        #expect(try await preparing.value == .migrated(through: ["Notes 2"], notes: []))
    }

    @Test(.soak) func concurrentCallsMigrateEachOlderStoreOnce() async throws {
        try await migrateConcurrently(rounds: 20)
    }

    private func migrateConcurrently(rounds: Int) async throws {
        let both = try bundle(old, new)
        for round in 1...rounds {
            let path = directory.path.appending("Store \(round).sqlite")
            _ = try await bundle(old).prepareStore(at: path)
            let outcomes = try await withThrowingTaskGroup(of: StorePreparation.self) { group in
                for _ in 1...6 { group.addTask { try await both.prepareStore(at: path) } }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(outcomes.filter { $0 == .migrated(through: ["Notes 2"], notes: []) }.count == 1)
            #expect(outcomes.filter { $0 == .upToDate }.count == 5)
        }
    }

    @Test func runsStages() async throws {
        struct Refusal: Error {}
        _ = try await bundle(old).prepareStore(at: store)
        try fill(3)
        let last = try version("Notes 3", ["url"])
        let all = try bundle(old, new, last)
        let checksums = try [old, new, last].map(\.model.versionChecksum)
        func options(_ handler: @escaping MigrationStage.Handler) -> StoreOptions {
            var options = StoreOptions()
            options.stages = [
                .custom(from: checksums[0], to: checksums[1], didMigrate: handler),
                .lightweight(versionChecksums: [checksums[2]]),
            ]
            return options
        }
        let refused = await #expect(throws: StorePreparationError.self) { () async throws in
            try await all.prepareStore(at: store, options: options { _ in throw Refusal() })
        }
        #expect(refused?.code == "core_data_134110")
        do {
            let writer = try StoreWriter(store)
            #expect(try writer.integer("SELECT count(*) FROM ZNOTE WHERE ZTITLE = 'x'") == 3)
        }
        let done = try await all.prepareStore(
            at: store, options: options { try $0.execute("UPDATE ZNOTE SET ZURL = 'http://' || ZTITLE") })
        guard case .migrated(["Notes 2", "Notes 3"], let notes) = done else {
            Issue.record("\(done)")
            return
        }
        #expect(notes.first == Self.lostTitles && notes.count == 2)
        #expect(notes.last?.contains("is kept in") == true)
        let writer = try StoreWriter(store)
        #expect(try writer.integer("SELECT count(*) FROM ZNOTE WHERE ZURL = 'http://x'") == 3)
    }

    @Test func refusesWhatTheOptionsForbidWithCoreDatasCode() async throws {
        _ = try await bundle(old).prepareStore(at: store)
        let both = try bundle(old, new)
        var options = StoreOptions()
        options.migratesAutomatically = false
        let refused = await #expect(throws: StorePreparationError.self) { () async throws in
            try await both.prepareStore(at: store, options: options)
        }
        #expect(refused?.code == "core_data_134100")
        options.migratesAutomatically = true
        options.infersMappingModelAutomatically = false
        let without = await #expect(throws: StorePreparationError.self) { () async throws in
            try await both.prepareStore(at: store, options: options)
        }
        #expect(without?.code == "core_data_134140")
    }

    @Test func aNewerStoreIsRefused() async throws {
        _ = try await bundle(new).prepareStore(at: store)
        let refused = await #expect(throws: StorePreparationError.self) { () async throws in
            try await bundle(old, version("Notes 0", [])).prepareStore(at: store)
        }
        #expect(refused?.code == "core_data_134130")
    }

    /// Cancelled at each of these points, the migration either stops or completes. In both cases no row is missing and
    /// no file is left behind.
    @Test func losesNothingWhenCancelledAtAnyPercent() async throws {
        var cancelled = 0
        for percent in stride(from: 0, through: 100, by: 5) {
            try? Directory(directory.path).removeTree("Notes.sqlite")
            _ = try await bundle(new).prepareStore(at: store)
            try fill(5000)
            // The removal of two attributes makes the migration rebuild the table.
            let both = try bundle(new, version("Notes 3", ["body"]))
            let task = Mutex<Task<StorePreparation, any Error>?>(nil)
            let isKnown = DispatchSemaphore(value: 0)
            let running = Task { [store] in
                try await both.prepareStore(at: store) { fraction, _ in
                    isKnown.wait()
                    isKnown.signal()
                    if fraction * 100 >= Double(percent) { task.withLock { $0 }?.cancel() }
                }
            }
            task.withLock { $0 = running }
            isKnown.signal()
            let title: String
            do {
                let done = try await running.value
                guard case .migrated(["Notes 3"], let notes) = done else {
                    Issue.record("\(done), at \(percent) %")
                    continue
                }
                #expect(notes.first == Self.lostTitles.replacing(" 3 ", with: " 5000 "), "at \(percent) %")
                title = "ZBODY IS NULL"
            } catch is CancellationError {
                cancelled += 1
                title = "ZTITLE = 'x'"
            }
            #expect(try StoreWriter(store).integer("SELECT count(*) FROM ZNOTE WHERE \(title)") == 5000, "\(percent) %")
            let names = try Directory(directory.path).names()
            #expect(Set(names).isSubset(of: [".groupstore", "Notes.sqlite"]), "at \(percent) %: \(names)")
        }
        #expect(cancelled > 5)
    }

    @Test func aCancelledTaskLeavesTheStoreAsItWas() async throws {
        _ = try await bundle(new).prepareStore(at: store)
        try fill(20_000)
        let both = try bundle(new, version("Notes 3", ["body"]))
        let (started, continuation) = AsyncStream.makeStream(of: Void.self)
        let gate = DispatchSemaphore(value: 0)
        let task = Task { [store] in
            try await both.prepareStore(at: store) { _, _ in
                continuation.yield()
                // The migration continues once the task is cancelled.
                gate.wait()
                gate.signal()
            }
        }
        for await _ in started { break }
        task.cancel()
        gate.signal()
        await #expect(throws: CancellationError.self) { () async throws in try await task.value }
        let writer = try StoreWriter(store)
        #expect(try writer.integer("SELECT count(*) FROM ZNOTE WHERE ZTITLE = 'x'") == 20_000)
    }

    /// Leaves the journal of a migration that was killed before its copy was complete.
    private func interrupt(_ name: FilePath.Component, in container: GroupContainer) throws {
        let identity = try #require(try container.directory.status(name)).identity
        let transfer = Transfer(
            id: TransferIdentifier(), purpose: .publish(as: StoredPath(FilePath(root: nil, [name]))),
            directory: container.directory.path, name: name, database: identity, support: nil, copies: true,
            retirement: .delete, hadWAL: true)
        try container.write(TransferJournal(transfer: transfer, state: .intended))
    }

    /// An interrupted or running relocation of another store doesn't delay the preparation of this one.
    @Test func doesNotWaitForAnotherStoresRelocation() async throws {
        let container = GroupContainer(directory: try Directory(directory.path))
        _ = try await bundle(old).prepareStore(at: directory.path.appending("Other.sqlite"))
        try interrupt("Other.sqlite", in: container)
        let lock = try container.lock()
        var options = StoreOptions()
        options.deadline = .zero
        #expect(try await bundle(old).prepareStore(at: store, options: options) == .created)
        #expect(try await bundle(old).prepareStore(at: store, options: options) == .upToDate)
        #expect(try container.journal() != nil)
        _ = consume lock
    }

    /// The call waits until its own store's relocation is completed, or until the task is cancelled.
    @Test func cancelsTheWaitForItsOwnRelocation() async throws {
        let container = GroupContainer(directory: try Directory(directory.path))
        _ = try await bundle(old).prepareStore(at: store)
        try interrupt("Notes.sqlite", in: container)
        let lock = try container.lock()
        var options = StoreOptions()
        options.deadline = .ample
        let preparing = Task { [store, bundle = try bundle(old), options] in
            try await bundle.prepareStore(at: store, options: options)
        }
        preparing.cancel()
        await #expect(throws: CancellationError.self) { () async throws in try await preparing.value }
        _ = consume lock
        #expect(try await bundle(old).prepareStore(at: store) == .upToDate)
        #expect(try container.journal() == nil)
    }

    /// Recovery takes leases. A program that opens the file meanwhile must not terminate the process.
    @Test func ignoresTheSignalOfALeaseFromTheStart() async throws {
        var action = sigaction()
        signal(SIGIO, SIG_DFL)
        _ = try await bundle(old).prepareStore(at: store)
        #expect(sigaction(SIGIO, nil, &action) == 0)
        #expect(unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self) == 1)
    }
}
