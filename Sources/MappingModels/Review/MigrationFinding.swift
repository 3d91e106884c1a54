/// What can be said of a migration before it is run.
public struct MigrationFinding: Equatable, Sendable {
    public enum Severity: String, Sendable {
        /// The migration is refused.
        case error
        /// It can be run, and then fail or lose values.
        case warning
        /// What it does, and was perhaps not meant.
        case note
    }

    public var severity: Severity
    /// Core Data's error code (CoreDataErrors.h); nil where Core Data says nothing.
    public var code: Int?
    /// The newer model's, else the older's.
    public var entity: String?
    public var property: String?
    /// Core Data's own sentence where it has one.
    public var message: String
    /// One line.
    public var remedy: String
    /// Whether it depends on what the store holds: where that is known, what is found there is said in its place.
    package var isConditional = false
    /// Whether it tells that something is removed, of which a store may hold nothing: there it is counted instead.
    package var isRemoval = false
    /// Whether it tells that something begins anew that was there under another identifier.
    var isLoss = false
    /// Whether it is told when the migration is run, too.
    package var isTold = false

    public init(
        _ severity: Severity, code: Int? = nil, entity: String?, property: String? = nil, _ message: String,
        remedy: String
    ) {
        self.severity = severity
        self.code = code
        self.entity = entity
        self.property = property
        self.message = message
        self.remedy = remedy
    }
}

/// The errors of `NSCocoaErrorDomain` that a migration ends with (CoreDataErrors.h).
public enum CoreDataError {
    /// The model used to open the store is incompatible with the one used to create the store.
    public static let incompatibleVersionHash = 134100
    /// The store's tables are not those of its model.
    public static let incompatibleSchema = 134020
    /// The migration failed.
    public static let migration = 134110
    /// Two objects have what a uniqueness constraint lets only one have.
    public static let migrationConstraintViolation = 134111
    /// The migration was cancelled.
    public static let migrationCancelled = 134120
    /// A mandatory attribute or relationship has no value.
    public static let missingMandatoryProperty = 1570
    public static let relationshipLacksMinimumCount = 1580
    public static let relationshipExceedsMaximumCount = 1590
    /// A migration policy failed.
    public static let entityMigrationPolicy = 134170
    /// There is no model that the store was made with.
    public static let missingSourceModel = 134130
    /// No mapping model was found, and none could be inferred.
    public static let missingMappingModel = 134140
    /// A mapping model could not be inferred.
    public static let inferredMappingModel = 134190

    /// A staged migration's stages name a version that no model has, or leave one out.
    public static let modelReferenceNotFound = 134504
    /// A staged migration would lead to an older version.
    public static let backwardMigration = 134506

    /// What Core Data says with the code, as its reason.
    package static func reason(_ code: Int) -> String {
        switch code {
        case incompatibleVersionHash:
            "The model used to open the store is incompatible with the one used to create the store"
        case missingSourceModel: "Can't find model for source store"
        case missingMappingModel: "Can't find or automatically infer mapping model for migration"
        case inferredMappingModel: "Can't infer mapping model"
        default: "Persistent store migration failed"
        }
    }
}

/// A mapping model can't be inferred: every reason, not the first one only.
public struct MappingInferenceError: Error, Equatable, Sendable {
    public let reasons: [MigrationFinding]
}
