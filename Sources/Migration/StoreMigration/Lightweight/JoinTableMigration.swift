import CoreDataStore
import ManagedObjectModels
import MappingModels
import SQLiteFormat
import SQLiteStore

/// Migrates many-to-many relationships, which are stored in join tables.
struct JoinTableMigration {
    let store: StoreWriter
    let matching: EntityMatching
    private let temporaryNames: TemporaryNames
    private var joins: [Join] = []
    /// Remarks for the user.
    private(set) var notes: [String] = []

    /// One join table of the destination.
    private struct Join {
        let table: JoinTableLayout
        /// The table's name until the old tables are dropped.
        let temporary: String
        /// The source's table if only names change; nil for a new table.
        let renamed: LinkStorage?
        /// True for each end of an ordered relationship whose objects need new positions.
        let needsPlaces: (owners: Bool, targets: Bool)

        /// True if the table stays as it is.
        var isUnchanged: Bool {
            guard let renamed, renamed == table.storage else { return false }
            return zip(renamed.names, table.storage.names).allSatisfy { $0.hasSameBytes(as: $1) }
        }
    }

    init(_ store: StoreWriter, matching: EntityMatching, temporaryNames: TemporaryNames) {
        self.store = store
        self.matching = matching
        self.temporaryNames = temporaryNames
    }

    var destination: StoreLayout { matching.destination }

    // MARK: While the old tables exist

    /// Reads the links of the old tables.
    mutating func collect() throws {
        for table in destination.joinTables { try collect(table) }
    }

    private mutating func collect(_ table: JoinTableLayout) throws {
        guard let relationship = relationship(of: table.owner) else { return }
        let links = matching.links(of: relationship, declaredBy: table.owner.entity)
        let inverseOrder = matching.inverseOrder(of: relationship, declaredBy: table.owner.entity, besides: links)
        notes += links.compactMap { table.renamingNote(from: $0.storage) }
        let own = table.storage
        let needsPlaces = (
            owners: own.ownerPlace != nil && (!inverseOrder.isEmpty || links.contains { $0.storage.ownerPlace == nil }),
            targets: own.targetPlace != nil && links.contains { $0.storage.targetPlace == nil }
        )
        let temporary = temporaryNames.name(for: table.name)
        if links.count == 1, inverseOrder.isEmpty, let kept = links.first?.storage, links[0].isComplete,
            kept.isJoinTable,
            kept.hasShape(of: own, in: matching.source), !joins.contains(where: { $0.renamed?.table == kept.table })
        {
            joins.append(Join(table: table, temporary: temporary, renamed: kept, needsPlaces: needsPlaces))
            return
        }
        let join = Join(table: table, temporary: temporary, renamed: nil, needsPlaces: needsPlaces)
        try store.execute(table.creation(as: join.temporary))
        for link in links {
            let places = [(own.ownerPlace, "owner_place"), (own.targetPlace, "target_place")].compactMap {
                name, value in
                name.map { (name: $0.sqlName, value: value) }
            }
            let names = [own.owner.sqlName, own.target.sqlName] + places.map(\.name)
            let values =
                ["owner", "target"]
                + places.map(\.value).map { value in
                    value == "owner_place" && !inverseOrder.isEmpty ? "NULL" : value
                }
            try store.execute(
                "INSERT OR IGNORE INTO \(join.temporary.sqlName) (\(names.joined(separator: ", "))) "
                    + "SELECT \(values.joined(separator: ", ")) FROM (\(link.query))")
        }
        if let place = own.ownerPlace?.sqlName {
            for link in inverseOrder {
                try store.execute(
                    "UPDATE \(join.temporary.sqlName) AS l SET \(place) = i.target_place FROM (\(link.query)) AS i "
                        + "WHERE l.\(own.owner.sqlName) = i.target AND l.\(own.target.sqlName) = i.owner")
            }
        }
        joins.append(join)
    }

    private func relationship(of side: JoinTableLayout.Side) -> RelationshipDescription? {
        guard let entity = destination.model.entity(named: side.entity),
            case .relationship(let relationship)? = destination.model.property(named: side.relationship, of: entity)
        else { return nil }
        return relationship
    }

    // MARK: When the old tables are dropped

    /// Drops the old join tables, and gives those that stay their temporary names.
    func dropReplaced() throws {
        for join in joins {
            guard let renamed = join.renamed, !join.isUnchanged else { continue }
            let own = join.table.storage
            let table = renamed.table.sqlName
            var pairs = [(renamed.owner, own.owner), (renamed.target, own.target)]
            pairs += [(renamed.ownerPlace, own.ownerPlace), (renamed.targetPlace, own.targetPlace)]
                .compactMap { from, to in from.flatMap { from in to.map { (from, $0) } } }
            let changed = pairs.filter { !$0.0.hasSameBytes(as: $0.1) }
            for (index, pair) in changed.enumerated() {
                try store.execute("ALTER TABLE \(table) RENAME COLUMN \(pair.0.sqlName) TO _R_\(index)")
            }
            for (index, pair) in changed.enumerated() {
                try store.execute("ALTER TABLE \(table) RENAME COLUMN _R_\(index) TO \(pair.1.sqlName)")
            }
            for (name, isNew) in [
                (own.ownerPlace, join.needsPlaces.owners), (own.targetPlace, join.needsPlaces.targets),
            ] {
                if let name, isNew { try store.execute("ALTER TABLE \(table) ADD COLUMN \(name.sqlName) INTEGER") }
            }
            try store.execute("ALTER TABLE \(table) RENAME TO \(join.temporary.sqlName)")
        }
        let renamed = Set(joins.compactMap { $0.renamed?.table })
        for table in matching.source.joinTables where !renamed.contains(table.name) {
            try store.execute("DROP TABLE \(table.name.sqlName)")
        }
    }

    /// The join tables that are rebuilt or renamed.
    var changedTables: Set<String> { Set(joins.filter { !$0.isUnchanged }.map(\.table.name)) }

    // MARK: When the new tables have their names

    func finish() throws {
        for join in joins where !join.isUnchanged {
            let name = join.table.name.sqlName
            try store.execute("ALTER TABLE \(join.temporary.sqlName) RENAME TO \(name)")
            let own = join.table.storage
            if let place = own.ownerPlace, join.needsPlaces.owners {
                try store.assignPlaces(place, in: name, key: "rowid", of: own.target, by: own.owner)
            }
            if let place = own.targetPlace, join.needsPlaces.targets {
                try store.assignPlaces(place, in: name, key: "rowid", of: own.owner, by: own.target)
            }
        }
    }
}

extension JoinTableLayout {
    /// The storage of the owner's relationship.
    var storage: LinkStorage {
        LinkStorage(joining: name, owner, inverse)
    }

    /// Returns a note if the links were in a table that the other one of the two relationships named: Core Data chooses
    /// it by the whole model. A change of the number alone follows from the entities' names.
    fileprivate func renamingNote(from old: LinkStorage) -> String? {
        let names = [old.table, name].map { $0.dropFirst(2).drop { $0.isASCII && $0.isNumber } }
        guard old.isJoinTable, names[0] != names[1], names[0] == inverse.relationship.uppercased() else { return nil }
        return "the join table \(old.table) becomes \(name), as Core Data names it for the newer model"
    }
}

extension LinkStorage {
    init(joining table: String, _ owner: JoinTableLayout.Side, _ target: JoinTableLayout.Side) {
        self.init(
            table: table, owner: owner.column, target: target.column, ownerPlace: owner.orderColumn,
            targetPlace: target.orderColumn, isJoinTable: true)
    }

    /// The names of the table and its columns.
    fileprivate var names: [String] { [table, owner, target] + [ownerPlace, targetPlace].compactMap(\.self) }

    /// True if the table can serve as `other` once it is renamed: its key has the same column order, and no positions
    /// are dropped.
    func hasShape(of other: LinkStorage, in source: StoreLayout) -> Bool {
        guard let table = source.joinTables.first(where: { $0.name == table }), table.owner.column == owner else {
            return false
        }
        return (ownerPlace == nil || other.ownerPlace != nil) && (targetPlace == nil || other.targetPlace != nil)
    }
}
