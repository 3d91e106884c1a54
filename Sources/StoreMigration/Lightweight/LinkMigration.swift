import CoreDataStore
import ManagedObjectModel
import PersistentStore

/// What becomes of relationships that aren't carried in a column of their own: many-to-many ones, and those that are kept
/// elsewhere than before.
struct LinkMigration {
    let store: StoreWriter
    let succession: ModelSuccession
    private var joins: [Join] = []
    private(set) var fills: [Fill] = []
    private(set) var notes: [String] = []

    /// One join table of the destination.
    private struct Join {
        let table: JoinTableLayout
        /// The source's table that only gets other names; nil for one that is made anew.
        let renamed: LinkStorage?
        /// Whether places among an ordered relationship's objects must be given out: of the owners, of the targets.
        let numbers: (owners: Bool, targets: Bool)

        var temporary: String { "_T_" + table.name }

        /// Whether the table stays as it is.
        var isUnchanged: Bool { renamed == table.storage }
    }

    /// A column of keys, of a relationship that was kept elsewhere.
    struct Fill {
        let table: TableLayout
        let column: ColumnLayout
        let order: ColumnLayout?
        /// The entity whose objects have the column.
        let holder: String
        let links: String
    }

    init(_ store: StoreWriter, _ succession: ModelSuccession) {
        self.store = store
        self.succession = succession
    }

    var destination: StoreLayout { succession.destination }

    // MARK: While the old tables are there

    /// Reads the links of the old tables.
    mutating func collect(_ tables: [TableMigration]) throws {
        for table in destination.joinTables { try collect(table) }
        for table in tables {
            for column in table.columns {
                let carried = Set(column.values.values.compactMap(\.source))
                try collect(column.column, of: table.destination, besides: carried, of: table.source)
            }
        }
    }

    private mutating func collect(_ table: JoinTableLayout) throws {
        let links = self.links(of: table.owner)
        let own = table.storage
        let kept = links.count == 1 ? links.first : nil
        if let kept, kept.isJoinTable, kept.hasShape(of: own, in: succession.source), isComplete(table) {
            let numbers = (
                owners: own.ownerPlace != nil && kept.ownerPlace == nil,
                targets: own.targetPlace != nil && kept.targetPlace == nil
            )
            joins.append(Join(table: table, renamed: kept, numbers: numbers))
            return
        }
        let numbers = (
            owners: own.ownerPlace != nil && links.contains { $0.ownerPlace == nil },
            targets: own.targetPlace != nil && links.contains { $0.targetPlace == nil }
        )
        let join = Join(table: table, renamed: nil, numbers: numbers)
        try store.execute(table.creation(as: join.temporary))
        for link in links {
            let places = [(own.ownerPlace, "owner_place"), (own.targetPlace, "target_place")].compactMap {
                name, value in
                name.map { (name: $0.sqlName, value: value) }
            }
            let names = [own.owner.sqlName, own.target.sqlName] + places.map(\.name)
            let values = ["owner", "target"] + places.map(\.value)
            try store.execute(
                "INSERT OR IGNORE INTO \(join.temporary.sqlName) (\(names.joined(separator: ", "))) "
                    + "SELECT \(values.joined(separator: ", ")) FROM (\(link.query))")
        }
        joins.append(join)
    }

    private func links(of side: JoinTableLayout.Side) -> [LinkStorage] {
        guard let entity = destination.model.entity(named: side.entity),
            case .relationship(let relationship)? = destination.model.property(named: side.relationship, of: entity)
        else { return [] }
        return succession.links(of: relationship, declaredBy: side.entity)
    }

    /// Whether no link of the table can lead from or to an object that doesn't come along.
    private func isComplete(_ table: JoinTableLayout) -> Bool {
        [table.owner, table.inverse].allSatisfy { side in
            guard let entity = destination.model.entity(named: side.entity),
                case .relationship(let new)? = destination.model.property(named: side.relationship, of: entity)
            else { return false }
            return destination.numbers.family(of: side.entity).allSatisfy { member in
                succession.relationship(side.relationship, of: member).map { succession.keepsAll($0.relationship, new) }
                    ?? true
            }
        }
    }

    /// A to-one relationship that is new, and whose inverse isn't; or one that is kept with its destination now. Of several
    /// entities' some may be in columns that become this one: `carried`.
    private mutating func collect(
        _ column: ColumnLayout, of table: TableLayout, besides carried: Set<String>, of source: TableLayout?
    ) throws {
        guard case .reference(let entity, let name) = column.content,
            let declaring = destination.model.entity(named: entity),
            case .relationship(let relationship)? = destination.model.property(named: name, of: declaring)
        else { return }
        let found = succession.links(of: relationship, declaredBy: entity).filter { link in
            link.table != source?.name || carried.isDisjoint(with: [link.owner, link.target])
        }
        guard !found.isEmpty else { return }
        // The holder of the column first.
        let links = relationship.isToMany ? found.map(\.reversed) : found
        let temporary = "_links_\(fills.count)"
        try store.execute(
            "CREATE TEMP TABLE \(temporary) (holder INTEGER PRIMARY KEY, target INTEGER, place INTEGER)")
        var lost: Int64 = 0
        for link in links {
            try store.execute(
                "INSERT OR IGNORE INTO \(temporary) SELECT owner, target, owner_place FROM (\(link.query))")
            lost += try store.integer("SELECT count(*) FROM (\(link.query))") ?? 0
        }
        lost -= try store.integer("SELECT count(*) FROM \(temporary)") ?? 0
        if lost > 0 {
            notes.append(
                "\(lost) objects are let go of by \(entity).\(name): without an inverse, an object can be led to by one "
                    + "only")
        }
        let order = table.columns.first { $0.content == .order(entity: entity, name: name) }
        let holder = relationship.isToMany ? relationship.destinationEntityName : entity
        fills.append(Fill(table: table, column: column, order: order, holder: holder, links: temporary))
    }

    // MARK: When they go

    /// Drops the old join tables, and takes those that stay out of the way.
    func dropReplaced() throws {
        for join in joins {
            guard let renamed = join.renamed, !join.isUnchanged else { continue }
            let own = join.table.storage
            let table = renamed.table.sqlName
            var pairs = [(renamed.owner, own.owner), (renamed.target, own.target)]
            pairs += [(renamed.ownerPlace, own.ownerPlace), (renamed.targetPlace, own.targetPlace)]
                .compactMap { from, to in from.flatMap { from in to.map { (from, $0) } } }
            let changed = pairs.filter { $0.0 != $0.1 }
            for (index, pair) in changed.enumerated() {
                try store.execute("ALTER TABLE \(table) RENAME COLUMN \(pair.0.sqlName) TO _R_\(index)")
            }
            for (index, pair) in changed.enumerated() {
                try store.execute("ALTER TABLE \(table) RENAME COLUMN _R_\(index) TO \(pair.1.sqlName)")
            }
            for (name, isNew) in [(own.ownerPlace, join.numbers.owners), (own.targetPlace, join.numbers.targets)] {
                if let name, isNew { try store.execute("ALTER TABLE \(table) ADD COLUMN \(name.sqlName) INTEGER") }
            }
            try store.execute("ALTER TABLE \(table) RENAME TO \(join.temporary.sqlName)")
        }
        let renamed = Set(joins.compactMap { $0.renamed?.table })
        for table in succession.source.joinTables where !renamed.contains(table.name) {
            try store.execute("DROP TABLE \(table.name.sqlName)")
        }
    }

    /// Those that are made anew or have other names.
    var changedTables: Set<String> { Set(joins.filter { !$0.isUnchanged }.map(\.table.name)) }

    // MARK: When the new ones have their names

    func finish() throws {
        for join in joins where !join.isUnchanged {
            let name = join.table.name.sqlName
            try store.execute("ALTER TABLE \(join.temporary.sqlName) RENAME TO \(name)")
            try removeLoose(join.table)
            let own = join.table.storage
            if let place = own.ownerPlace, join.numbers.owners {
                try giveOutPlaces(place, in: name, key: "rowid", of: own.target, by: own.owner)
            }
            if let place = own.targetPlace, join.numbers.targets {
                try giveOutPlaces(place, in: name, key: "rowid", of: own.owner, by: own.target)
            }
        }
        for fill in fills { try perform(fill) }
        for table in destination.tables { try finishReferences(in: table) }
    }

    private func perform(_ fill: Fill) throws {
        let key = "\(fill.links).holder = \(fill.table.name.sqlName).Z_PK"
        var sets = ["\(fill.column.name.sqlName) = (SELECT target FROM \(fill.links) WHERE \(key))"]
        if let order = fill.order?.name.sqlName {
            sets.append("\(order) = (SELECT place FROM \(fill.links) WHERE \(key))")
        }
        // What it was may have led from objects that don't have the relationship any more.
        let holders = destination.numbers.family(of: fill.holder).map(destination.numbers.number)
        try store.execute(
            "UPDATE \(fill.table.name.sqlName) SET \(sets.joined(separator: ", ")) "
                + "WHERE \(fill.column.name.sqlName) IS NULL AND Z_ENT IN (\(holders.list)) "
                + "AND Z_PK IN (SELECT holder FROM \(fill.links))")
        try store.execute("DROP TABLE \(fill.links)")
    }

    private func removeLoose(_ table: JoinTableLayout) throws {
        for side in [table.owner, table.inverse] where !isComplete(table) {
            guard let holder = destination.table(of: side.entity) else { continue }
            let numbers = destination.numbers.family(of: side.entity).map(destination.numbers.number)
            try store.execute(
                "DELETE FROM \(table.name.sqlName) WHERE \(side.column.sqlName) NOT IN "
                    + "(SELECT Z_PK FROM \(holder.name.sqlName) WHERE Z_ENT IN (\(numbers.list)))")
        }
    }
}

extension JoinTableLayout {
    /// The owner's relationship in it.
    var storage: LinkStorage {
        LinkStorage(joining: name, owner, inverse)
    }
}

extension LinkStorage {
    init(joining table: String, _ owner: JoinTableLayout.Side, _ target: JoinTableLayout.Side) {
        self.init(
            table: table, owner: owner.column, target: target.column, ownerPlace: owner.orderColumn,
            targetPlace: target.orderColumn, isJoinTable: true)
    }

    /// Whether the table does for `other` with other names: its key has the same order, and no place is dropped.
    func hasShape(of other: LinkStorage, in source: StoreLayout) -> Bool {
        guard let table = source.joinTables.first(where: { $0.name == table }), table.owner.column == owner else {
            return false
        }
        return (ownerPlace == nil || other.ownerPlace != nil) && (targetPlace == nil || other.targetPlace != nil)
    }
}
