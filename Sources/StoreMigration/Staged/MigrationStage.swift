/// One stage of a staged migration: `NSLightweightMigrationStage`, `NSCustomMigrationStage`. Versions go by their models'
/// `versionChecksum`, which Xcode writes into the build log and `groupstore model hash` prints.
///
/// An app gives its stages in order, from the oldest version that a store may be of to the current one; a store goes through
/// those that lie behind its own version.
public enum MigrationStage: Sendable {
    /// What is done in a custom stage, before or after its migration: with the copy that becomes the store, in one
    /// transaction. What it throws ends the migration; the store is as it was.
    public typealias Handler = @Sendable (StageStore) throws -> Void

    /// Versions between which mappings are inferred. As Core Data does it, versions of stages that follow each other are
    /// not gone through one by one: the mapping is inferred from the store's version to the last.
    case lightweight(versionChecksums: [String])
    /// One step, with work before and after: the mapping between is inferred. `willMigrate` sees the store of the older
    /// version, `didMigrate` that of the newer.
    case custom(
        from: String, to: String, label: String = "", willMigrate: Handler? = nil, didMigrate: Handler? = nil)
}

/// What a custom stage does besides migrating.
public struct MigrationStageHandlers: Sendable {
    /// What developers call the stage; may be empty.
    public let label: String
    public let willMigrate: MigrationStage.Handler?
    public let didMigrate: MigrationStage.Handler?
}
