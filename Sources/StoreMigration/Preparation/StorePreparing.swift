import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage

extension ModelBundle {
    /// Makes the store at `path` ready to be opened with the model's current version: an app calls it before it opens the
    /// store. A migration is made on a copy, which takes the store's place in one step when it is whole; the store must not
    /// be open in this process.
    ///
    /// Cancelling the task cancels a migration; the store is then as it was. `progress` is called on a thread of its own,
    /// with a fraction from 0 to 1 and what is being done.
    ///
    /// Throws `StorePreparationError`, and `CancellationError`.
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
            throw StorePreparationError(code: "io_error", "\(error)", remedy: "see that there is room for a thread")
        }
    }
}

/// The work of it, on one thread.
private struct StorePreparing: Sendable {
    let bundle: ModelBundle
    let path: FilePath
    let options: StoreOptions
    let progress: @Sendable (Double, String) -> Void
    let isCancelled: @Sendable () -> Bool

    func run() throws -> StorePreparation {
        do {
            guard !isCancelled() else { throw CancellationError() }
            // Before the first lease is taken.
            FileLease.ignoreBreakSignal()
            // A migration that was killed may have left the store under another name.
            if let name = path.lastComponent.flatMap(StoreName.init) {
                try Relocation(request, isCancelled: isCancelled).finishInterrupted(of: name)
            }
            if FileStatus(following: path) == nil, let created = try createUnlessMade() { return created }
            return try migrate()
        } catch let failure as RelocationFailure {
            if isCancelled() { throw CancellationError() }
            throw StorePreparationError(code: failure.code, failure.message, remedy: failure.remedy)
        } catch let error as MigrationError {
            throw StorePreparationError(RelocationFailure(error))
        } catch let error as StoreError {
            throw StorePreparationError(code: "sqlite_error", "\(error)", remedy: error.remedy)
        } catch let error as SystemError {
            throw StorePreparationError(
                code: "io_error", "\(error)", remedy: "see that the directory can be written to")
        } catch let fault as ModelFault {
            throw StorePreparationError(
                code: "name_collision", (fault.element.map { $0 + ": " } ?? "") + fault.message, remedy: fault.remedy)
        } catch let error as NewStore.Taken {
            throw StorePreparationError(
                code: "exists", "\(PrintablePath(error.path)): there is something already", remedy: "move it away")
        }
    }

    private var request: RelocationRequest {
        var request = RelocationRequest(source: path, group: path.removingLastComponent())
        if request.group.isEmpty { request.group = "." }
        request.deadline = options.deadline
        return request
    }

    /// Of several processes that find no store one makes it; the others wait, and find it. Nil where it was made
    /// meanwhile.
    private func createUnlessMade() throws -> StorePreparation? {
        guard options.createsMissingStore else { return try create() }
        let parent = path.removingLastComponent()
        let lock = try DirectoryLock(parent.isEmpty ? "." : parent)
        let deadline = Deadline(after: options.deadline)
        var wait = Duration.milliseconds(1)
        while try !lock.tryLock() {
            guard !isCancelled() else { throw CancellationError() }
            guard !deadline.hasPassed else {
                throw StorePreparationError(
                    code: "busy", "\(PrintablePath(path)): another process is making a store in that directory",
                    remedy: "try again when it is done; is it stopped?")
            }
            pause(wait)
            wait = min(wait * 2, .milliseconds(20))
        }
        return try withExtendedLifetime(lock) {
            do {
                return FileStatus(following: path) == nil ? try create() : nil
            } catch let error as NewStore.Taken {
                // By somebody who doesn't know of the lock.
                guard FileStatus(following: path) != nil else { throw error }
                return nil
            }
        }
    }

    private func create() throws -> StorePreparation {
        guard options.createsMissingStore, let last = path.lastComponent, let name = StoreName.given(last) else {
            throw StoreError.missing(path)
        }
        let layout = StoreLayout(bundle.current.model)
        try layout.check()
        let parent = path.removingLastComponent()
        let directory = try Directory(parent.isEmpty ? "." : parent)
        let new = try NewStore(at: StoreLocation(directory: directory, name: name))
        try layout.makeStore(at: new.path)
        try new.publish(writeAhead: options.journalMode == .writeAhead)
        return .created
    }

    private func migrate() throws -> StorePreparation {
        let transform = MigrationTransform(
            to: bundle.current, in: bundle, stages: options.stages,
            options: MigrationOptions(allowsPartialHistory: options.allowsPartialHistory), isCancelled: isCancelled)
        var request = request
        guard let last = path.lastComponent, let name = StoreName(last) else { throw StoreError.notAFile(path) }
        let location = StoreLocation(directory: try Directory(request.group), name: name)
        guard let manager = try transform.manager(for: location) else {
            throw StorePreparationError(
                code: "not_core_data", "\(PrintablePath(path)): this store is not Core Data's",
                remedy: "name a store that has the table Z_METADATA")
        }
        guard !manager.steps.isEmpty else { return .upToDate }
        guard options.migratesAutomatically, options.infersMappingModelAutomatically else {
            let code =
                options.migratesAutomatically
                ? CoreDataError.missingMappingModel : CoreDataError.incompatibleVersionHash
            throw MigrationError(
                code, "\(PrintablePath(path)): \(CoreDataError.reason(code))",
                remedy: "let the store be migrated automatically")
        }
        request.transform = transform
        let engine = Relocation(
            request, isCancelled: isCancelled,
            report: { event in
                if case .transforming(let fraction, let doing) = event { progress(fraction, doing) }
            })
        let summary = try engine.transform()
        // Another process was at it, and this one has waited for it.
        guard summary.outcome == .migrated else { return .upToDate }
        let names = manager.steps.map(\.destinationName)
        // So it may have gone a part of the way before.
        let gone = summary.transformed?.before.flatMap { names.lastIndex(of: $0) }.map { $0 + 1 } ?? 0
        return .migrated(through: Array(names.dropFirst(gone)), notes: summary.notes)
    }
}

extension StorePreparationError {
    fileprivate init(_ failure: RelocationFailure) {
        self.init(code: failure.code, failure.message, remedy: failure.remedy)
    }
}
