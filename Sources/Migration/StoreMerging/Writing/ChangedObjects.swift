import CoreDataStore
import ManagedObjectModels
import SQLiteStore

/// The group's objects that a merge changes without taking the legacy store's values: they lose a one-to-one link, or
/// one of their to-many relationships gains or loses an object. Core Data counts each as an update.
///
/// `gs_touched` names them, with the column or the to-many relationship (after a dot) that has changed. It names
/// relationships of objects with the legacy store's values, too.
struct ChangedObjects {
    let session: MergeSession
    private var store: StoreWriter { session.store }
    private let state = MergeSession.State.self

    init(_ session: MergeSession) { self.session = session }

    /// A to-many relationship that a table's column stores, with the table of the objects that have it.
    private struct Stored {
        let table: Int
        let column: String
        let target: Int
        let relationship: String
    }

    static func name(ofRelationship name: String) -> String { "." + name }

    private func quote(_ name: String) -> String { MergeSession.quote(name) }

    /// Returns the to-many relationships whose links are columns of other objects.
    private func storedRelationships(_ layout: StoreLayout) -> [Stored] {
        session.schema.tables.enumerated().flatMap { index, table in
            guard table.isCoreData, let columns = layout.tables.first(where: { $0.name == table.name })?.columns else {
                return [Stored]()
            }
            return columns.compactMap { column in
                guard case .reference(let owner, let name) = column.content,
                    let entity = layout.model.entity(named: owner),
                    case .relationship(let relationship)? = layout.model.property(named: name, of: entity),
                    let target = table.column(column.name)?.reference
                else { return nil }
                // A to-many relationship without an inverse is stored in the destination.
                let many = relationship.isToMany ? relationship : layout.model.inverse(of: relationship)
                guard let many, many.isToMany else { return nil }
                return Stored(table: index, column: column.name, target: target, relationship: many.name)
            }
        }
    }

    /// Keeps the links that rows of the group's store are about to lose, before anything is written.
    func rememberLinks() throws {
        try store.execute("CREATE TEMP TABLE gs_former (t INTEGER, c TEXT, gid INTEGER, v INTEGER)")
        guard let layout = session.schema.layout else { return }
        for stored in storedRelationships(layout) {
            let table = session.schema.tables[stored.table]
            try store.execute(
                "INSERT INTO temp.gs_former SELECT \(stored.table), \(stored.column.sqlLiteral), t.Z_PK, "
                    + "t.\(quote(stored.column)) FROM main.\(quote(table.name)) AS t WHERE t.Z_PK IN "
                    + "(SELECT gid FROM \(session.map(stored.table)) WHERE s = \(state.takesLegacy.rawValue))")
        }
    }

    /// Finds the objects, once all links are written, and increments `Z_OPT` of those that have not the legacy store's
    /// values.
    func record() throws {
        try store.execute("CREATE TEMP TABLE gs_touched (t INTEGER, gid INTEGER, p TEXT, PRIMARY KEY (t, gid, p))")
        guard let layout = session.schema.layout else { return }
        try store.execute("INSERT INTO temp.gs_touched SELECT t, gid, c FROM temp.gs_cleared")
        for stored in storedRelationships(layout) { try touch(stored) }
        for (index, join) in session.schema.joinTables.enumerated() {
            guard let described = layout.joinTables.first(where: { $0.name == join.name }) else { continue }
            for (place, side) in [described.owner, described.inverse].enumerated() {
                try touch(
                    join.sides[place].table, side.relationship,
                    "SELECT r\(place) AS gid FROM temp.gs_j\(index) WHERE NOT known")
            }
        }
        for (index, table) in session.schema.tables.enumerated() where table.isCoreData {
            try store.execute(
                "DELETE FROM temp.gs_touched WHERE t = \(index) AND gid IN "
                    + "(SELECT gid FROM \(session.map(index)) WHERE s = \(state.added.rawValue))")
            try store.execute(
                "UPDATE main.\(quote(table.name)) SET Z_OPT = Z_OPT + 1 WHERE Z_PK IN "
                    + "(SELECT gid FROM temp.gs_touched WHERE t = \(index)) AND Z_PK NOT IN "
                    + "(SELECT gid FROM \(session.map(index)) WHERE s = \(state.takesLegacy.rawValue))")
        }
    }

    /// Adds the objects that added rows lead to, and those that changed rows led to or lead to now.
    private func touch(_ stored: Stored) throws {
        let column = quote(stored.column)
        let rows = "main.\(quote(session.schema.tables[stored.table].name)) AS t"
        let former =
            "temp.gs_former AS f WHERE f.t = \(stored.table) AND f.c = \(stored.column.sqlLiteral)"
        let changed = "FROM \(former) AND f.v IS NOT (SELECT \(column) FROM \(rows) WHERE t.Z_PK = f.gid)"
        try touch(
            stored.target, stored.relationship,
            """
            SELECT t.\(column) AS gid FROM \(rows) WHERE t.Z_PK IN \
            (SELECT gid FROM \(session.map(stored.table)) WHERE s = \(state.added.rawValue)) \
            UNION SELECT f.v \(changed) \
            UNION SELECT t.\(column) FROM \(rows) WHERE t.Z_PK IN (SELECT f.gid \(changed))
            """)
    }

    private func touch(_ table: Int, _ relationship: String, _ objects: String) throws {
        try store.execute(
            "INSERT OR IGNORE INTO temp.gs_touched SELECT \(table), o.gid, "
                + "\(Self.name(ofRelationship: relationship).sqlLiteral) FROM (\(objects)) AS o "
                + "WHERE o.gid IN (SELECT Z_PK FROM main.\(quote(session.schema.tables[table].name)))")
    }
}
