import CoreDataStore
import MappingModels

/// How one table becomes the destination's.
struct TableChange {
    enum Way {
        /// It is what it is to be.
        case kept
        /// It begins empty.
        case created
        case altered(TableAlteration)
        /// A new table gets its rows.
        case rebuilt(from: TableLayout)
    }

    let table: TableMigration
    let way: Way
    /// Columns that are none of the model's, and that a new table won't have.
    let lostColumns: [String]
    /// The numbers of all entities that the table is for, as it is.
    let known: Set<Int64>

    /// Returns how each of the destination's tables comes about.
    static func all(_ succession: EntityMatching, _ schema: StoreSchema, _ indexes: [StoreIndex]) -> [TableChange] {
        let tables = succession.tableMigrations.map { $0.makingUniqueColumnsAnew(schema) }
        let sharers = Dictionary(grouping: tables) { $0.source?.name ?? "" }.mapValues(\.count)
        return tables.map { table in
            TableChange(table, succession, schema, indexes, sharers: sharers[table.source?.name ?? ""] ?? 0)
        }
    }

    /// - Parameters:
    ///   - sharers: Tables of the destination whose rows come from the same one.
    ///   - indexes: Those of the table as it is.
    init(
        _ table: TableMigration, _ succession: EntityMatching, _ schema: StoreSchema, _ indexes: [StoreIndex],
        sharers: Int
    ) {
        self.table = table
        let family = table.source.map { succession.source.numbers.family(of: $0.rootEntity) } ?? []
        known = Set(family.map(succession.source.numbers.number))
        guard let source = table.source else {
            (way, lostColumns) = (.created, [])
            return
        }
        let names = (schema.columns[source.name] ?? []).map(\.name)
        let foreign = Set(names).subtracting(source.columnNames)
        let alteration = TableAlteration(table, of: source, succession.numbers, having: names)
        let canBeAltered =
            table.takesAll && table.keepsTypes && sharers == 1 && table.added.isDisjoint(with: foreign)
            && (table.dropped.isEmpty || !schema.isConstrained(source.name))
            && Self.isFaster(alteration, indexes.filter { $0.table == source.name })
        if table.isUnchanged { way = .kept } else { way = canBeAltered ? .altered(alteration) : .rebuilt(from: source) }
        lostColumns = canBeAltered || table.isUnchanged ? [] : names.filter(foreign.contains)
    }

    /// Each column that is dropped costs a pass over all rows, and so do new values in them: that is faster than a new table
    /// once. A new table costs each index, too, which an alteration leaves as it is.
    private static func isFaster(_ alteration: TableAlteration, _ indexes: [StoreIndex]) -> Bool {
        guard alteration.drops > 0 else { return true }
        let kept = indexes.filter { !$0.isTouched(by: alteration.written) }
        return alteration.drops + (alteration.updates ? 1 : 0) <= 1 + kept.count
    }

    /// Whether it has the name already that it is to have.
    var staysInPlace: Bool {
        switch way {
        case .kept: true
        case .altered: table.source?.name.hasSameBytes(as: table.destination.name) == true
        case .created, .rebuilt: false
        }
    }

    /// The columns, in lower case, whose indexes are made anew; nil for all.
    var written: Set<String>? { if case .altered(let alteration) = way { alteration.written } else { nil } }
}

extension StoreSchema {
    /// Whether the statement says more than names and types, as Core Data's of 2015 did of unique columns: those can't be
    /// dropped.
    fileprivate func isConstrained(_ table: String) -> Bool {
        let statement = objects.first { $0.kind == .table && $0.name == table }?.creation.uppercased() ?? ""
        return ["CONSTRAINT", "UNIQUE", "CHECK", "REFERENCES", "GENERATED"].contains { statement.contains($0) }
    }
}
