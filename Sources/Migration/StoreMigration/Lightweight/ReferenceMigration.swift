import CoreDataStore
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// Migrates the relationships that are stored in a column which isn't copied with its table's rows.
struct ReferenceMigration {
    let store: StoreWriter
    let matching: EntityMatching
    private var fills: [Fill] = []
    private var orders: [InverseOrder] = []

    /// A reference column of a relationship that the source keeps elsewhere.
    private struct Fill {
        let table: TableLayout
        let column: ColumnLayout
        let order: ColumnLayout?
        /// The entity whose objects have the column.
        let holder: String
        let links: String
    }

    /// The former positions of a to-one relationship's ordered inverse, which the source keeps elsewhere.
    private struct InverseOrder {
        let table: TableLayout
        let column: ColumnLayout
        let order: ColumnLayout
        let holder: String
        let places: String
    }

    init(_ store: StoreWriter, _ matching: EntityMatching) {
        self.store = store
        self.matching = matching
    }

    var destination: StoreLayout { matching.destination }

    // MARK: While the old tables exist

    /// Reads the links of relationships that the source keeps elsewhere.
    mutating func collect(_ tables: [TableMigration]) throws {
        for table in tables {
            for column in table.destination.columns {
                try collect(column, of: table.destination)
                try collectInverseOrder(of: column, in: table.destination)
            }
        }
    }

    private mutating func collect(_ column: ColumnLayout, of table: TableLayout) throws {
        guard let reference = FilledReference(column, matching) else { return }
        let temporary = "_links_\(fills.count)"
        try store.execute(
            "CREATE TEMP TABLE \(temporary) (holder INTEGER PRIMARY KEY, target INTEGER, place INTEGER)")
        for query in reference.queries { try store.execute("INSERT OR IGNORE INTO \(temporary) \(query)") }
        let order = table.column(of: .order(entity: reference.entity, name: reference.relationship.name))
        fills.append(Fill(table: table, column: column, order: order, holder: reference.holder, links: temporary))
    }

    private mutating func collectInverseOrder(of column: ColumnLayout, in table: TableLayout) throws {
        guard case .reference(let entity, let name) = column.content,
            let order = table.column(of: .order(entity: entity, name: name)),
            let declaring = destination.model.entity(named: entity),
            case .relationship(let relationship)? = destination.model.property(named: name, of: declaring),
            !relationship.isToMany
        else { return }
        let links = matching.links(of: relationship, declaredBy: entity)
        let own = matching.inverseOrder(of: relationship, declaredBy: entity, besides: links)
        guard !own.isEmpty else { return }
        let places = "_places_\(orders.count)"
        try store.execute("CREATE TEMP TABLE \(places) (holder, owner, place, PRIMARY KEY (holder, owner))")
        for link in own {
            try store.execute(
                "INSERT OR IGNORE INTO \(places) SELECT target, owner, target_place FROM (\(link.query))")
        }
        orders.append(InverseOrder(table: table, column: column, order: order, holder: entity, places: places))
    }

    // MARK: When all rows are in their tables

    func finish() throws {
        for fill in fills { try perform(fill) }
        for order in orders { try perform(order) }
        for table in destination.tables { try finishReferences(in: table) }
    }

    private func perform(_ fill: Fill) throws {
        let key = "\(fill.links).holder = \(fill.table.name.sqlName).Z_PK"
        var sets = ["\(fill.column.name.sqlName) = (SELECT target FROM \(fill.links) WHERE \(key))"]
        if let order = fill.order?.name.sqlName {
            sets.append("\(order) = (SELECT place FROM \(fill.links) WHERE \(key))")
        }
        // The former relationship may have had owners that no longer have it.
        let holders = destination.numbers.family(of: fill.holder).map(destination.numbers.number)
        try store.execute(
            "UPDATE \(fill.table.name.sqlName) SET \(sets.joined(separator: ", ")) "
                + "WHERE \(fill.column.name.sqlName) IS NULL AND Z_ENT IN (\(holders.list)) "
                + "AND Z_PK IN (SELECT holder FROM \(fill.links))")
        try store.execute("DROP TABLE \(fill.links)")
    }

    private func perform(_ order: InverseOrder) throws {
        let table = order.table.name.sqlName
        let holders = destination.numbers.family(of: order.holder).map(destination.numbers.number)
        try store.execute(
            "UPDATE \(table) SET \(order.order.name.sqlName) = (SELECT place FROM \(order.places) AS i "
                + "WHERE i.holder = \(table).Z_PK AND i.owner = \(table).\(order.column.name.sqlName)) "
                + "WHERE Z_ENT IN (\(holders.list))")
        try store.execute("DROP TABLE \(order.places)")
    }

    /// Clears references to removed objects, and fills in entity numbers and positions that no source column held.
    private func finishReferences(in table: TableLayout) throws {
        for column in table.columns {
            guard case .reference(let entity, let name) = column.content,
                let declaring = destination.model.entity(named: entity),
                case .relationship(let relationship)? = destination.model.property(named: name, of: declaring)
            else { continue }
            let number = table.column(of: .referencedEntity(entity: entity, name: name))
            let order = table.column(of: .order(entity: entity, name: name))
            let former = formerRelationships(name, of: entity)
            let isFilled = fills.contains { $0.table.name == table.name && $0.column == column }
            // The column of a to-many relationship without an inverse refers to the objects that have the relationship.
            let target = relationship.isToMany ? entity : relationship.destinationEntityName
            let mayDangle = former.contains {
                !matching.keepsAllDestinations($0, relationship) || relationship.isToMany
            }
            if isFilled || mayDangle {
                try clearDangling(column, number: number, order: order, in: table, to: target)
            }
            if let number, isFilled || former.contains(where: { !hadNumber($0) }) {
                try fillEntityNumbers(number, of: column, in: table, relationship)
            }
            let isReordered = orders.contains { $0.table.name == table.name && $0.column == column }
            if let order, isFilled || isReordered || former.contains(where: { !wasOrdered($0) }) {
                try store.assignPlaces(order.name, in: table.name.sqlName, key: "Z_PK", of: column.name, by: "Z_PK")
            }
        }
    }

    private func formerRelationships(_ name: String, of entity: String) -> [RelationshipDescription] {
        destination.numbers.family(of: entity).compactMap { matching.relationship(name, of: $0)?.relationship }
    }

    private func hadNumber(_ relationship: RelationshipDescription) -> Bool {
        matching.source.numbers.hasSubentities(relationship.destinationEntityName)
    }

    private func wasOrdered(_ relationship: RelationshipDescription) -> Bool {
        relationship.isToMany
            ? relationship.isOrdered : matching.source.model.inverse(of: relationship)?.isOrdered ?? false
    }

    private func clearDangling(
        _ column: ColumnLayout, number: ColumnLayout?, order: ColumnLayout?, in table: TableLayout,
        to entity: String
    ) throws {
        guard let target = destination.table(of: entity) else { return }
        let numbers = destination.numbers.family(of: entity).map(destination.numbers.number)
        let sets = [column, number, order].compactMap { $0.map { $0.name.sqlName + " = NULL" } }
        try store.execute(
            "UPDATE \(table.name.sqlName) SET \(sets.joined(separator: ", ")) WHERE \(column.name.sqlName) IS NOT NULL "
                + "AND \(column.name.sqlName) NOT IN "
                + "(SELECT Z_PK FROM \(target.name.sqlName) WHERE Z_ENT IN (\(numbers.list)))")
    }

    private func fillEntityNumbers(
        _ number: ColumnLayout, of column: ColumnLayout, in table: TableLayout, _ relationship: RelationshipDescription
    ) throws {
        guard let target = destination.table(of: relationship.destinationEntityName) else { return }
        try store.execute(
            "UPDATE \(table.name.sqlName) NOT INDEXED SET \(number.name.sqlName) = (SELECT target.Z_ENT FROM "
                + "\(target.name.sqlName) AS target WHERE target.Z_PK = \(table.name.sqlName).\(column.name.sqlName)) "
                + "WHERE \(column.name.sqlName) IS NOT NULL")
    }
}
