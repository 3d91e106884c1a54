import CLinux
import Glibc
import LinuxSystem
import MigrationAudit
import SQLiteStore
import SystemPackage

/// Keeps what a staged copy was before one step of a migration, and holds what it became against that.
struct StepAudit: ~Copyable {
    /// Of the copy's name, what it was before the step.
    static let snapshotSuffix = ".before"

    private let staged: FilePath
    /// The store that the copy was made of, where it stands in for a snapshot.
    private let original: UnchangedOriginal?
    private let snapshot: FilePath
    let writes = TableWrites()

    /// Takes a snapshot of the copy, unless it is still what `original` is. Throws `SystemError`.
    init(of staged: FilePath, madeFrom original: UnchangedOriginal? = nil) throws {
        self.staged = staged
        self.original = original
        snapshot = FilePath(staged.string + Self.snapshotSuffix)
        if original == nil { try StagedFile.copy(staged, to: snapshot) }
    }

    deinit { if original == nil { _ = snapshot.withPlatformString { unlink($0) } } }

    /// Throws `MigrationError` where the copy doesn't hold what it held, and `StoreError.busy` where the store that it was
    /// made of has changed meanwhile.
    func check(_ step: MigrationStep, isCancelled: @escaping () -> Bool) throws {
        let audit = MigratedStoreAudit(from: step.source, to: step.destination, kind: step.auditKind)
        do {
            try audit.check(
                before: original?.path ?? snapshot, after: staged, writes: writes, isCancelled: isCancelled)
        } catch let failure as AuditFailure {
            try original?.checkUnchanged()
            throw MigrationError(failure)
        }
        try original?.checkUnchanged()
    }
}

/// A store's own database file, proved to have been the same since before the staged copy of it was made.
struct UnchangedOriginal {
    let path: FilePath
    private let status: FileStatus

    /// Nil where that can't be proved: it has a log or a journal with content, its file changed after the copy's file had
    /// been made, or the file system doesn't tell when that was.
    init?(_ path: FilePath, of staged: FilePath) {
        guard let status = FileStatus(following: path), status.kind == .regular, status.size > 0 else { return nil }
        for suffix in ["-wal", "-journal"] {
            if let other = FileStatus(following: FilePath(path.string + suffix)), other.size > 0 { return nil }
        }
        let birth = staged.withPlatformString { gs_birth_time(AT_FDCWD, $0) }
        // Coarse as these clocks are, a change after the copy was begun isn't older than the copy's file.
        guard birth > 0, status.changed < birth else { return nil }
        self.path = path
        self.status = status
    }

    /// Throws `StoreError.busy`.
    func checkUnchanged() throws {
        let now = FileStatus(following: path)
        guard now?.identity == status.identity, now?.changed == status.changed, now?.size == status.size else {
            throw StoreError.busy(path)
        }
    }
}

extension MigrationStep {
    /// What an audit has to know of how it is done.
    fileprivate var auditKind: MigratedStoreAudit.Kind {
        switch method {
        case .inferred: .inferred
        case .custom(let mapping): .mapped(copied: mapping.copiedEntities(from: source, to: destination))
        }
    }
}
