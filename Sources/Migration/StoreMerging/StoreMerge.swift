import Glibc
import LinuxSystem
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import StoreMigration
import StoreRelocation
import SystemPackage

/// The merge of a legacy store's rows into the group's store, in the form that relocations perform
/// (Documentation/Merging.md).
package struct StoreMerge: StoreCombination {
    private let options: MergeOptions
    /// The migration of both stores that comes first; nil for none.
    private let transform: MigrationTransform?
    /// The last state that both stores had; nil if it isn't known.
    private let base: StoreLocation?
    private let isCancelled: @Sendable () -> Bool

    /// - Parameter base: A state that both stores have come from, in a file that is only read: a row of it that one
    ///   store lacks was deleted there. Not together with a migration.
    package init(
        _ options: MergeOptions, after transform: MigrationTransform? = nil, base: StoreLocation? = nil,
        isCancelled: @escaping @Sendable () -> Bool = { false }
    ) {
        self.options = options
        self.transform = transform
        self.base = base
        self.isCancelled = isCancelled
    }

    package func run(
        on staged: StoreLocation, of group: FilePath, merging legacy: StoreLocation,
        report: (RelocationEvent) -> Void
    ) throws -> MergeReport {
        // The staging directory is removed with all that it holds, also after a crash.
        let name: FilePath.Component = "merge"
        try staged.directory.removeTree(name)
        try staged.directory.makeDirectory(name, mode: 0o700)
        let scratch = try staged.directory.directory(name)
        let result = try merge(staged, of: group, legacy, in: scratch, report)
        try staged.directory.removeTree(name)
        return result
    }

    package func rehearse(
        _ group: StoreLocation, merging legacy: StoreLocation, report: (RelocationEvent) -> Void
    ) throws -> MergeReport {
        let place = try ScratchDirectory()
        let directory = try Directory(place.path)
        let copy = StoreLocation(directory: directory, name: group.name)
        try Self.copy(group, to: copy)
        try group.copySupport(to: copy)
        return try withExtendedLifetime(place) {
            try run(on: copy, of: group.path, merging: legacy, report: report)
        }
    }

    // MARK: Steps

    private func merge(
        _ staged: StoreLocation, of group: FilePath, _ legacy: StoreLocation, in scratch: Directory,
        _ report: (RelocationEvent) -> Void
    ) throws -> MergeReport {
        func progress(_ fraction: Double, _ activity: String) {
            report(.transforming(fraction: fraction, activity: activity))
        }
        progress(0, "copying the legacy store")
        let legacyCopy = try Self.location("legacy.sqlite", in: scratch)
        try Self.copy(legacy, to: legacyCopy)
        var notes: [String] = []
        if let transform {
            for (store, owner, path) in [(staged, staged, group), (legacyCopy, legacy, legacy.path)] {
                let transform = transform.planned(for: store)
                guard try transform.isNeeded(store) else { continue }
                let result = try transform.run(on: store, of: path, supportBeside: owner) { fraction, activity in
                    progress(0.4 * fraction, activity)
                }
                notes += result.notes
            }
        }
        let before = try Self.location("before.sqlite", in: scratch)
        try Self.copy(staged, to: before)
        try Self.updateHistory(of: staged)
        let witness = try Self.location("witness.sqlite", in: scratch)
        do {
            let schema = try MergePreparation(
                group: staged, legacy: legacyCopy, model: transform?.targetModel, options: options
            ).schema()
            let changes = try applyBase(staged, before: before, legacy, legacyCopy, schema.schema)
            notes += changes.notes
            var result = try MergeRun(
                schema: schema.schema, newer: schema.newer, options: options, group: staged, legacy: legacy,
                violations: changes.violations, isCancelled: isCancelled
            ).run(
                merging: legacyCopy.pathForSQLite, witness: witness,
                planned: {
                    var plan = $0
                    plan.base = changes.base
                    report(.merging(plan))
                }, progress: { progress(0.4 + 0.4 * $0, $1) })
            if schema.schema.layout == nil {
                result.externalFiles = try SupportFolderUnion(group: staged, legacy: legacy).copy()
            }
            // The schema was changed and changed back: the history notes that its triggers still fit.
            try Self.updateHistory(of: staged)
            progress(0.8, "proving the result")
            try MergeProof(
                schema.schema, options, result, group: staged, before: before, legacy: legacyCopy,
                legacyOwner: legacy, witness: witness
            ).check()
            result.base = changes.base
            result.notes = notes + result.notes
            progress(1, "merged")
            try Self.synchronize(staged)
            return result
        } catch let error as StoreError {
            throw failure(error, of: legacy.path, into: group)
        }
    }

    /// Does to both copies what one side alone has done since the base, and proves it. `before` is a copy of the staged
    /// store, and one of the changed store afterwards.
    private func applyBase(
        _ staged: StoreLocation, before: StoreLocation, _ legacy: StoreLocation, _ legacyCopy: StoreLocation,
        _ schema: MergeSchema
    ) throws -> (base: [MergeReport.Base], notes: [String], violations: ForeignKeyViolations?) {
        guard let base, transform == nil else { return ([], [], nil) }
        guard schema.layout == nil else {
            return ([], ["Core Data's objects have no common base: what one side has deleted may come back"], nil)
        }
        let (outcome, violations) = try Self.applyBase(base, to: staged, legacyCopy, schema)
        try BaseProof(
            outcome.subjects, outcome.changes, group: staged, before: before, legacy: legacyCopy,
            legacyBefore: legacy, base: base
        ).check()
        try before.directory.removeFile(before.name.database)
        try Self.copy(staged, to: before)
        return (outcome.changes, [], violations)
    }

    private static func applyBase(
        _ base: StoreLocation, to staged: StoreLocation, _ legacy: StoreLocation, _ schema: MergeSchema
    ) throws -> (CommonBase.Outcome, ForeignKeyViolations) {
        // The copy is only read from now on.
        _ = try StoreWriter(legacy.pathForSQLite).dropTriggers()
        let store = try StoreWriter(staged.pathForSQLite)
        try store.execute("ATTACH ?1 AS legacy", [.text(legacy.pathForSQLite.sqliteURI)])
        try store.execute("ATTACH ?1 AS base", [.text(base.pathForSQLite.sqliteURI)])
        // A failed run discards the copies.
        for name in ["main", "legacy"] {
            for pragma in ["journal_mode = MEMORY", "synchronous = OFF"] {
                try store.execute("PRAGMA \(name).\(pragma)")
            }
        }
        try store.execute("PRAGMA temp_store = FILE")
        return try store.transaction(.immediate) {
            let triggers = try SuspendedTriggers(store)
            // Before the base is applied, which may take a row from one side and what it refers to from the other.
            let violations = try ForeignKeyViolations(store)
            let outcome = try CommonBase(store, schema).apply()
            try triggers.resume(in: store)
            return (outcome, violations)
        }
    }

    private func failure(_ error: StoreError, of legacy: FilePath, into group: FilePath) -> any Error {
        if error.isInterruption { return RelocationFailure.cancelled(legacy) }
        if error.isConstraint {
            return RelocationFailure.merge(
                "merge_constraint", "the result would violate a constraint: \(PrintableText(error.sqliteMessage))",
                remedy: "choose another key, or keep one of the stores")
        }
        // SQLITE_ERROR: a function or module that only the store's own program has.
        guard case .sqlite(let code, let message, _) = error else { return error }
        guard code == 1 else { return StoreError.sqlite(code: code, message: message, group) }
        return RelocationFailure.mergeUnsupported("SQLite can't perform it: \(message)")
    }

    // MARK: Files

    private static func location(_ name: FilePath.Component, in directory: Directory) throws -> StoreLocation {
        guard let name = StoreName.existing(name) else { throw StoreError.notAFile(directory.path.appending(name)) }
        return StoreLocation(directory: directory, name: name)
    }

    /// Copies a store's pages, with what its log holds.
    private static func copy(_ store: StoreLocation, to copy: StoreLocation) throws {
        _ = try copy.directory.open(copy.name.database, flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        try StoreReader.read(store) { try $0.copy(to: copy.pathForSQLite) }
        // The copy has the header of its original. A connection to it would make a log.
        try StoreWriter(copy.pathForSQLite).execute("PRAGMA journal_mode = DELETE")
    }

    /// Adapts the triggers of a history that groupstore keeps to the schema, so that they record the merge.
    private static func updateHistory(of store: StoreLocation) throws {
        if try StoreReader.read(store, HistorySchema.isKept(in:)) {
            _ = try HistoryInstallation(store).enable()
        }
    }

    private static func synchronize(_ store: StoreLocation) throws {
        let file = try store.directory.open(store.name.database, flags: O_RDWR)
        try file.synchronize(path: store.path)
        try store.directory.synchronize()
    }
}

extension RelocationRequest {
    /// Makes the request merge two stores in conflict. The request's migration, if there is one, must have been added
    /// before.
    package mutating func merge(
        _ options: MergeOptions, isCancelled: @escaping @Sendable () -> Bool = { false }
    ) {
        onConflict = .merge
        combination = StoreMerge(options, after: transform as? MigrationTransform, isCancelled: isCancelled)
    }
}
