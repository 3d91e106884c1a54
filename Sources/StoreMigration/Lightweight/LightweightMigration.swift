import CoreDataStore
import ManagedObjectModel
import PersistentStore

/// Runs an inferred mapping on a staged store, set-wise, as Core Data's migrations in place were seen to leave it:
/// objects keep their keys and counters, values their bytes; what has another name or number gets it.
///
/// The new tables are made under names of their own while the old ones are there, since a new table may have an old one's
/// name.
struct LightweightMigration {
    let store: StoreWriter
    let succession: ModelSuccession
    let options: MigrationOptions
    let tables: [TableMigration]
    let schema: StoreSchema
    private let progress: MigrationProgress
    /// What a person should know.
    private(set) var notes: [String] = []

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
        self.options = options
        self.progress = progress
        succession = ModelSuccession(layout, StoreLayout(destination), mapping)
        tables = succession.tableMigrations.map { $0.makingUniqueColumnsAnew(schema) }
    }

    mutating func run() throws {
        var history = HistoryMigration(store, schema, succession)
        try history.refuseLoss(options)
        notes += try LostValues(store, succession).notes()
        var objects = SchemaMigration(store, schema, succession)
        try objects.dropTriggersAndViews()
        try objects.dropSpatialIndexes(tables)
        var links = LinkMigration(store, succession)
        try links.collect(tables)
        for table in tables where !table.isUnchanged {
            noteForeignColumns(of: table)
            try progress.step("migrating \(table.destination.rootEntity)", rows: table.source.map { try rows($0) } ?? 0)
            if alteration(of: table)?.leavesRows != true { try objects.dropIndexes(of: table) }
            try migrate(table)
        }
        try links.dropReplaced()
        try dropSources()
        try giveNames()
        try links.finish()
        try writeEntityNumbers()
        try history.migrate()
        var derived = DerivedValues(store, succession)
        try derived.derive()
        try MandatoryValues(store, succession, tables).check()
        progress.step("making indexes")
        try objects.restore(tables, joins: links.changedTables)
        try writeMetadata()
        notes += objects.notes + history.notes + links.notes + derived.notes
    }

    /// About how many, from the highest key: counting them would take as long as some migrations.
    private func rows(_ table: TableLayout) throws -> Int64 {
        let root = succession.source.numbers.number(of: table.rootEntity)
        return try store.integer("SELECT Z_MAX FROM Z_PRIMARYKEY WHERE Z_ENT = ?", [.integer(root)]) ?? 0
    }

    // MARK: Tables

    private func migrate(_ table: TableMigration) throws {
        guard let source = table.source else {
            return try store.execute(table.destination.creation(as: table.temporary))
        }
        guard let alteration = alteration(of: table) else { return try rebuild(table, source) }
        for statement in alteration.statements { try store.execute(statement) }
        guard !staysInPlace(table) else { return }
        try store.execute("ALTER TABLE \(source.name.sqlName) RENAME TO \(table.temporary.sqlName)")
    }

    private func isAltered(_ table: TableMigration, _ source: TableLayout) -> Bool {
        let isShared = tables.contains {
            $0.destination.name != table.destination.name && $0.source?.name == source.name
        }
        return table.canBeAltered && !isShared && (table.dropped.isEmpty || !isConstrained(source))
            && table.added.isDisjoint(with: foreignColumns(of: source))
    }

    /// A new table has the model's columns only: somebody else's are gone then, as they are with Core Data.
    private mutating func noteForeignColumns(of table: TableMigration) {
        guard let source = table.source, !isAltered(table, source) else { return }
        for column in foreignColumns(of: source) {
            notes.append("the column \(source.name).\(column), which is none of the model's, is dropped")
        }
    }

    private func foreignColumns(of table: TableLayout) -> [String] {
        let known = Set(table.columnNames)
        return (schema.columns[table.name] ?? []).map(\.name).filter { !known.contains($0) }
    }

    /// Whether the statement says more than names and types, as Core Data's of 2015 did of unique columns: those can't be
    /// dropped.
    private func isConstrained(_ table: TableLayout) -> Bool {
        let statement = schema.objects.first { $0.kind == .table && $0.name == table.name }?.creation.uppercased() ?? ""
        return ["CONSTRAINT", "UNIQUE", "CHECK", "REFERENCES", "GENERATED"].contains { statement.contains($0) }
    }

    private func rebuild(_ table: TableMigration, _ source: TableLayout) throws {
        try store.execute(table.destination.creation(as: table.temporary))
        let family = Set(table.numbers.keys)
        let columns = table.destination.orderedColumns.compactMap { column in
            table.columns.first { $0.column == column }
        }
        let targets = TableLayout.ownColumns + columns.map { $0.column.name.sqlName }
        let number = EntityNumberExpression(table.numbers, of: "Z_ENT").text
        let expressions = ["Z_PK", number, "Z_OPT"] + columns.map { $0.expression(succession.numbers, family: family) }
        let condition = table.takesAll ? "" : " WHERE Z_ENT IN (\(family.sorted().list))"
        // Without an index, and so in the order of the keys: rows are appended.
        try store.execute(
            "INSERT INTO \(table.temporary.sqlName) (\(targets.joined(separator: ", "))) "
                + "SELECT \(expressions.joined(separator: ", ")) FROM \(source.name.sqlName) NOT INDEXED\(condition)")
    }

    private func alteration(of table: TableMigration) -> TableAlteration? {
        guard let source = table.source, isAltered(table, source) else { return nil }
        let names = (schema.columns[source.name] ?? []).map(\.name)
        return TableAlteration(table, of: source, succession.numbers, having: names)
    }

    /// Whether it is altered under the name that it has already.
    private func staysInPlace(_ table: TableMigration) -> Bool {
        guard let source = table.source, source.name == table.destination.name else { return false }
        return table.isUnchanged || isAltered(table, source)
    }

    /// What is left of the old tables once all that was to be kept is somewhere else.
    private func dropSources() throws {
        let kept = Set(tables.filter(staysInPlace).compactMap { $0.source?.name })
        for table in succession.source.tables where !kept.contains(table.name) {
            try store.execute("DROP TABLE IF EXISTS \(table.name.sqlName)")
        }
    }

    private func giveNames() throws {
        for table in tables where !staysInPlace(table) {
            try store.execute(
                "ALTER TABLE \(table.temporary.sqlName) RENAME TO \(table.destination.name.sqlName)")
        }
    }
}

extension TableMigration {
    /// Its name until the old tables are gone.
    var temporary: String { "_T_" + destination.name }
}
