import CoreDataStore
import ManagedObjectModel
import PersistentStore

/// What becomes of the many-to-many relationships, which are kept in tables of their own.
struct JoinTableMigration {
    let store: StoreWriter
    let succession: ModelSuccession
    private var joins: [Join] = []

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

    init(_ store: StoreWriter, _ succession: ModelSuccession) {
        self.store = store
        self.succession = succession
    }

    var destination: StoreLayout { succession.destination }

    // MARK: While the old tables are there

    /// Reads the links of the old tables.
    mutating func collect() throws {
        for table in destination.joinTables { try collect(table) }
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
                try store.giveOutPlaces(place, in: name, key: "rowid", of: own.target, by: own.owner)
            }
            if let place = own.targetPlace, join.numbers.targets {
                try store.giveOutPlaces(place, in: name, key: "rowid", of: own.owner, by: own.target)
            }
        }
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
