import CoreDataStore
import ManagedObjectModels
import MappingModels
import SQLiteFormat
import SQLiteStore

/// The source, rows and columns of one destination table.
struct TableMigration {
    /// The table that the objects come from; nil for one that starts empty.
    let source: TableLayout?
    let destination: TableLayout
    /// The new entity numbers by old ones, of the entities that are migrated to this table.
    let numbers: [Int64: Int64]
    let columns: [ColumnMigration]
    /// True if each object of the source table is migrated to this table.
    let includesAllObjects: Bool
    /// The numbers of the source table's entities that aren't migrated to this table, if it receives the rows of
    /// unknown entities: those stay with the hierarchy's root, or what is left of it. Nil if another table receives
    /// them.
    let excludedNumbers: [Int64]?
    /// True if the version hash of an entity of the table has changed.
    let isTransformed: Bool
    /// True if the table's own statement declares unique columns, as Core Data's of 2015 did. The table must then be
    /// rebuilt to change them.
    private(set) var declaresUniqueColumns = false

    /// The SQL condition of the source's rows that are migrated to this table.
    var rowCondition: String {
        if includesAllObjects { return "" }
        if let excludedNumbers { return " WHERE Z_ENT IS NULL OR Z_ENT NOT IN (\(excludedNumbers.list))" }
        return " WHERE Z_ENT IN (\(numbers.keys.sorted().list))"
    }

    /// True if neither the table nor its rows change.
    var isUnchanged: Bool {
        guard let source, includesAllObjects, !declaresUniqueColumns,
            numbers.allSatisfy({ $0.key == $0.value })
        else { return false }
        return source.name.hasSameBytes(as: destination.name) && source.columns.count == destination.columns.count
            && columns.allSatisfy { $0.unchangedSource?.hasSameBytes(as: $0.column.name) == true && hasSameType($0) }
    }

    /// True if the table need not be rebuilt: each column has exactly one source of the same type, or starts with one
    /// value for all rows.
    var hasAlterableColumns: Bool {
        guard !declaresUniqueColumns else { return false }
        let read = columns.compactMap(\.onlySource)
        return Set(read).count == read.count
            && columns.allSatisfy { ($0.onlySource != nil && hasSameType($0)) || isNew($0) }
    }

    /// The source's columns that no value is read from.
    var droppedColumns: [String] {
        let read = Set(columns.compactMap(\.onlySource))
        return (source?.columns ?? []).map(\.name).filter { !read.contains($0) }
    }

    /// The names of the columns that have no single source.
    var addedColumns: Set<String> { Set(columns.filter { $0.onlySource == nil }.map(\.column.name)) }

    /// Returns the migration with `declaresUniqueColumns` set from the source table's statement.
    func checkingUniqueColumns(in schema: DatabaseSchema) -> TableMigration {
        guard isTransformed, let source else { return self }
        let statement = schema.table(source.name)?.creation
        var table = self
        table.declaresUniqueColumns = statement.map { SQLTokens($0).contains { $0.keyword == "UNIQUE" } } ?? false
        return table
    }

    private func isNew(_ column: ColumnMigration) -> Bool {
        column.values.values.allSatisfy { if case .literal = $0 { true } else { false } }
    }

    private func hasSameType(_ column: ColumnMigration) -> Bool {
        column.onlySource.flatMap { source?.column(named: $0) }?.type == column.column.type
    }
}

extension EntityMatching {
    /// A migration for each destination table.
    var tableMigrations: [TableMigration] { destination.tables.map(migration) }

    private func migration(of table: TableLayout) -> TableMigration {
        let family = destination.numbers.family(of: table.rootEntity)
        let pairs = family.compactMap { new in predecessors[new].map { (old: $0, new: new) } }
        let from = pairs.first.flatMap { source.table(of: $0.old) }
        let numbers = Dictionary(
            pairs.map { (source.numbers.number(of: $0.old), destination.numbers.number(of: $0.new)) },
            uniquingKeysWith: { first, _ in first })
        let all = from.map { source.numbers.family(of: $0.rootEntity) } ?? []
        let sources = Dictionary(
            (from?.columns ?? []).map { ($0.name, [$0]) }, uniquingKeysWith: { $0 + $1 })
        let migrated = Set(numbers.keys)
        let columns = table.columns.map { self.column($0, migrated: migrated, sources) }
        let excluded = all.map(source.numbers.number).filter { numbers[$0] == nil }
        let heir = all.lazy.compactMap { self.successors[$0] }.first.flatMap(destination.table)
        return TableMigration(
            source: from, destination: table, numbers: numbers, columns: columns,
            includesAllObjects: Set(all) == Set(pairs.map(\.old)),
            excludedNumbers: heir?.name == table.name ? excluded.sorted() : nil,
            isTransformed: !family.allSatisfy(isCopied))
    }

    /// - Parameter sources: The source table's columns by name.
    private func column(
        _ column: ColumnLayout, migrated: Set<Int64>, _ sources: [String: [ColumnLayout]]
    ) -> ColumnMigration {
        var values: [Int64: ColumnValue] = [:]
        for (old, value) in self.values(of: column) {
            let number = source.numbers.number(of: old)
            if migrated.contains(number) { values[number] = value }
        }
        let read = Set(values.values.compactMap(\.source))
        let occupied = Set(
            read.flatMap { sources[$0] ?? [] }.flatMap { occupants(of: $0) }.map(source.numbers.number))
        return ColumnMigration(
            column: column, values: values,
            clearedEntities: occupied.intersection(migrated).subtracting(values.keys))
    }

    /// Returns the source's entities whose objects may have a value in the column.
    private func occupants(of column: ColumnLayout) -> [String] {
        switch column.content {
        case .attribute(let entity, _): return source.numbers.family(of: entity)
        case .reference(let entity, let name), .referencedEntity(let entity, let name), .order(let entity, let name):
            guard let owner = source.model.entity(named: entity),
                case .relationship(let relationship)? = source.model.property(named: name, of: owner)
            else { return [] }
            return source.numbers.family(of: relationship.isToMany ? relationship.destinationEntityName : entity)
        }
    }

    /// Returns the column's values by source entity.
    private func values(of column: ColumnLayout) -> [(entity: String, value: ColumnValue)] {
        switch column.content {
        case .attribute(let entity, let path): attributeValues(of: entity, at: path)
        case .reference(let entity, let name): referenceValues(of: entity, name) { $0.reference }
        case .referencedEntity(let entity, let name):
            referenceValues(of: entity, name) { $0.entity }.map { entity, value in
                (entity, isRenumbered ? value.source.map(ColumnValue.entityNumber) ?? value : value)
            }
        case .order(let entity, let name): referenceValues(of: entity, name) { $0.order }
        }
    }

    private var isRenumbered: Bool { numbers.contains { $0.key != $0.value } }

    private func referenceValues(
        of entity: String, _ name: String, _ part: (LinkStorage.Columns) -> String?
    ) -> [(entity: String, value: ColumnValue)] {
        guard let declaring = destination.model.entity(named: entity),
            case .relationship(let relationship)? = destination.model.property(named: name, of: declaring)
        else { return [] }
        guard !relationship.isToMany else { return valuesWithoutInverse(of: relationship, declaredBy: entity, part) }
        return destination.numbers.family(of: entity).compactMap { new in
            guard let (old, former) = self.relationship(name, of: new), destinationsOverlap(former, relationship),
                !former.isToMany,
                let columns = LinkStorage.columns(of: former, declaredFor: old.name, in: source),
                let found = part(columns)
            else { return nil }
            return (old.name, .column(found))
        }
    }

    /// Returns the values of a to-many relationship without an inverse, which is stored in the target objects' rows.
    private func valuesWithoutInverse(
        of relationship: RelationshipDescription, declaredBy entity: String, _ part: (LinkStorage.Columns) -> String?
    ) -> [(entity: String, value: ColumnValue)] {
        let links = links(of: relationship, declaredBy: entity)
        guard links.count == 1, links[0].isCarriedInColumn, let found = links[0].columns.flatMap(part) else {
            return []
        }
        return source.numbers.entities.filter { links[0].targets.contains(source.numbers.number(of: $0.name)) }
            .map { ($0.name, .column(found)) }
    }
}
