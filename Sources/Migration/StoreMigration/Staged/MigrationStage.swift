/// One stage of a staged migration. Corresponds to `NSLightweightMigrationStage` and `NSCustomMigrationStage`.
///
/// A stage identifies versions by the `versionChecksum` of their models, which Xcode writes into the build log and
/// `groupstore model hash` prints. An app lists its stages in order, from the oldest version that a store may have to
/// the current one. A store passes through the stages that follow its own version.
///
///     options.stages = [
///         .lightweight(versionChecksums: [v1, v2]),
///         .custom(from: v2, to: v3, label: "trim", didMigrate: { store in
///             guard let table = store.table(of: "Note") else { return }
///             try store.execute("UPDATE \(table) SET ZTITLE = trim(ZTITLE)")
///         }),
///     ]
public enum MigrationStage: Sendable {
    /// Changes the store in a custom stage, before or after its migration. A handler receives the copy that becomes the
    /// store and runs in one transaction. If it throws, the migration ends with ``MigrationError`` and leaves the store
    /// unchanged.
    public typealias Handler = @Sendable (StageStore) throws -> Void

    /// Versions connected by inferred mappings. As in Core Data, a store doesn't pass through the versions of
    /// successive lightweight stages one by one: one mapping is inferred from the store's version to the last of them.
    case lightweight(versionChecksums: [String])
    /// One step by an inferred mapping, with optional work before and after it. `willMigrate` receives the store in the
    /// older version, `didMigrate` in the newer one.
    case custom(
        from: String, to: String, label: String = "", willMigrate: Handler? = nil, didMigrate: Handler? = nil)
}

/// The handlers of a custom stage; see ``MigrationStage``.
public struct MigrationStageHandlers: Sendable {
    /// The developers' name for the stage; may be empty.
    public let label: String
    /// Runs before the step; nil for none.
    public let willMigrate: MigrationStage.Handler?
    /// Runs after the step; nil for none.
    public let didMigrate: MigrationStage.Handler?
}
