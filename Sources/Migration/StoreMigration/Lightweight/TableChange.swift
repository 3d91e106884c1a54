import CoreDataStore
import MappingModels
import SQLiteFormat
import SQLiteStore

/// The change that turns a source table into a destination table.
struct TableChange {
    enum Method {
        /// The table needs no change.
        case kept
        /// A new, empty table.
        case created
        case altered(TableAlteration)
        /// A new table that the rows are copied to.
        case rebuilt(from: TableLayout)
    }

    let table: TableMigration
    let method: Method
    /// The columns that aren't the model's and that a new table won't have.
    let lostColumns: [String]
    /// The numbers of all entities of the source table.
    let knownEntityNumbers: Set<Int64>
    /// The numbers of the destination table's entities that none of the source table's entities has, if the table
    /// receives the rows of unknown entities: those must not become objects.
    let claimedNumbers: [Int64]

    /// Returns the change for each destination table.
    static func all(
        for matching: EntityMatching, schema: DatabaseSchema, indexes: [StoreIndex]
    ) -> [TableChange] {
        let tables = matching.tableMigrations.map { $0.checkingUniqueColumns(in: schema) }
        let shares = Dictionary(grouping: tables) { $0.source?.name ?? "" }.mapValues(\.count)
        return tables.map { table in
            TableChange(
                table, matching: matching, schema: schema, indexes: indexes,
                shareCount: shares[table.source?.name ?? ""] ?? 0)
        }
    }

    /// - Parameters:
    ///   - shareCount: The number of destination tables whose rows come from the same source table.
    ///   - indexes: The store's indexes.
    init(
        _ table: TableMigration, matching: EntityMatching, schema: DatabaseSchema, indexes: [StoreIndex],
        shareCount: Int
    ) {
        self.table = table
        let family = table.source.map { matching.source.numbers.family(of: $0.rootEntity) } ?? []
        knownEntityNumbers = Set(family.map(matching.source.numbers.number))
        let numbers = matching.destination.numbers
        let receivesUnknown = table.source != nil && (table.includesAllObjects || table.excludedNumbers != nil)
        claimedNumbers =
            receivesUnknown
            ? numbers.family(of: table.destination.rootEntity).map(numbers.number)
                .filter { [knownEntityNumbers] in !knownEntityNumbers.contains($0) }.sorted() : []
        guard let source = table.source else {
            (method, lostColumns) = (.created, [])
            return
        }
        let names = schema.columnNames(of: source.name)
        let foreign = Set(names).subtracting(source.columnNames)
        let alteration = TableAlteration(table, of: source, numbers: matching.numbers, columnNames: names)
        let canBeAltered =
            table.includesAllObjects && table.hasAlterableColumns && shareCount == 1
            && table.addedColumns.isDisjoint(with: foreign)
            && (table.droppedColumns.isEmpty || !schema.isConstrained(source.name))
            && Self.isFaster(alteration, indexes.filter { $0.table == source.name })
            && (alteration.parsedCount <= Self.maximumParsedCount || !foreign.isEmpty)
        if table.isUnchanged {
            method = .kept
        } else {
            method = canBeAltered ? .altered(alteration) : .rebuilt(from: source)
        }
        lostColumns = canBeAltered || table.isUnchanged ? [] : names.filter(foreign.contains)
    }

    /// The limit of added and renamed columns. The time of each grows with the table's number of columns, so that a new
    /// table takes less for very many.
    private static let maximumParsedCount = 200

    /// True if an alteration is faster than a new table. Each dropped column costs a pass over all rows, and so does an
    /// update; a new table costs one pass, and one more for each index that an alteration would leave alone.
    private static func isFaster(_ alteration: TableAlteration, _ indexes: [StoreIndex]) -> Bool {
        guard alteration.dropCount > 0 else { return true }
        let kept = indexes.filter { !$0.isAffected(by: alteration.writtenColumns) }
        return alteration.dropCount + (alteration.updatesRows ? 1 : 0) <= 1 + kept.count
    }

    /// True if the table already has its final name.
    var staysInPlace: Bool {
        switch method {
        case .kept: true
        case .altered: table.source?.name.hasSameBytes(as: table.destination.name) == true
        case .created, .rebuilt: false
        }
    }

    /// The names, in lower case, of the columns whose indexes must be rebuilt; nil for all columns.
    var writtenColumns: Set<String>? {
        if case .altered(let alteration) = method { alteration.writtenColumns } else { nil }
    }
}

extension DatabaseSchema {
    /// True if the table's statement declares more than names and types, as Core Data's of 2015 did for unique columns.
    /// SQLite can't drop such columns.
    fileprivate func isConstrained(_ table: String) -> Bool {
        let statement = self.table(table)?.creation.uppercased() ?? ""
        return ["CONSTRAINT", "UNIQUE", "CHECK", "REFERENCES", "GENERATED"].contains { statement.contains($0) }
    }
}
