/// How a store is made ready to be opened: what `NSPersistentStoreDescription` says of it.
public struct StoreOptions: Sendable {
    public enum JournalMode: Sendable {
        case writeAhead, rollback
    }

    /// `NSMigratePersistentStoresAutomaticallyOption`: a store of another version is migrated, rather than refused.
    public var migratesAutomatically = true
    /// `NSInferMappingModelAutomaticallyOption`: mappings that follow from the models are used.
    public var infersMappingModelAutomatically = true
    /// `NSPersistentStoreStagedMigrationManagerOptionKey`: the way from the oldest version to the current one, with an app's
    /// own work in between. None: the fewest inferred steps.
    public var stages: [MigrationStage] = []
    /// Makes an empty store where there is none.
    public var createsMissingStore = true
    /// Of a store that is made; one that is there keeps its own.
    public var journalMode = JournalMode.writeAhead
    /// `NSPersistentHistoryAllowPartialHistoryMigration`.
    public var allowsPartialHistory = false
    /// How long to wait for others who have the store open.
    public var deadline = Duration.seconds(30)

    public init() {}
}

/// How a store became ready.
public enum StorePreparation: Equatable, Sendable {
    /// It was of the model's version; or it is since another process has just made or migrated it.
    case upToDate
    /// There was none, and this call made an empty one.
    case created
    /// This call migrated it through these versions, the last one the model's; `notes` is what a person should know.
    case migrated(through: [String], notes: [String])
}

/// Why a store could not be made ready. It is as it was.
public struct StorePreparationError: Error, Equatable, Sendable, CustomStringConvertible {
    /// A word that programs can rely on: `in_use`, `no_space`, `audit_failed` where the migrated store didn't hold what the
    /// store held, or `core_data_` and the code of `CoreDataError`.
    public let code: String
    public let message: String
    /// One line: what would help.
    public let remedy: String

    package init(code: String, _ message: String, remedy: String) {
        self.code = code
        self.message = message
        self.remedy = remedy
    }

    public var description: String { "\(message) (\(remedy))" }
}
