import LinuxSystem

/// A fact about a migration that is known before it runs.
///
///     for finding in try mappingModel.review(from: old, to: new) where finding.severity != .note {
///         print(finding.entity ?? "", finding.property ?? "", finding.message, finding.remedy)
///     }
public struct MigrationFinding: Equatable, Sendable {
    /// The weight of a finding.
    public enum Severity: String, Sendable {
        /// The migration is refused.
        case error
        /// The migration can run, but may fail or lose values.
        case warning
        /// The migration has a possibly unintended effect.
        case note
    }

    /// The weight of the finding.
    public var severity: Severity
    /// Core Data's error code (CoreDataErrors.h); nil if Core Data reports no error.
    public var code: Int?
    /// The name of the entity in the newer model, else in the older one; nil if no entity is concerned.
    public var entity: String?
    /// The name of the property; nil if no single property is concerned.
    public var property: String?
    /// The message for a person, in Core Data's words if it has any.
    public var message: String
    /// One line that says how to fix the problem.
    public var remedy: String
    /// True if the finding depends on the store's content. An inspection of the store replaces it.
    package var isConditional = false
    /// True if the finding reports a removal. An inspection of the store replaces it with the removed amount.
    package var isRemoval = false
    /// True if the finding warns of content that may change or be lost. A count of the store's losses replaces it.
    package var isCounted = false
    /// True if an element loses its content because it had another renaming identifier before.
    var isLoss = false
    /// True if the migration also reports the finding when it runs.
    package var isReportedAtRun = false

    /// Creates a finding.
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

extension MigrationFinding {
    /// The entity and property, if any, followed by the message.
    package var sentence: String {
        let subject = [entity, property].compactMap(\.self).joined(separator: ".")
        return subject.isEmpty ? message : subject + ": " + message
    }
}

/// The error codes of `NSCocoaErrorDomain` for migrations (CoreDataErrors.h); see ``MigrationFinding/code``.
public enum CoreDataError {
    /// The model used to open the store is incompatible with the one used to create the store.
    public static let incompatibleVersionHash = 134100
    /// The store's tables are not those of its model.
    public static let incompatibleSchema = 134020
    /// The migration failed.
    public static let migration = 134110
    /// Two objects violate a uniqueness constraint.
    public static let migrationConstraintViolation = 134111
    /// The migration was cancelled.
    public static let migrationCancelled = 134120
    /// An object breaks a validation rule.
    public static let validation = 1550
    /// Several objects or properties are not valid.
    public static let multipleValidationFaults = 1560
    /// The delete rule of a relationship denies the deletion of an object.
    public static let deniedDelete = 1600
    /// A mandatory attribute or relationship has no value.
    public static let missingMandatoryProperty = 1570
    /// A relationship has fewer objects than its minimum count.
    public static let relationshipLacksMinimumCount = 1580
    /// A relationship has more objects than its maximum count.
    public static let relationshipExceedsMaximumCount = 1590
    /// A migration policy failed.
    public static let entityMigrationPolicy = 134170
    /// The model that created the store was not found.
    public static let missingSourceModel = 134130
    /// No mapping model was found, and none could be inferred.
    public static let missingMappingModel = 134140
    /// A mapping model could not be inferred.
    public static let inferredMappingModel = 134190

    /// The stages of a staged migration name a version that no model has, or omit a version.
    public static let modelReferenceNotFound = 134504
    /// A staged migration would lead to an older version.
    public static let backwardMigration = 134506

    /// Returns Core Data's reason for the code.
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

/// The error for models between which no mapping can be inferred.
public struct MappingInferenceError: ActionableError, Equatable {
    /// Every reason, at least one.
    public let reasons: [MigrationFinding]

    /// `core_data_` followed by the code of `NSMigrationMissingMappingModelError`.
    public var errorCode: String { "core_data_\(CoreDataError.missingMappingModel)" }
    /// Core Data's reason and the first of ``reasons``.
    public var message: String {
        CoreDataError.reason(CoreDataError.missingMappingModel) + (reasons.first.map { ": " + $0.sentence } ?? "")
    }
    /// The remedy of the first of ``reasons``.
    public var remedy: String { reasons.first?.remedy ?? "write a mapping model" }
    /// The message, with the remedy in parentheses.
    public var description: String { messageWithRemedy }
}
