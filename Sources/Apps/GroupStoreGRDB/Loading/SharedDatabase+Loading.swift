import FoundationEssentials
import GRDB
import GroupStore

extension SharedDatabase {
    /// Finds or makes a group container, brings an old store there, migrates it, opens it and follows it.
    ///
    ///     let notes = try await SharedDatabasePool.load(
    ///         "Notes.sqlite", in: "group.com.example.notes", relocating: oldURL, migrator: migrator)
    ///
    /// The standard directory of the group container is created if it doesn't exist, except inside a Flatpak.
    /// Everything else is as in `load` with a group container.
    public static func load(
        _ name: String, in identifier: String, relocating legacy: URL? = nil, migrator: DatabaseMigrator? = nil,
        configuration: GRDB.Configuration = .sharedStore, patience: Duration = .seconds(60),
        deadline: Duration = .seconds(30), relocatesNow: Bool = true, openableModelVersions: Set<String>? = nil,
        sqlTrace: SQLTrace = .environment,
        prepareStore: @escaping @Sendable (URL) async throws -> Void = { _ in },
        progress: @escaping @Sendable (RelocationProgress) -> Void = { _ in },
        prepare: @escaping @Sendable (Connection) throws -> Void = { _ in }
    ) async throws -> SharedDatabase {
        try await load(
            name, in: GroupContainer(identifier: identifier, creatingIfNeeded: true), relocating: legacy,
            migrator: migrator,
            configuration: configuration, patience: patience, deadline: deadline, relocatesNow: relocatesNow,
            openableModelVersions: openableModelVersions, sqlTrace: sqlTrace, prepareStore: prepareStore,
            progress: progress,
            prepare: prepare)
    }

    /// Brings an old store to a group container, migrates it, opens it and follows it.
    ///
    /// A store at `legacy` is relocated first: by the agent if it serves the group, else by this process. Two processes
    /// may do all of this at once: one of them relocates, creates or migrates the store, and the other waits and finds
    /// it. Cancelling the task cancels the relocation and puts everything back.
    ///
    /// - Parameters:
    ///   - name: The database's file name in the group container.
    ///   - container: The group container.
    ///   - legacy: The location of the store before there was a group container; nil if it was never elsewhere.
    ///   - migrator: The migrations of the schema. They run on each connection that is opened, before any access, and
    ///     only in one process at a time. Processes that have the store open already keep it open.
    ///   - configuration: GRDB's configuration of each connection that is opened, which should wait for other
    ///     processes' writes (`busyMode`).
    ///   - patience: How long an access waits while the database is closed for another process.
    ///   - deadline: How long the relocation waits for other processes, and a migration for another process's.
    ///   - relocatesNow: If false, a store at `legacy` is opened there, and an agent relocates it while it is open.
    ///   - openableModelVersions: See `GroupStore.SharedStore.present(openableModelVersions:open:close:failed:)`.
    ///   - sqlTrace: What is printed of the statements that the connections run.
    ///   - prepareStore: Called with the store's location after the relocation and before the store is opened. A
    ///     program with a Core Data model calls `ModelBundle.prepareStore(at:)` here, which has a lock of its own.
    ///   - progress: Called with the steps of a relocation, possibly on another thread.
    ///   - prepare: Called with each connection that is opened and migrated, before any access.
    /// - Returns: The open database.
    /// - Throws: `GroupStoreError`: `busy` with the processes that hold the old store, after the deadline; `refused`,
    ///   for instance if both places have rows of their own; `noContainer`. Nothing has changed then, and
    /// ``init(_:configuration:patience:openableModelVersions:sqlTrace:prepare:)`` opens the store where it is. Also
    /// GRDB's errors, `FileCoordinationError`, `CancellationError`, and the errors of the closures.
    public static func load(
        _ name: String, in container: GroupContainer, relocating legacy: URL? = nil, migrator: DatabaseMigrator? = nil,
        configuration: GRDB.Configuration = .sharedStore, patience: Duration = .seconds(60),
        deadline: Duration = .seconds(30), relocatesNow: Bool = true, openableModelVersions: Set<String>? = nil,
        sqlTrace: SQLTrace = .environment,
        prepareStore: @escaping @Sendable (URL) async throws -> Void = { _ in },
        progress: @escaping @Sendable (RelocationProgress) -> Void = { _ in },
        prepare: @escaping @Sendable (Connection) throws -> Void = { _ in }
    ) async throws -> SharedDatabase {
        let store = try SharedStore(name, in: container, legacy: legacy)
        if relocatesNow {
            try await LegacyStoreRelocation(store: store, deadline: deadline, progress: progress).run()
        }
        try await prepareStore(store.url)
        let migration = migrator.map { CoordinatedMigration(migrator: $0, store: store, deadline: deadline) }
        return try await SharedDatabase(
            presenting: store, configuration: configuration, patience: patience,
            openableModelVersions: openableModelVersions, sqlTrace: sqlTrace
        ) { connection in
            try await migration?.run(on: connection)
            try prepare(connection)
        }
    }
}
