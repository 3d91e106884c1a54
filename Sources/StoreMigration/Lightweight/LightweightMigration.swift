import CoreDataStore
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// Runs an inferred mapping on a staged store, set-wise, as Core Data's migrations in place were seen to leave it:
/// objects keep their keys and counters, values their bytes; what has another name or number gets it.
///
/// The new tables are made under names of their own while the old ones are there, since a new table may have an old one's
/// name.
struct LightweightMigration {
    let store: StoreWriter
    let succession: EntityMatching
    let options: MigrationOptions
    let tables: [TableMigration]
    private let indexes: [StoreIndex]
    private let changes: [TableChange]
    let schema: StoreSchema
    private let temporaries: TemporaryNames
    private let progress: MigrationProgress
    /// What a person should know.
    private(set) var notes: [String] = []
    /// Links that found no place. Those of a way's first step `LossCount` has counted before.
    private(set) var losses: [RemovedContent.Loss] = []

    /// Throws `MigrationError` when the store isn't what its model says.
    init(
        _ store: StoreWriter, from source: ManagedObjectModel, to destination: ManagedObjectModel,
        _ mapping: MappingModel, _ options: MigrationOptions, _ progress: MigrationProgress
    ) throws {
        try destination.checkLayout()
        try store.addCoreDataFunctions()
        let schema = try StoreSchema(store)
        let layout = StoreLayout(source).named(as: schema)
        try schema.check(layout, becoming: StoreLayout(destination))
        self.store = store
        self.schema = schema
        temporaries = TemporaryNames(schema)
        self.options = options
        self.progress = progress
        succession = EntityMatching(layout, StoreLayout(destination), mapping)
        indexes = try StoreIndex.all(store, schema)
        changes = TableChange.all(succession, schema, indexes)
        tables = changes.map(\.table)
    }

    mutating func run() throws {
        // Looked at anew: the copy may be of a later moment than the one that was checked.
        let obstacles = try StoreObstacles(store, schema, succession).find(options)
        if let error = MigrationError(obstacles, in: store.path) { throw error }
        var history = HistoryMigration(store, schema, succession)
        try history.removeChangesOfRemoved()
        var objects = SchemaMigration(store, schema, succession, indexes)
        try objects.dropTriggersAndViews()
        try objects.dropIndexesInTheWay()
        try objects.dropSpatialIndexes(tables)
        var joins = JoinTableMigration(store, succession, temporaries)
        try joins.collect()
        var references = ReferenceMigration(store, succession)
        try references.collect(tables)
        var strays = UnknownEntityRows(store, indexes)
        for change in changes {
            try strays.look(change)
            if case .kept = change.way { continue }
            let table = change.table
            noteForeignColumns(of: change)
            try progress.step("migrating \(table.destination.rootEntity)", rows: table.source.map { try rows($0) } ?? 0)
            try objects.dropIndexes(of: change)
            try migrate(change, &strays)
        }
        try joins.dropReplaced()
        try dropSources()
        try giveNames()
        try joins.finish()
        try references.finish()
        try writeEntityNumbers()
        try history.migrate()
        var derived = DerivedValues(store, succession)
        try derived.derive()
        progress.step("making indexes")
        try objects.restore(tables, joins: joins.changedTables)
        try writeMetadata()
        notes += strays.notes + objects.notes + history.notes + derived.notes
        losses = references.losses
    }

    /// About how many, from the highest key: counting them would take as long as some migrations.
    private func rows(_ table: TableLayout) throws -> Int64 {
        let root = succession.source.numbers.number(of: table.rootEntity)
        return try store.integer("SELECT Z_MAX FROM Z_PRIMARYKEY WHERE Z_ENT = ?", [.integer(root)]) ?? 0
    }

    // MARK: Tables

    private func migrate(_ change: TableChange, _ strays: inout UnknownEntityRows) throws {
        let table = change.table
        switch change.way {
        case .kept: break
        case .created: try store.execute(table.destination.creation(as: temporaries.name(for: table.destination.name)))
        case .rebuilt(let source): try rebuild(table, source)
        case .altered(let alteration):
            for statement in alteration.statements {
                try store.execute(statement)
                guard statement == alteration.renumbering, let name = table.source?.name else { continue }
                try strays.look(afterRenumbering: name, of: store.changes)
            }
            guard !change.staysInPlace, let source = table.source else { return }
            try store.execute("ALTER TABLE \(source.name.sqlName) RENAME TO \(temporary(table))")
        }
    }

    /// A new table has the model's columns only: somebody else's are gone then, as they are with Core Data.
    private mutating func noteForeignColumns(of change: TableChange) {
        for column in change.lostColumns {
            let name = change.table.source?.name ?? ""
            notes.append("the column \(name).\(column), which is none of the model's, is dropped")
        }
    }

    private func rebuild(_ table: TableMigration, _ source: TableLayout) throws {
        try store.execute(table.destination.creation(as: temporaries.name(for: table.destination.name)))
        let family = Set(table.numbers.keys)
        let columns = table.destination.orderedColumns.compactMap { column in
            table.columns.first { $0.column == column }
        }
        let targets = TableLayout.ownColumns + columns.map { $0.column.name.sqlName }
        let number = EntityNumberExpression(table.numbers, of: "Z_ENT").text
        let expressions = ["Z_PK", number, "Z_OPT"] + columns.map { $0.expression(succession.numbers, family: family) }
        // Without an index, and so in the order of the keys: rows are appended.
        try store.execute(
            "INSERT INTO \(temporary(table)) (\(targets.joined(separator: ", "))) "
                + "SELECT \(expressions.joined(separator: ", ")) FROM \(source.name.sqlName) NOT INDEXED\(table.rowCondition)"
        )
    }

    /// What is left of the old tables once all that was to be kept is somewhere else.
    private func dropSources() throws {
        let kept = Set(changes.filter(\.staysInPlace).compactMap { $0.table.source?.name })
        for table in succession.source.tables where !kept.contains(table.name) {
            try store.execute("DROP TABLE IF EXISTS \(table.name.sqlName)")
        }
    }

    /// The table's name until the old ones are gone, as SQL writes it.
    private func temporary(_ table: TableMigration) -> String {
        temporaries.name(for: table.destination.name).sqlName
    }

    private func giveNames() throws {
        for table in changes.filter({ !$0.staysInPlace }).map(\.table) {
            try store.execute(
                "ALTER TABLE \(temporary(table)) RENAME TO \(table.destination.name.sqlName)")
        }
    }
}

extension MigrationManager {
    /// Returns what a step's migration would note of the rows of a store that is only read. Throws `StoreError`.
    package static func notes(ofRowsIn reader: StoreReader, _ step: MigrationStep) throws -> [String] {
        guard case .inferred(let mapping) = step.method else { return [] }
        let schema = try StoreSchema(reader)
        let source = StoreLayout(step.source).named(as: schema)
        let succession = EntityMatching(source, StoreLayout(step.destination), mapping)
        let indexes = try StoreIndex.all(reader, schema)
        var strays = UnknownEntityRows(reader, indexes)
        for change in TableChange.all(succession, schema, indexes) {
            try strays.look(change, isRenumberingToCome: true)
        }
        return strays.notes + (try HistoryMigration.notes(reader, schema, succession))
    }
}
