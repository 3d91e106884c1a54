import CoreDataStore
import ManagedObjectModels
import MappingModels
import MigrationAudit
import SQLiteStore
import SystemPackage

/// Runs a mapping model: creates a new store, and fills it with what the mapping creates from an older store's objects.
/// Like `NSMigrationManager`, it makes three passes over the entity mappings: objects, relationships, validation.
/// Without a policy, each pass is a few statements for all objects at once.
///
/// Objects keep their keys if each new table is filled from a single older table; otherwise they are numbered from 1.
/// Their save counter starts at 1 again.
package struct MappingMigration {
    let store: StoreWriter
    let plan: MappingPlan
    let policies: EntityMigrationPolicies
    let progress: MigrationProgress
    private let source: FilePath
    private let external: ExternalData
    /// A comparison that begins once the tables are filled; nil for none.
    var comparison: EarlyComparison?
    /// Remarks for the user.
    package private(set) var notes: [String] = []
    /// The name of the newer version, if dropped objects are compared with the delete rules.
    private var deletionVersion: String?
    /// The number of older objects that an entity mapping's condition excludes, by entity, as far as the migration
    /// counts them.
    private(set) var excludedCounts: [String: Int64] = [:]
    /// The dropped objects whose deletion a delete rule would have denied.
    private(set) var deniedDeletions: [InvalidContent.Fault] = []

    /// - Parameters:
    ///   - store: An empty database, which becomes the new store.
    ///   - source: The older store. It is a copy, since the steps before the migration may change it.
    ///   - supportOwner: The store whose support folder is used; nil for `source`.
    ///
    /// Throws `MappingModelError` if the mapping model doesn't fit the two models, can't be run, or names a policy that
    /// isn't in `policies`, and `MigrationError` if the older store doesn't match its model.
    package init(
        _ mapping: MappingModel, into store: StoreWriter, from source: FilePath,
        supportBeside supportOwner: FilePath? = nil, of old: ManagedObjectModel, to new: ManagedObjectModel,
        policies: EntityMigrationPolicies = [:],
        _ report: @escaping (Double, String) -> Void = { _, _ in }
    ) throws {
        try new.checkLayout()
        let resolved = try mapping.resolved(from: old, to: new)
        try policies.require(of: resolved)
        self.store = store
        self.source = source
        external = ExternalData(of: supportOwner ?? source)
        self.policies = policies
        let layout: StoreLayout
        let rows: Int64
        (layout, rows) = try Self.prepareSource(source, model: old, mapping: resolved)
        plan = MappingPlan(resolved, from: layout, to: layout.layout(for: new))
        progress = MigrationProgress(total: rows * 3, report)
        do { try plan.check() } catch { throw MappingModelError(error, code: .invalid, at: nil) }
    }

    /// Runs the steps before the migration, and returns the older store's actual layout and its number of objects.
    private static func prepareSource(
        _ source: FilePath, model: ManagedObjectModel, mapping: MappingModel
    ) throws -> (StoreLayout, Int64) {
        let older = try StoreWriter(staged: source)
        let schema = try DatabaseSchema(older)
        let layout = StoreLayout(model).usingJoinTableNames(of: schema)
        let missing = schema.missingParts(of: layout)
        guard missing.isEmpty else {
            throw MigrationError(
                CoreDataError.incompatibleSchema,
                "the store lacks tables or columns of its model: " + missing.prefix(5).joined(separator: ", "),
                remedy: "restore a backup: the store was edited by hand, or its metadata belongs to another version")
        }
        try MappingStepRunner(layout, older).run(mapping.preparations)
        return (layout, try older.objectCount())
    }

    package mutating func run() throws {
        do {
            try SQLFunction.register(store)
            try external.register(store)
            // A journal would be useless, since the new file is discarded if anything fails.
            for pragma in ["journal_mode = OFF", "synchronous = OFF", "cache_size = -8192"] {
                try store.execute("PRAGMA " + pragma)
            }
            try store.prepareEmptyStore()
            try store.execute("ATTACH ? AS source", [.text(source.sqliteURI)])
            try fillAndFinish()
            try store.execute("DETACH source")
            progress.finish()
        } catch let error as StoreError {
            throw MigrationError(error)
        } catch let fault as MappingFault {
            throw MappingModelError(fault, code: .invalid, at: nil)
        }
    }

    /// Two transactions: another connection can read the tables while their indexes are built.
    private mutating func fillAndFinish() throws {
        var creation = try DestinationStore(store, plan)
        let session = try MigrationSession(store, plan: plan, policies: policies, external: external)
        defer { session.close() }
        let valuesAreValid = try store.transaction(.deferred) { try fill(&creation, session) }
        if hasOnlyPlainMappings { comparison?.begin(store.path) }
        let writeback = EarlyWriteback(of: store.path)
        defer { writeback.finish() }
        try store.transaction(.deferred) { try finish(&creation, session, valuesAreValid: valuesAreValid) }
    }

    /// Returns true if all values are known to be valid.
    private mutating func fill(_ creation: inout DestinationStore, _ session: MigrationSession) throws -> Bool {
        try creation.create()
        let written = try hasOnlyPlainMappings ? WrittenValues(store, plan) : nil
        let instances = try InstancePass(store, plan, progress: progress)
        try instances.associate()
        func map(
            _ step: String, byPolicy: (EntityMappingPlan) throws -> Void, plainly: (EntityMappingPlan) throws -> Void
        ) throws {
            for entityPlan in plan.entityMappings where entityPlan.mapsObjects || entityPlan.usesPolicy {
                try progress.step("\(step): \(entityPlan.mapping.name)", rows: instances.rows(of: entityPlan))
                try entityPlan.usesPolicy ? byPolicy(entityPlan) : plainly(entityPlan)
            }
            try session.flush()
        }
        try map("making objects", byPolicy: session.createInstances, plainly: instances.insert)
        excludedCounts = instances.excludedCounts
        let relationships = RelationshipPass(store, plan)
        try map("relating objects", byPolicy: session.createRelationships, plainly: { try relationships.relate($0) })
        try relationships.complete()
        try MappingStepRunner(plan.destination, store).run(plan.mapping.completions)
        try creation.deriveValues()
        return try written?.finish() ?? false
    }

    private mutating func finish(
        _ creation: inout DestinationStore, _ session: MigrationSession, valuesAreValid: Bool
    ) throws {
        progress.step("indexing")
        try creation.createIndexes()
        progress.step("validating")
        try session.validate()
        try ValidationPass(store, plan, valuesAreValid: valuesAreValid).validate()
        if let deletionVersion {
            deniedDeletions = try DeniedDeletions(store, plan, to: deletionVersion).faults()
        }
        try creation.finish()
        notes += creation.notes
    }

    /// True if the migration's own statements write all values.
    private var hasOnlyPlainMappings: Bool {
        plan.mapping.completions.isEmpty && !plan.entityMappings.contains(where: \.usesPolicy)
    }

    /// Compares the dropped objects with the delete rules, for a migration to the version of this name.
    mutating func findsDeniedDeletions(to version: String) { deletionVersion = version }
}

/// Runs a mapping model's own steps, which clean up a store before or after the migration.
struct MappingStepRunner {
    private let layout: StoreLayout
    private let store: StoreWriter

    init(_ layout: StoreLayout, _ store: StoreWriter) {
        self.layout = layout
        self.store = store
    }

    func run(_ steps: [MappingStep]) throws {
        guard !steps.isEmpty else { return }
        try SQLFunction.register(store)
        // Core Data's triggers call functions that only it has.
        try store.addCoreDataFunctions()
        for step in steps {
            switch step {
            case .drop(let entity, let condition): try drop(entity, condition)
            case .sql(let statement): try store.execute(statement)
            }
        }
    }

    private func drop(_ entity: String, _ condition: MappingPredicate?) throws {
        guard let table = layout.table(of: entity) else { return }
        var compiler = ExpressionCompiler(layout, schema: "main").scoped(to: entity, as: "s")
        let numbers = layout.numbers.family(of: entity).map { String(layout.numbers.number(of: $0)) }
        let filter: String
        do { filter = try condition.map { try compiler.condition($0) } ?? "1" } catch let fault as MappingFault {
            throw MappingModelError(fault.within("drop: " + entity), code: .invalid, at: nil)
        }
        try store.execute(
            "DELETE FROM \(table.name.sqlName) AS s WHERE s.Z_ENT IN (\(numbers.joined(separator: ", "))) AND \(filter)"
        )
    }
}
