import LinuxSystem
import SQLiteStore
import StoreRelocation
import SystemPackage

/// The options for preparing a store. Corresponds to the options of `NSPersistentStoreDescription`.
///
///     var options = StoreOptions()
///     options.deadline = .seconds(10)
///     let preparation = try await model.prepareStore(at: "Notes.sqlite", options: options)
public struct StoreOptions: Sendable {
    /// SQLite's journal mode of a store (https://sqlite.org/pragma.html#pragma_journal_mode).
    public enum JournalMode: Sendable {
        /// Write-ahead logging, the default.
        case writeAhead
        /// A rollback journal.
        case rollback
    }

    /// True to migrate a store of another version, false to refuse it. Corresponds to
    /// `NSMigratePersistentStoresAutomaticallyOption`.
    public var migratesAutomatically = true
    /// True to use mappings inferred from the models, false to refuse a migration with an inferred step. Corresponds to
    /// `NSInferMappingModelAutomaticallyOption`.
    public var infersMappingModelAutomatically = true
    /// The stages from the oldest version to the current one, with an app's own work in between. Empty for the fewest
    /// inferred steps. Corresponds to `NSPersistentStoreStagedMigrationManagerOptionKey`.
    public var stages: [MigrationStage] = []
    /// The files of mapping models to use, before those that lie beside the model. Mapping models precede inference.
    /// One that leads from no version of the model to a later one is an error. Not used if there are ``stages``.
    public var mappingModels: [FilePath] = []
    /// The policy classes, by the names that mapping models use.
    public var policies: EntityMigrationPolicies = [:]
    /// True to create an empty store if there is none.
    public var createsMissingStore = true
    /// The journal mode of a new store. An existing store keeps its own.
    public var journalMode = JournalMode.writeAhead
    /// True if persistent history may lose the changes of removed entities. Corresponds to
    /// `NSPersistentHistoryAllowPartialHistoryMigration`.
    public var allowsPartialHistory = false
    /// The check of all objects by the newest model's rules after a migration.
    public var validation = MigrationValidation.none
    /// The maximum time to wait for other processes that have the store open. The default is 30 seconds.
    public var deadline = Duration.seconds(30)

    /// Creates the default options.
    public init() {}
}

/// The result of preparing a store.
///
///     if case .migrated(let versions, let notes) = preparation { print("migrated through", versions, notes) }
public enum StorePreparation: Equatable, Sendable {
    /// The store has the model's version, possibly because another process has just created or migrated it.
    case upToDate
    /// There was no store, and this call created an empty one.
    case created
    /// This call migrated the store through these versions, of which the last is the model's. `notes` are remarks for a
    /// person, such as removed content.
    case migrated(through: [String], notes: [String])
}

/// The reason a store could not be prepared. The store is unchanged.
///
///     do {
///         _ = try await model.prepareStore(at: "Notes.sqlite")
///     } catch let error as StorePreparationError where error.code == "in_use" {
///         print(error.message, error.remedy)
///     }
public struct StorePreparationError: ActionableError, Equatable {
    /// A stable code for programs, such as `in_use`, `no_space`, `audit_failed` if the migrated store didn't hold what
    /// the store held, or `core_data_` followed by the code of `CoreDataError`.
    public let code: String
    /// A description of the failure for a person.
    public let message: String
    /// One line that says how to fix the problem.
    public let remedy: String
    private let cause: ErrorCause?

    package init(code: String, _ message: String, remedy: String, underlying: (any Error)? = nil) {
        self.code = code
        self.message = message
        self.remedy = remedy
        cause = underlying.map { ErrorCause($0) }
    }

    /// Wraps any error of a preparation.
    package init(_ error: any ActionableError) {
        var (code, message, remedy) = (error.errorCode, error.fullMessage, error.remedy)
        switch error {
        // The message names all findings, as a relocation's does.
        case let error as MigrationError: message = RelocationFailure(error).message
        case is StoreError: code = "sqlite_error"
        case is SystemError: (code, remedy) = ("io_error", "make sure that the directory is writable")
        case let error as NewStore.AlreadyExists:
            (message, remedy) = ("\(PrintablePath(error.path)): something already exists there", "move it away")
        default: break
        }
        self.init(code: code, message, remedy: remedy, underlying: error)
    }

    /// The ``code``.
    public var errorCode: String { code }
    /// The error that caused this one, or nil.
    public var underlyingError: (any Error)? { cause?.error }

    /// The message, with the remedy in parentheses.
    public var description: String { messageWithRemedy }
}
