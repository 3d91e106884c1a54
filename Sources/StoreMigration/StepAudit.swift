import CLinux
import Glibc
import LinuxSystem
import MigrationAudit
import SQLiteStore
import SystemPackage

/// Keeps the state of a staged copy before one migration step and compares the result with it.
struct StepAudit: ~Copyable {
    /// The suffix that forms the snapshot's name from the copy's.
    static let snapshotSuffix = ".before"

    private let staged: FilePath
    /// The store that the copy was made from, if it replaces the snapshot.
    private let original: UnchangedOriginal?
    private let snapshot: FilePath
    let writes = TableWrites()

    /// Takes a snapshot of the copy, unless `original` still has the same content. Throws `SystemError`.
    init(of staged: FilePath, madeFrom original: UnchangedOriginal? = nil) throws {
        self.staged = staged
        self.original = original
        snapshot = FilePath(staged.string + Self.snapshotSuffix)
        if original == nil { try StagedFile.copy(staged, to: snapshot) }
    }

    deinit { if original == nil { _ = snapshot.withPlatformString { unlink($0) } } }

    /// Returns a comparison that may begin before the step's end.
    func earlyComparison(_ step: MigrationStep) -> EarlyComparison {
        EarlyComparison(
            MigratedStoreAudit(from: step.source, to: step.destination, kind: step.auditKind),
            before: original?.path ?? snapshot)
    }

    /// Audits the copy after the step. Throws `MigrationError` if the copy lost content, and `StoreError.busy` if the
    /// store that it was made from has changed in the meantime.
    func check(
        _ step: MigrationStep, after early: EarlyComparison? = nil, isCancelled: @escaping () -> Bool
    ) throws {
        let audit = MigratedStoreAudit(from: step.source, to: step.destination, kind: step.auditKind)
        do {
            try audit.check(
                before: original?.path ?? snapshot, after: staged, writes: writes, early: early,
                isCancelled: isCancelled)
        } catch let failure as AuditFailure {
            try original?.checkUnchanged()
            throw MigrationError(failure)
        }
        try original?.checkUnchanged()
    }
}

/// A store's own database file that is proven unchanged since before its staged copy was made.
struct UnchangedOriginal {
    let path: FilePath
    private let status: FileStatus

    /// Returns nil without such a proof: the store has a log or journal with content, its file changed after the copy's
    /// file was created, or the file system doesn't record the creation time.
    init?(_ path: FilePath, of staged: FilePath) {
        guard let status = FileStatus(following: path), status.kind == .regular, status.size > 0 else { return nil }
        for suffix in ["-wal", "-journal"] {
            if let sideFile = FileStatus(following: FilePath(path.string + suffix)), sideFile.size > 0 { return nil }
        }
        let birth = staged.withPlatformString { gs_birth_time(AT_FDCWD, $0) }
        // Despite the coarse clocks, a change made after the copying began is never older than the copy's file.
        guard birth > 0, status.changed < birth else { return nil }
        self.path = path
        self.status = status
    }

    /// Throws `StoreError.busy` if the file has changed.
    func checkUnchanged() throws {
        let now = FileStatus(following: path)
        guard now?.identity == status.identity, now?.changed == status.changed, now?.size == status.size else {
            throw StoreError.busy(path)
        }
    }
}

extension MigrationStep {
    /// The step's kind in the audit's terms.
    fileprivate var auditKind: MigratedStoreAudit.Kind {
        switch method {
        case .inferred: .inferred
        case .custom(let mapping): .mapped(copied: mapping.copiedEntities(from: source, to: destination))
        }
    }
}
