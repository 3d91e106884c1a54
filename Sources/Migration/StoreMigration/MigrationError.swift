import LinuxSystem
// Clients that catch any error of the package need not import its module.
@_exported import protocol LinuxSystem.ActionableError
import MappingModels
import MigrationAudit
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// The reason a migration failed. The store itself is unchanged.
///
///     do {
///         let plan = try MigrationPlan(from: old, to: new, named: "Notes 2")
///     } catch let error as MigrationError where error.code == CoreDataError.missingMappingModel {
///         for finding in error.findings { print(finding.message, finding.remedy) }
///     }
public struct MigrationError: ActionableError, Equatable {
    /// An error code of `NSCocoaErrorDomain`; see `CoreDataError`.
    public let code: Int
    /// A description of the failure for a person.
    public let message: String
    /// One line that says how to fix the problem.
    public let remedy: String
    /// The individual reasons, if there are several or if they concern an entity or property; else empty.
    public let findings: [MigrationFinding]
    /// SQLite's extended result code if SQLite is the cause, else nil (https://sqlite.org/rescode.html).
    public let sqliteCode: Int32?
    /// True if the store may be of several versions, so that the migration path is unknown rather than missing.
    package var isAmbiguous = false
    /// True if a mapping model that was named fits no step: whether the store can be migrated is another question.
    package var isOfNamedMapping = false
    /// True if the audit found that the migrated copy doesn't hold what the store held.
    public let isOfTheAudit: Bool
    private let cause: ErrorCause?

    package init(
        _ code: Int, _ message: String, remedy: String, findings: [MigrationFinding] = [], sqliteCode: Int32? = nil,
        isOfTheAudit: Bool = false, underlying: (any Error)? = nil
    ) {
        self.code = code
        self.message = message
        self.remedy = remedy
        self.findings = findings
        self.sqliteCode = sqliteCode
        self.isOfTheAudit = isOfTheAudit
        cause = underlying.map { ErrorCause($0) }
    }

    /// Wraps the error that ended a migration, under Core Data's `code`. `context` precedes its message.
    package init(_ error: any ActionableError, code: Int = CoreDataError.migration, context: String = "") {
        switch error {
        case let error as StoreError: self.init(error)
        case let error as MappingInferenceError:
            self.init(
                CoreDataError.missingMappingModel, error.message, remedy: error.remedy, findings: error.reasons,
                underlying: error)
        default:
            self.init(
                code, context + error.fullMessage, remedy: error.remedy, isOfTheAudit: error is AuditFailure,
                underlying: error)
        }
    }

    /// Wraps a system error on the staged copy at `path` under SQLite's equivalent code: SQLITE_FULL or SQLITE_IOERR.
    init(_ error: SystemError, at path: FilePath) {
        self.init(
            CoreDataError.migration, "\(PrintablePath(path)): \(error)", remedy: "check that there is enough space",
            sqliteCode: error.errno == .noSpace ? 13 : 10, underlying: error)
    }

    /// Wraps an error that SQLite reported during a migration.
    private init(_ error: StoreError) {
        var code = CoreDataError.migration
        var remedy = error.remedy
        if error.isInterruption {
            self.init(CoreDataError.migrationCancelled, "the migration was cancelled", remedy: "none needed")
            return
        }
        if error.isConstraint {
            code = CoreDataError.migrationConstraintViolation
            remedy = "remove one of the duplicate objects, or drop the uniqueness constraint"
        } else if error.isFull {
            remedy = "free space there"
        }
        var result: Int32?
        switch error {
        case .sqlite(let number, _, _), .corrupt(let number, _, _): result = number
        default: break
        }
        self.init(code, error.message, remedy: remedy, sqliteCode: result, underlying: error)
    }
}

extension MigrationError {
    /// The message, followed by Core Data's code unless it is the audit's.
    public var fullMessage: String { isOfTheAudit ? message : "\(message) (Core Data error \(code))" }

    /// The full message, with the remedy in parentheses.
    public var description: String { messageWithRemedy }

    /// The stable code for scripts: `audit_failed`, or `core_data_` followed by Core Data's code.
    public var errorCode: String { isOfTheAudit ? "audit_failed" : "core_data_\(code)" }

    /// The error of SQLite, the system, a mapping model or the audit that is the cause; nil if there is none.
    public var underlyingError: (any Error)? { cause?.error }
}

extension MigrationError {
    /// Returns this error with the paths of the copy and its support folder in the message replaced by the store's.
    package func replacingPath(_ copy: FilePath, with store: FilePath) -> MigrationError {
        // An error that SQLite reported names the directory.
        guard copy == copy.namingItsDirectory else {
            return replacing(copy.namingItsDirectory, with: store).replacing(copy, with: store)
        }
        return replacing(copy, with: store)
    }

    private func replacing(_ copy: FilePath, with store: FilePath) -> MigrationError {
        var text = message
        let names = (copy.lastComponent.flatMap(StoreName.existing), store.lastComponent.flatMap(StoreName.existing))
        if case (let copyName?, let storeName?) = names {
            let copyFolder = copy.removingLastComponent().appending(copyName.support)
            let storeFolder = store.removingLastComponent().appending(storeName.support)
            text = text.replacing(PrintablePath(copyFolder).description, with: PrintablePath(storeFolder).description)
        }
        let suffixes = [
            MigrationManager.newStoreSuffix, MigrationManager.formerSuffix, EarlierState.stepSuffix,
            EarlierState.firstSuffix,
        ]
        let beside = suffixes.map { copy.appending(suffix: $0) }
        for path in beside + [copy] {
            text = text.replacing(PrintablePath(path).description, with: PrintablePath(store).description)
        }
        var error = MigrationError(
            code, text, remedy: remedy, findings: findings, sqliteCode: sqliteCode, isOfTheAudit: isOfTheAudit,
            underlying: underlyingError)
        error.isAmbiguous = isAmbiguous
        error.isOfNamedMapping = isOfNamedMapping
        return error
    }

    /// True if the disk was full or failed; false if the data didn't fit the new model.
    public var isOfTheDisk: Bool {
        // SQLITE_IOERR, SQLITE_FULL, SQLITE_CANTOPEN, SQLITE_READONLY (https://sqlite.org/rescode.html).
        sqliteCode.map { [10, 13, 14, 8].contains($0 & 0xFF) } ?? false
    }
}
