import CLinux
import Glibc
import LinuxSystem
import MigrationAudit
import SQLiteStore
import SystemPackage

/// Compares a staged copy after one migration step with its state before.
struct StepAudit {
    private let audit: MigratedStoreAudit
    private let staged: FilePath
    private let earlier: EarlierState
    let writes = TableWrites()

    /// - Parameter earlier: The copy's state before the step; nil to take a snapshot now. Throws `SystemError`.
    init(_ step: MigrationStep, of staged: FilePath, since earlier: EarlierState?) throws {
        audit = MigratedStoreAudit(from: step.source, to: step.destination, kind: step.auditKind)
        self.staged = staged
        self.earlier = try earlier ?? EarlierState(copying: staged, suffix: EarlierState.stepSuffix)
    }

    /// Returns a comparison that may begin before the step's end.
    func earlyComparison() -> EarlyComparison { EarlyComparison(audit, before: earlier.path) }

    /// Audits the copy after the step. Throws `MigrationError` if the copy lost content, and `StoreError.busy` if the
    /// store that it was made from has changed in the meantime.
    func check(after early: EarlyComparison? = nil, isCancelled: @escaping () -> Bool) throws {
        try earlier.read { before in
            try audit.check(before: before, after: staged, writes: writes, early: early, isCancelled: isCancelled)
        }
    }
}

/// The content of a staged copy at an earlier time: the store that it was made from, if that is proven unchanged, or
/// else a snapshot, which is removed with this object.
final class EarlierState {
    /// The suffixes that form a snapshot's name from the copy's.
    static let stepSuffix = ".before"
    static let firstSuffix = ".first"

    let path: FilePath
    private let original: UnchangedOriginal?

    /// The state of a copy of `store` that nothing has changed yet. Throws `SystemError`.
    convenience init(of staged: FilePath, madeFrom store: FilePath?) throws {
        if let original = store.flatMap({ UnchangedOriginal($0, of: staged) }) {
            self.init(original)
        } else {
            try self.init(copying: staged, suffix: Self.firstSuffix)
        }
    }

    private init(_ original: UnchangedOriginal) {
        path = original.path
        self.original = original
    }

    /// Takes a snapshot. Throws `SystemError`.
    init(copying staged: FilePath, suffix: String) throws {
        path = staged.appending(suffix: suffix)
        original = nil
        try StagedFile.copy(staged, to: path)
    }

    deinit { if original == nil { _ = path.withPlatformString { unlink($0) } } }

    /// Reads the earlier content. Throws `MigrationError` for a failed audit, and `StoreError.busy` if the content has
    /// changed.
    func read<Result>(_ body: (FilePath) throws -> Result) throws -> Result {
        defer { withExtendedLifetime(self) {} }
        do {
            let result = try body(path)
            try original?.checkUnchanged()
            return result
        } catch let failure as AuditFailure {
            try original?.checkUnchanged()
            throw MigrationError(failure)
        }
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
            if let sideFile = FileStatus(following: path.appending(suffix: suffix)), sideFile.size > 0 { return nil }
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
