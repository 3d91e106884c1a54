import LinuxSystem
import MappingModels
import MigrationAudit
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// Why a migration ended: nothing of the store was changed.
public struct MigrationError: Error, Equatable, Sendable {
    /// Of `NSCocoaErrorDomain`: see `CoreDataError`.
    public let code: Int
    public let message: String
    /// One line: what would help.
    public let remedy: String
    /// Each reason on its own, where there are several or they have an entity and property.
    public let findings: [MigrationFinding]
    /// SQLite's extended result code, where that is the cause (https://sqlite.org/rescode.html).
    public let sqliteCode: Int32?
    /// Whether the store may be of several versions: what can be done is not known, rather than that nothing can.
    package var isAmbiguous = false
    /// Whether the migrated copy was found not to hold what the store held.
    public let isOfTheAudit: Bool

    package init(
        _ code: Int, _ message: String, remedy: String, findings: [MigrationFinding] = [], sqliteCode: Int32? = nil,
        isOfTheAudit: Bool = false
    ) {
        self.code = code
        self.message = message
        self.remedy = remedy
        self.findings = findings
        self.sqliteCode = sqliteCode
        self.isOfTheAudit = isOfTheAudit
    }

    init(_ failure: AuditFailure) {
        self.init(CoreDataError.migration, "\(failure)", remedy: failure.remedy, isOfTheAudit: true)
    }

    /// What the system said of the staged copy at `path`, as SQLite would have: SQLITE_FULL or SQLITE_IOERR.
    init(_ error: SystemError, at path: FilePath) {
        self.init(
            CoreDataError.migration, "\(PrintablePath(path)): \(error)", remedy: "see that there is space",
            sqliteCode: error.errno == .noSpace ? 13 : 10)
    }

    /// What SQLite said while a migration ran.
    package init(_ error: StoreError) {
        var code = CoreDataError.migration
        var remedy = error.remedy
        if error.isInterruption {
            self.init(CoreDataError.migrationCancelled, "the migration was cancelled", remedy: "none needed")
            return
        }
        if error.isConstraint {
            code = CoreDataError.migrationConstraintViolation
            remedy = "remove one of the objects that have the same, or leave the uniqueness constraint out"
        } else if error.isFull {
            remedy = "free space there"
        }
        var result: Int32?
        switch error {
        case .sqlite(let number, _, _), .corrupt(let number, _, _): result = number
        default: break
        }
        self.init(code, "\(error)", remedy: remedy, sqliteCode: result)
    }
}

extension MigrationError: CustomStringConvertible {
    public var description: String { isOfTheAudit ? message : "\(message) (Core Data error \(code))" }

    /// The word for scripts: `audit_failed`, or `core_data_` and Core Data's code.
    package var word: String { isOfTheAudit ? AuditFailure.code : "core_data_\(code)" }
}

extension MigrationError {
    /// The same with the store's name, and that of its support folder, where the message has those of the copy.
    package func naming(_ store: FilePath, insteadOf copy: FilePath) -> MigrationError {
        var text = message
        let names = (copy.lastComponent.flatMap(StoreName.init), store.lastComponent.flatMap(StoreName.init))
        if case (let copied?, let known?) = names {
            let folder = copy.removingLastComponent().appending(copied.support)
            let wanted = store.removingLastComponent().appending(known.support)
            text = text.replacing(PrintablePath(folder).description, with: PrintablePath(wanted).description)
        }
        let beside = [MigrationManager.newStoreSuffix, StepAudit.snapshotSuffix].map { FilePath(copy.string + $0) }
        for path in beside + [copy] {
            text = text.replacing(PrintablePath(path).description, with: PrintablePath(store).description)
        }
        var error = MigrationError(
            code, text, remedy: remedy, findings: findings, sqliteCode: sqliteCode, isOfTheAudit: isOfTheAudit)
        error.isAmbiguous = isAmbiguous
        return error
    }

    /// Whether the disk was full or failed, rather than that the data didn't fit.
    public var isOfTheDisk: Bool {
        // SQLITE_IOERR, SQLITE_FULL, SQLITE_CANTOPEN, SQLITE_READONLY (https://sqlite.org/rescode.html).
        sqliteCode.map { [10, 13, 14, 8].contains($0 & 0xFF) } ?? false
    }
}
