import CoreDataStore
import ManagedObjectModels
import MappingModels
import SQLiteStore
import SystemPackage

/// Runs a mapping model: a new store is made, and filled with what the mapping makes of an older one's objects. Three
/// passes over the entity mappings, as `NSMigrationManager` does them: objects, relationships, validation. Where no
/// policy is involved each pass is a few statements for all objects at once.
///
/// Objects keep their keys where each new table is filled from one older table only; otherwise they are numbered from
/// 1. Their save counter begins at 1 again.
package struct MappingMigration {
    let store: StoreWriter
    let plan: MappingPlan
    let policies: EntityMigrationPolicies
    let progress: MigrationProgress
    private let source: FilePath
    private let external: ExternalData
    /// What a person should know.
    package private(set) var notes: [String] = []

    /// - Parameters:
    ///   - store: An empty database, which becomes the new store.
    ///   - source: The older store: a copy, which steps before the migration may change.
    ///   - keeper: The store beside which the support folder lies; nil: `source`.
    ///
    /// Throws `MappingModelError` when the mapping model doesn't lead from the one model to the other, can't be run, or
    /// names a policy that isn't among `policies`; `MigrationError` when the older store isn't what its model says.
    package init(
        _ mapping: MappingModel, into store: StoreWriter, from source: FilePath,
        supportBeside keeper: FilePath? = nil, of old: ManagedObjectModel, to new: ManagedObjectModel,
        policies: EntityMigrationPolicies = [:],
        _ report: @escaping (Double, String) -> Void = { _, _ in }
    ) throws {
        try new.checkLayout()
        let resolved = try mapping.resolved(from: old, to: new)
        try policies.require(of: resolved)
        self.store = store
        self.source = source
        external = ExternalData(of: keeper ?? source)
        self.policies = policies
        let layout: StoreLayout
        let rows: Int64
        (layout, rows) = try Self.look(at: source, old, resolved)
        plan = MappingPlan(resolved, from: layout, to: StoreLayout(new))
        progress = MigrationProgress(total: rows * 3, report)
        do { try plan.check() } catch { throw MappingModelError(error, .invalid, nil) }
    }

    /// The older store's layout as it is there, and how many objects are to be mapped. The steps before are done.
    private static func look(
        at source: FilePath, _ model: ManagedObjectModel, _ mapping: MappingModel
    ) throws -> (StoreLayout, Int64) {
        let older = try StoreWriter(staged: source)
        let schema = try StoreSchema(older)
        let layout = StoreLayout(model).named(as: schema)
        let missing = schema.missing(of: layout)
        guard missing.isEmpty else {
            throw MigrationError(
                CoreDataError.incompatibleSchema,
                "the store lacks what its model says: " + missing.prefix(5).joined(separator: ", "),
                remedy: "restore a backup: the store was changed by hand, or its metadata is of another version")
        }
        try MappingSteps(layout, older).run(mapping.preparations)
        return (layout, try older.objectCount())
    }

    package mutating func run() throws {
        do {
            try SQLFunction.register(store)
            try external.register(store)
            try store.prepareEmptyStore()
            // A new file, which is given up when anything fails: a journal would be of no use.
            for pragma in ["journal_mode = OFF", "synchronous = OFF", "cache_size = -8192"] {
                try store.execute("PRAGMA " + pragma)
            }
            try store.execute("ATTACH ? AS source", [.text(source.string)])
            try store.execute("BEGIN")
            try fill()
            try store.execute("COMMIT")
            try store.execute("DETACH source")
            progress.finish()
        } catch let error as StoreError {
            throw MigrationError(error)
        } catch let fault as MappingFault {
            throw MappingModelError(fault, .invalid, nil)
        }
    }

    private mutating func fill() throws {
        var creation = try DestinationStore(store, plan)
        try creation.create()
        let instances = try InstancePass(store, plan, progress)
        let session = try MigrationSession(store, plan, policies, external)
        defer { session.close() }
        try instances.associate()
        for one in plan.entityMappings where one.isRun || one.usesPolicy {
            try progress.step("making objects: \(one.mapping.name)", rows: instances.rows(of: one))
            if one.usesPolicy { try session.createInstances(one) } else { try instances.insert(one) }
        }
        try session.flush()
        let relationships = RelationshipPass(store, plan)
        for one in plan.entityMappings where one.isRun || one.usesPolicy {
            try progress.step("relating objects: \(one.mapping.name)", rows: instances.rows(of: one))
            if one.usesPolicy { try session.createRelationships(one) } else { try relationships.relate(one) }
        }
        try session.flush()
        try relationships.complete()
        try MappingSteps(plan.destination, store).run(plan.mapping.completions)
        try creation.deriveValues()
        progress.step("indexing")
        try creation.createIndexes()
        progress.step("validating")
        try session.validate()
        try ValidationPass(store, plan).validate()
        try creation.finish()
        notes += creation.notes
    }
}

/// What clears rubbish before and after.
struct MappingSteps {
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
        var compiler = ExpressionCompiler(layout, schema: "main").about(entity, as: "s")
        let numbers = layout.numbers.family(of: entity).map { String(layout.numbers.number(of: $0)) }
        let which: String
        do { which = try condition.map { try compiler.condition($0) } ?? "1" } catch let fault as MappingFault {
            throw MappingModelError(fault.within("drop: " + entity), .invalid, nil)
        }
        try store.execute(
            "DELETE FROM \(table.name.sqlName) AS s WHERE s.Z_ENT IN (\(numbers.joined(separator: ", "))) AND \(which)")
    }
}
