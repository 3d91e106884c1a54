import CoreDataStore
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// Runs an inferred mapping on a staged store with SQL over whole tables. The result is what Core Data's migrations in
/// place were seen to leave: objects keep their keys and save counters, values keep their bytes, names and numbers are
/// updated.
///
/// New tables have temporary names while the old ones exist, since a new table may have an old one's name.
struct LightweightMigration {
    let store: StoreWriter
    let matching: EntityMatching
    let options: MigrationOptions
    let tables: [TableMigration]
    private let indexes: [StoreIndex]
    private let changes: [TableChange]
    let schema: DatabaseSchema
    private let temporaryNames: TemporaryNames
    private let progress: MigrationProgress
    /// Remarks for the user.
    private(set) var notes: [String] = []

    /// Throws `MigrationError` if the store doesn't match its model.
    init(
        _ store: StoreWriter, from source: ManagedObjectModel, to destination: ManagedObjectModel,
        mapping: MappingModel, options: MigrationOptions, progress: MigrationProgress
    ) throws {
        try destination.checkLayout()
        try store.addCoreDataFunctions()
        let schema = try DatabaseSchema(store)
        let layout = StoreLayout(source).usingJoinTableNames(of: schema)
        let next = layout.layout(for: destination)
        try schema.check(layout, becoming: next)
        self.store = store
        self.schema = schema
        temporaryNames = TemporaryNames(schema)
        self.options = options
        self.progress = progress
        matching = EntityMatching(from: layout, to: next, mapping: mapping)
        indexes = StoreIndex.all(schema)
        changes = TableChange.all(for: matching, schema: schema, indexes: indexes)
        tables = changes.map(\.table)
    }

    mutating func run() throws {
        // Checked again, because the copy may be newer than the store that was checked.
        let obstacles = StoreObstacles(store, schema: schema, matching: matching)
        if let error = MigrationError(try obstacles.find(options), in: store.path) { throw error }
        notes += try obstacles.abstractObjects().map(\.sentence)
        let objectReferences = ObjectReferences(store, schema: schema, matching: matching)
        notes += try objectReferences.notes() + objectReferences.suspicions
        try objectReferences.deleteObsolete()
        var objects = SchemaMigration(store, schema: schema, matching: matching, indexes: indexes)
        try objects.dropTriggersAndViews()
        try objects.dropConflictingIndexes()
        try objects.dropSpatialIndexes(tables)
        var joins = JoinTableMigration(store, matching: matching, temporaryNames: temporaryNames)
        try joins.collect()
        var references = ReferenceMigration(store, matching)
        try references.collect(tables)
        var unknownRows = UnknownEntityRows(store, indexes)
        for change in changes {
            try unknownRows.inspect(change)
            if let statement = unknownRows.release(change) { try store.execute(statement) }
            if case .kept = change.method { continue }
            let table = change.table
            noteForeignColumns(of: change)
            try noteDefaults(in: table)
            try progress.step("migrating \(table.destination.rootEntity)", rows: table.source.map { try rows($0) } ?? 0)
            try objects.dropIndexes(of: change)
            try migrate(change, &unknownRows)
        }
        try joins.dropReplaced()
        try dropSources()
        try assignFinalNames()
        try joins.finish()
        try references.finish()
        try writeEntityNumbers()
        try HistoryMigration(store, schema: schema, matching: matching).migrate()
        try objectReferences.renumber()
        try objectReferences.rename()
        var derived = DerivedValues(store, matching)
        try derived.derive()
        progress.step("making indexes")
        try objects.restore(tables, joins: joins.changedTables)
        try writeMetadata()
        notes += unknownRows.notes + joins.notes + objects.notes + derived.notes
    }

    /// The approximate number of rows, taken from the highest key: counting them would take as long as some migrations.
    private func rows(_ table: TableLayout) throws -> Int64 {
        let root = matching.source.numbers.number(of: table.rootEntity)
        return try store.integer("SELECT Z_MAX FROM Z_PRIMARYKEY WHERE Z_ENT = ?", [.integer(root)]) ?? 0
    }

    // MARK: Tables

    private func migrate(_ change: TableChange, _ unknownRows: inout UnknownEntityRows) throws {
        let table = change.table
        switch change.method {
        case .kept: break
        case .created:
            try store.execute(table.destination.creation(as: temporaryNames.name(for: table.destination.name)))
        case .rebuilt(let source): try rebuild(table, source)
        case .altered(let alteration):
            for statement in alteration.statements {
                try store.execute(statement)
                guard statement == alteration.renumbering, let name = table.source?.name else { continue }
                try unknownRows.inspect(afterRenumbering: name, updated: store.changes)
            }
            guard !change.staysInPlace, let source = table.source else { return }
            try store.execute("ALTER TABLE \(source.name.sqlName) RENAME TO \(temporary(table))")
        }
    }

    /// Reports columns that aren't the model's and are lost with their table: a new table has the model's columns only,
    /// as with Core Data.
    private mutating func noteForeignColumns(of change: TableChange) {
        for column in change.lostColumns {
            let name = change.table.source?.name ?? ""
            notes.append("the column \(name).\(column), which is not in the model, is dropped")
        }
    }

    /// Reports missing values that become the default of an attribute that is mandatory now. Nothing is lost, but an
    /// app can't distinguish them from others any more.
    private mutating func noteDefaults(in table: TableMigration) throws {
        guard let source = table.source?.name.sqlName else { return }
        for column in table.columns {
            guard case .attribute(let entity, let path) = column.column.content else { continue }
            let filled = column.values.compactMap { number, value -> String? in
                guard case .defaulting(_, _) = value, let name = value.source else { return nil }
                return "Z_ENT = \(number) AND \(name.sqlName) IS NULL"
            }
            guard !filled.isEmpty else { continue }
            let condition = filled.sorted().map { "(\($0))" }.disjunction
            let count = try store.integer("SELECT count(*) FROM \(source) WHERE \(condition)") ?? 0
            guard count > 0 else { continue }
            let objects = count == 1 ? "1 object without a value gets" : "\(count) objects without a value get"
            notes.append("\(entity).\(path.joined(separator: ".")) becomes mandatory: \(objects) its default")
        }
    }

    private func rebuild(_ table: TableMigration, _ source: TableLayout) throws {
        try store.execute(table.destination.creation(as: temporaryNames.name(for: table.destination.name)))
        let family = Set(table.numbers.keys)
        let migrated = Dictionary(
            table.columns.map { ($0.column.content, $0) }, uniquingKeysWith: { first, _ in first })
        let columns = table.destination.orderedColumns.compactMap { migrated[$0.content] }
        let targets = TableLayout.ownColumns + columns.map { $0.column.name.sqlName }
        let number = EntityNumberExpression(table.numbers, of: "Z_ENT").text
        let expressions = ["Z_PK", number, "Z_OPT"] + columns.map { $0.expression(matching.numbers, family: family) }
        // Without an index the rows are read in key order, and so each is appended.
        try store.execute(
            "INSERT INTO \(temporary(table)) (\(targets.joined(separator: ", "))) "
                + "SELECT \(expressions.joined(separator: ", ")) FROM \(source.name.sqlName) NOT INDEXED\(table.rowCondition)"
        )
    }

    /// Drops the old tables that don't stay; everything worth keeping has been moved out of them.
    private func dropSources() throws {
        let kept = Set(changes.filter(\.staysInPlace).compactMap { $0.table.source?.name })
        for table in matching.source.tables where !kept.contains(table.name) {
            try store.execute("DROP TABLE IF EXISTS \(table.name.sqlName)")
        }
    }

    /// The table's quoted name until the old tables are dropped.
    private func temporary(_ table: TableMigration) -> String {
        temporaryNames.name(for: table.destination.name).sqlName
    }

    private func assignFinalNames() throws {
        for table in changes.filter({ !$0.staysInPlace }).map(\.table) {
            try store.execute(
                "ALTER TABLE \(temporary(table)) RENAME TO \(table.destination.name.sqlName)")
        }
    }
}

extension MigrationStep {
    /// Returns what the step would report about the rows of a store, without changing it. Throws `StoreError`.
    func notes(ofRowsIn reader: StoreReader) throws -> [String] {
        guard case .inferred(let mapping) = method else { return [] }
        let schema = try DatabaseSchema(reader)
        let source = StoreLayout(source).usingJoinTableNames(of: schema)
        let matching = EntityMatching(from: source, to: source.layout(for: destination), mapping: mapping)
        let indexes = StoreIndex.all(schema)
        var unknownRows = UnknownEntityRows(reader, indexes)
        for change in TableChange.all(for: matching, schema: schema, indexes: indexes) {
            try unknownRows.inspect(change, isReadOnly: true)
        }
        let abstract = try StoreObstacles(reader, schema: schema, matching: matching).abstractObjects().map(\.sentence)
        return abstract + unknownRows.notes + (try ObjectReferences(reader, schema: schema, matching: matching).notes())
    }
}
