import CoreDataStore
import ManagedObjectModels
import MappingModels

/// What becomes of one table of the destination.
struct TableMigration {
    /// The table that its objects come from; nil for one that begins empty.
    let source: TableLayout?
    let destination: TableLayout
    /// New entity numbers by old ones, of the entities whose objects come here.
    let numbers: [Int64: Int64]
    let columns: [ColumnMigration]
    /// Whether each object of the source's table comes here.
    let takesAll: Bool
    /// The numbers of the entities of the source's table whose objects don't come here, where rows of no entity do: they
    /// stay with the hierarchy's root, or what is left of it. Nil where another table takes them.
    let leaving: [Int64]?
    /// Whether an entity of the table has another version hash than before.
    let isTransformed: Bool
    /// Whether the table's own statement says which columns are unique, as Core Data's of 2015 did: to say something else,
    /// it is made anew.
    private(set) var saysWhatIsUnique = false

    /// Which rows of the source's table come here, as SQL says it.
    var rowCondition: String {
        if takesAll { return "" }
        if let leaving { return " WHERE Z_ENT IS NULL OR Z_ENT NOT IN (\(leaving.list))" }
        return " WHERE Z_ENT IN (\(numbers.keys.sorted().list))"
    }

    /// Whether the rows stay as they are, and the table too.
    var isUnchanged: Bool {
        guard let source, takesAll, !saysWhatIsUnique, numbers.allSatisfy({ $0.key == $0.value }) else { return false }
        return source.name.hasSameBytes(as: destination.name) && source.columns.count == destination.columns.count
            && columns.allSatisfy { $0.carried?.hasSameBytes(as: $0.column.name) == true && hasSameType($0) }
    }

    /// Whether each column has one that it comes from, of its type, or begins with one value for all: then the table need
    /// not be made anew.
    var keepsTypes: Bool {
        guard !saysWhatIsUnique else { return false }
        let read = columns.compactMap(\.onlySource)
        return Set(read).count == read.count
            && columns.allSatisfy { ($0.onlySource != nil && hasSameType($0)) || isNew($0) }
    }

    /// The source's columns from which nothing is kept.
    var dropped: [String] {
        let read = Set(columns.compactMap(\.onlySource))
        return (source?.columns ?? []).map(\.name).filter { !read.contains($0) }
    }

    /// The names of columns that nothing comes into as it is.
    var added: Set<String> { Set(columns.filter { $0.onlySource == nil }.map(\.column.name)) }

    func makingUniqueColumnsAnew(_ schema: StoreSchema) -> TableMigration {
        guard isTransformed, let source else { return self }
        let statement = schema.objects.first { $0.kind == .table && $0.name == source.name }?.creation
        var table = self
        table.saysWhatIsUnique = statement.map { SQLTokens($0).contains { $0.keyword == "UNIQUE" } } ?? false
        return table
    }

    private func isNew(_ column: ColumnMigration) -> Bool {
        column.values.values.allSatisfy { if case .literal = $0 { true } else { false } }
    }

    private func hasSameType(_ column: ColumnMigration) -> Bool {
        source?.columns.first { $0.name == column.onlySource }?.type == column.column.type
    }
}

extension EntityMatching {
    /// One for each table of the destination.
    var tableMigrations: [TableMigration] { destination.tables.map(migration) }

    private func migration(of table: TableLayout) -> TableMigration {
        let family = destination.numbers.family(of: table.rootEntity)
        let pairs = family.compactMap { new in predecessors[new].map { (old: $0, new: new) } }
        let from = pairs.first.flatMap { source.table(of: $0.old) }
        let numbers = Dictionary(
            pairs.map { (source.numbers.number(of: $0.old), destination.numbers.number(of: $0.new)) },
            uniquingKeysWith: { first, _ in first })
        let all = from.map { source.numbers.family(of: $0.rootEntity) } ?? []
        let columns = table.columns.map { column in
            self.column(column, coming: Set(numbers.keys), from)
        }
        let leaving = all.map(source.numbers.number).filter { numbers[$0] == nil }
        let heir = all.lazy.compactMap { self.successors[$0] }.first.flatMap(destination.table)
        return TableMigration(
            source: from, destination: table, numbers: numbers, columns: columns,
            takesAll: Set(all) == Set(pairs.map(\.old)),
            leaving: heir?.name == table.name ? leaving.sorted() : nil, isTransformed: !family.allSatisfy(isCopied))
    }

    private func column(_ column: ColumnLayout, coming: Set<Int64>, _ from: TableLayout?) -> ColumnMigration {
        var values: [Int64: ColumnValue] = [:]
        for (old, value) in self.values(of: column) {
            let number = source.numbers.number(of: old)
            if coming.contains(number) { values[number] = value }
        }
        let read = Set(values.values.compactMap(\.source))
        let occupied = Set(
            (from?.columns ?? []).filter { read.contains($0.name) }.flatMap { occupants(of: $0) }
                .map(source.numbers.number))
        return ColumnMigration(
            column: column, values: values, excluded: occupied.intersection(coming).subtracting(values.keys))
    }

    /// The source's entities whose objects may have a value in the column.
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

    /// By the source's entity.
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
            guard let (old, was) = self.relationship(name, of: new), leadsOn(was, relationship), !was.isToMany,
                let columns = LinkStorage.columns(of: was, declaredFor: old.name, in: source), let found = part(columns)
            else { return nil }
            return (old.name, .column(found))
        }
    }

    /// A to-many relationship without an inverse is kept with the objects that it leads to.
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
