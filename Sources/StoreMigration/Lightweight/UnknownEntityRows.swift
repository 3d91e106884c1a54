import CoreDataStore
import SQLiteStore

/// Rows whose entity number is none of their table's. No object is made of them; they stay as they are, and one that gets
/// the number of another entity so would become an object of it.
struct UnknownEntityRows {
    private let store: SQLiteConnection
    private let indexes: [StoreIndex]
    private(set) var notes: [String] = []

    init(_ store: SQLiteConnection, _ indexes: [StoreIndex]) {
        self.store = store
        self.indexes = indexes
    }

    /// Looks where an index tells, or where all rows are read anyway: an attribute that is added takes no longer with more
    /// rows.
    ///
    /// - Parameter isRenumberingToCome: Whether nobody will look after the rows were renumbered.
    mutating func look(_ change: TableChange, isRenumberingToCome: Bool = false) throws {
        guard let source = change.table.source, change.table.takesAll || change.table.leaving != nil else { return }
        let isIndexed = indexes.contains { $0.table == source.name && $0.columns == ["z_ent"] }
        let known = change.known.sorted()
        if isIndexed {
            guard try hasOthers(source.name.sqlName, than: known) else { return }
        } else {
            guard change.way.readsAllRows || isRenumberingToCome && change.way.isRenumbering else { return }
        }
        note(
            try store.integer(
                "SELECT count(*) FROM \(source.name.sqlName) WHERE Z_ENT IS NULL OR Z_ENT NOT IN (\(known.list))") ?? 0,
            source.name)
    }

    /// After all rows of known entities were written: what is left over is none of theirs.
    mutating func look(afterRenumbering table: String, of written: Int64) throws {
        guard !indexes.contains(where: { $0.table == table && $0.columns == ["z_ent"] }) else { return }
        note((try store.integer("SELECT count(*) FROM \(table.sqlName)") ?? 0) - written, table)
    }

    private mutating func note(_ count: Int64, _ table: String) {
        guard count > 0 else { return }
        notes.append(
            "\(table) has \(count) rows whose entity number is none of the model's: they stay as they are, and are no "
                + "objects")
    }

    /// From one number to the next, so that an index is looked into as often as there are entities.
    private func hasOthers(_ table: String, than known: [Int64]) throws -> Bool {
        let first = "(SELECT min(Z_ENT) FROM \(table))"
        let next = "(SELECT min(Z_ENT) FROM \(table) WHERE Z_ENT > number)"
        let others = try store.integer(
            "WITH RECURSIVE n (number) AS (SELECT \(first) UNION ALL SELECT \(next) FROM n WHERE number IS NOT NULL) "
                + "SELECT EXISTS (SELECT 1 FROM n WHERE number NOT IN (\(known.list))) "
                + "OR EXISTS (SELECT 1 FROM \(table) WHERE Z_ENT IS NULL)")
        return others == 1
    }
}

extension TableChange.Way {
    fileprivate var readsAllRows: Bool { if case .rebuilt = self { true } else { false } }

    fileprivate var isRenumbering: Bool {
        if case .altered(let alteration) = self { alteration.renumbering != nil } else { false }
    }
}
