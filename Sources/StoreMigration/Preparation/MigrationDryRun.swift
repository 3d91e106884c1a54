import Glibc
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// A migration tried on a copy of the store that nobody else sees, under `$TMPDIR` or `/tmp`, so that `model check` and a dry
/// run say what the migration would.
///
/// The copy has the store's rows where they decide: what a later step or a mapping model meets can't be told from the store
/// as it is now. For one inferred step, `StoreObstacles` judges the rows, and the copy has the schema only.
package struct MigrationDryRun {
    private let manager: MigrationManager

    /// Nil where nothing is to be tried, or can be: what an app's stages do beside the store can't be taken back.
    package init?(_ manager: MigrationManager) {
        guard !manager.steps.isEmpty, manager.steps.allSatisfy({ $0.stage == nil }) else { return nil }
        self.manager = manager
    }

    /// Where objects name external files, too: which of the files none names any more follows from the rows.
    private func needsRows(_ reader: StoreReader) throws -> Bool {
        guard manager.steps.count == 1, let step = manager.steps.first, case .inferred = step.method else {
            return true
        }
        return try ExternalReferences.areNamed(reader, step.source)
    }

    /// Returns what the migration would tell. `losses` is of the rows that were tried: none where there were none. Throws as
    /// `RecordedMigration.run` does, and `SystemError`.
    package func run(on reader: StoreReader) throws -> MigrationOutcome {
        let scratch = try ScratchDirectory()
        guard let name = StoreName("Rehearsal.sqlite") else { return .none }
        let copy = StoreLocation(directory: try Directory(scratch.path), name: name)
        close(try Descriptor(opening: copy.path, flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o600).release())
        guard try needsRows(reader) else { return try runOnSchema(of: reader, copy) }
        try reader.copy(to: copy.path)
        return try RecordedMigration(
            manager, of: copy, copyOf: reader.location.path, supportBeside: reader.location
        ).run { _, _ in }
    }

    /// The rows that a migration reads whatever the model, and those by which a history knows its tables.
    private static let bookkeeping = [
        "Z_PRIMARYKEY", "Z_METADATA", "Z_MODELCACHE", "GS_HISTORY", "GS_TABLE", "GS_AUTHOR", "GS_SUBSCRIBER",
    ]

    private func runOnSchema(of reader: StoreReader, _ copy: StoreLocation) throws -> MigrationOutcome {
        do { try reader.copySchema(to: copy.path, rowsOf: Self.bookkeeping) } catch is StoreError {
            // The store has something that only its own program can make: the run carries it along as it is.
            return MigrationOutcome(losses: .none, remarks: manager.remarks)
        }
        do {
            var outcome = try RecordedMigration(manager, of: copy, copyOf: nil).run { _, _ in }
            outcome.remarks += try manager.steps.flatMap { try MigrationManager.notes(ofRowsIn: reader, $0) }
            return outcome
        } catch let error as MigrationError {
            throw error.naming(reader.location.path, insteadOf: copy.pathForSQLite)
        }
    }
}

/// A directory that is gone with the last reference to it.
private final class ScratchDirectory {
    let path: FilePath

    init() throws {
        let base = FilePath(getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp")
        var template = base.appending("groupstore-XXXXXX").withPlatformString { pointer in
            Array(UnsafeBufferPointer(start: pointer, count: strlen(pointer) + 1))
        }
        guard mkdtemp(&template) != nil else { throw SystemError.last("mkdtemp", path: base) }
        path = FilePath(platformString: template)
    }

    deinit {
        guard let name = path.lastComponent else { return }
        try? Directory(path.removingLastComponent()).removeTree(name)
    }
}
