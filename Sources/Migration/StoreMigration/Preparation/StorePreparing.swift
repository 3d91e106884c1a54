import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage

extension ModelBundle {
    /// Prepares the store at `path` to be opened with the model's current version: creates it if it is missing, and
    /// migrates it if it has an older version. An app calls this before it opens the store.
    ///
    ///     let model = try ModelBundle(reading: "Notes.momd")
    ///     let preparation = try await model.prepareStore(at: "Notes.sqlite") { fraction, doing in
    ///         print("\(Int(fraction * 100)) % \(doing)")
    ///     }
    ///
    /// A migration works on a copy, which replaces the store atomically once it is complete. Cancelling the task
    /// cancels the migration and leaves the store unchanged.
    ///
    /// - Important: The store must not be open in this process.
    ///
    /// - Parameters:
    ///   - path: The path of the database file.
    ///   - options: Permissions, stages, mapping models, policies and the deadline.
    ///   - progress: Called on a separate thread with a fraction from 0 to 1 and the current activity.
    /// - Returns: A ``StorePreparation`` that tells whether this call created or migrated the store.
    /// - Throws: ``StorePreparationError``, or `CancellationError` if the task is cancelled.
    public func prepareStore(
        at path: FilePath, options: StoreOptions = StoreOptions(),
        progress: @escaping @Sendable (_ fraction: Double, _ doing: String) -> Void = { _, _ in }
    ) async throws -> StorePreparation {
        let cancellation = Cancellation()
        let preparing = StorePreparing(
            bundle: self, path: path, options: options, progress: progress, isCancelled: { cancellation.isRequested })
        do {
            return try await withTaskCancellationHandler {
                try await SystemThread.run(name: "gs-prepare") { try preparing.run() }
            } onCancel: {
                cancellation.request()
            }
        } catch let error as SystemError {
            throw StorePreparationError(
                code: "io_error", error.message, remedy: "make sure that another thread can be created",
                underlying: error)
        }
    }
}

extension StoreOptions {
    /// Returns the options as a request for a migration to this model.
    fileprivate func request(_ model: FilePath) -> MigrationRequest {
        var request = MigrationRequest(model)
        request.mappings = mappingModels
        request.options = MigrationOptions(allowsPartialHistory: allowsPartialHistory, validation: validation)
        return request
    }
}

/// Performs the preparation on one thread.
private struct StorePreparing: Sendable {
    let bundle: ModelBundle
    let path: FilePath
    let options: StoreOptions
    let progress: @Sendable (Double, String) -> Void
    let isCancelled: @Sendable () -> Bool

    func run() throws -> StorePreparation {
        do {
            guard !isCancelled() else { throw CancellationError() }
            // The signal must be ignored before the first lease is taken.
            FileLease.ignoreBreakSignal()
            // A migration that was killed may have left the store under another name.
            try finishInterrupted()
            if FileStatus(following: path) == nil, let created = try createUnlessExisting() { return created }
            guard let name = path.lastComponent.flatMap(StoreName.init) else { throw StoreError.notAFile(path) }
            let deadline = Deadline(after: options.deadline)
            var backoff = Backoff(first: .milliseconds(1), longest: .milliseconds(20))
            while true {
                do {
                    return try migrate(name)
                } catch StoreError.busy(let place, let code, let message) {
                    // Another call has a lease on the store, or replaces it while this one reads the plan from it.
                    guard !isCancelled() else { throw CancellationError() }
                    guard !deadline.hasPassed else { throw StoreError.busy(place, code: code, message: message) }
                    pause(backoff.next())
                } catch StoreError.notAFile(let place) {
                    // Another call may be replacing the store by its migrated copy, or has just done so.
                    try finishInterrupted()
                    let isBack = FileStatus(following: path)?.kind == .regular
                    guard isBack, !deadline.hasPassed else { throw StoreError.notAFile(place) }
                }
            }
        } catch let failure as RelocationFailure {
            if isCancelled() { throw CancellationError() }
            throw StorePreparationError(failure)
        } catch let error as StorePreparationError {
            throw error
        } catch let error as any ActionableError {
            throw StorePreparationError(error)
        }
    }

    /// Waits for a migration under way, and finishes or undoes one that was interrupted.
    private func finishInterrupted() throws {
        guard let name = path.lastComponent.flatMap(StoreName.init) else { return }
        try Relocation(request, isCancelled: isCancelled).finishInterrupted(of: name)
    }

    private var request: RelocationRequest {
        var request = RelocationRequest(source: path, group: path.removingLastComponent())
        if request.group.isEmpty { request.group = "." }
        request.deadline = options.deadline
        return request
    }

    /// Creates the store under a directory lock: of several processes that find no store, one creates it while the
    /// others wait. Returns nil if another process has created it.
    private func createUnlessExisting() throws -> StorePreparation? {
        guard options.createsMissingStore else { return try create() }
        let parent = path.removingLastComponent()
        let lock = try DirectoryLock(parent.isEmpty ? "." : parent)
        let deadline = Deadline(after: options.deadline)
        var backoff = Backoff(first: .milliseconds(1), longest: .milliseconds(20))
        while try !lock.tryLock() {
            guard !isCancelled() else { throw CancellationError() }
            guard !deadline.hasPassed else {
                throw StorePreparationError(
                    code: "busy", "\(PrintablePath(path)): another process is creating a store in that directory",
                    remedy: "try again when it is done; check whether it is stopped")
            }
            pause(backoff.next())
        }
        return try withExtendedLifetime(lock) {
            do {
                return FileStatus(following: path) == nil ? try create() : nil
            } catch let error as NewStore.AlreadyExists {
                // A process that doesn't use the lock created it.
                guard FileStatus(following: path) != nil else { throw error }
                return nil
            }
        }
    }

    private func create() throws -> StorePreparation {
        guard options.createsMissingStore, let last = path.lastComponent, let name = StoreName(last) else {
            throw StoreError.missing(path)
        }
        let layout = StoreLayout(bundle.current.model)
        try layout.validate()
        let parent = path.removingLastComponent()
        let directory = try Directory(parent.isEmpty ? "." : parent)
        let newStore = try NewStore(at: StoreLocation(directory: directory, name: name))
        try layout.makeStore(at: newStore.path)
        try newStore.publish(writeAhead: options.journalMode == .writeAhead)
        return .created
    }

    private func migrate(_ name: StoreName) throws -> StorePreparation {
        var request = request
        let location = StoreLocation(directory: try Directory(request.group), name: name)
        // Mapping models that can't be read are no reason to refuse a store that needs none.
        let model = try StoreModel.read(location)
        if model?.metadata.versionHashes == bundle.current.model.entityVersionHashesByName { return .upToDate }
        var transform = try MigrationTransform(
            options.request(bundle.path), to: bundle.current, in: bundle, isCancelled: isCancelled)
        (transform.stages, transform.policies) = (options.stages, options.policies)
        guard let plan = try transform.plan(for: location) else {
            throw StorePreparationError(
                code: "not_core_data", "\(PrintablePath(path)): this is not a Core Data store",
                remedy: "name a store that has the table Z_METADATA")
        }
        guard !plan.steps.isEmpty else { return .upToDate }
        let isInferred = plan.steps.contains(where: \.isInferred)
        guard options.migratesAutomatically, options.infersMappingModelAutomatically || !isInferred else {
            let code =
                options.migratesAutomatically
                ? CoreDataError.missingMappingModel : CoreDataError.incompatibleVersionHash
            throw MigrationError(
                code, "\(PrintablePath(path)): \(CoreDataError.reason(code))",
                remedy: "allow automatic migration in the options")
        }
        request.transform = transform.carrying(plan)
        let engine = Relocation(
            request, isCancelled: isCancelled,
            report: { event in
                if case .transforming(let fraction, let doing) = event { progress(fraction, doing) }
            })
        let summary = try engine.transform()
        // This call waited for another process, which migrated the store.
        guard summary.outcome == .migrated else { return .upToDate }
        let names = plan.steps.map(\.destinationName)
        // Another process may have completed some of the steps since the plan was made.
        let completed = summary.transformed?.before.flatMap { names.lastIndex(of: $0) }.map { $0 + 1 } ?? 0
        return .migrated(through: Array(names.dropFirst(completed)), notes: summary.notes)
    }
}
