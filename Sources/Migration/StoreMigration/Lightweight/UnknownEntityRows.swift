import CoreDataStore
import LinuxSystem
import SQLiteStore

/// Counts rows whose entity number isn't one of their table's entities. Core Data creates no objects from them. They
/// are left unchanged, unless the new model gives their number to an entity: they would become its objects. Such rows
/// get the negative of their number, which no entity has.
struct UnknownEntityRows {
    private let store: SQLiteConnection
    private let indexes: [StoreIndex]
    private(set) var notes: [String] = []
    /// The numbers of rows that get the negative of theirs, by table.
    private var claimedCounts: [String: Int64] = [:]

    init(_ store: SQLiteConnection, _ indexes: [StoreIndex]) {
        self.store = store
        self.indexes = indexes
    }

    /// Counts the rows if an index answers quickly, or if the migration reads all rows anyway: the time to add an
    /// attribute must not depend on the number of rows.
    ///
    /// - Parameter isReadOnly: True if `inspect(afterRenumbering:updated:)` won't follow.
    mutating func inspect(_ change: TableChange, isReadOnly: Bool = false) throws {
        guard let source = change.table.source,
            change.table.includesAllObjects || change.table.excludedNumbers != nil
        else { return }
        let isIndexed = indexes.contains { $0.table == source.name && $0.columns == ["z_ent"] }
        try inspectClaimed(change, source.name)
        let known = change.knownEntityNumbers.union(change.claimedNumbers).sorted()
        if isIndexed {
            guard try hasNumbers(source.name.sqlName, otherThan: known) else { return }
        } else {
            guard change.method.readsAllRows || isReadOnly && change.method.isRenumbering else { return }
        }
        record(
            try store.integer(
                "SELECT count(*) FROM \(source.name.sqlName) WHERE Z_ENT IS NULL OR Z_ENT NOT IN (\(known.list))") ?? 0,
            source.name)
    }

    /// Counts the rows that the new model would turn into objects.
    private mutating func inspectClaimed(_ change: TableChange, _ table: String) throws {
        let numbers = change.claimedNumbers
        guard !numbers.isEmpty else { return }
        let counts = try store.prepare(
            "SELECT Z_ENT, count(*) FROM \(table.sqlName) WHERE Z_ENT IN (\(numbers.list)) GROUP BY Z_ENT ORDER BY Z_ENT"
        )
        while try counts.step() {
            let (number, count) = (counts.integer(0), counts.integer(1))
            claimedCounts[table, default: 0] += count
            let (rows, get) = count == 1 ? ("row", "it gets") : ("rows", "they get")
            notes.append(
                "\(table) has \(count) \(rows) whose entity number \(number) is not in the model, but in the new one: "
                    + "\(get) the number -\(number), and \(count == 1 ? "is not an object" : "are not objects")")
        }
    }

    /// Returns the statement that gives rows the negative of a number that the new model gives to an entity; nil if
    /// there are no such rows. It must run before the objects are renumbered.
    func release(_ change: TableChange) -> String? {
        guard let name = change.table.source?.name, claimedCounts[name] != nil else { return nil }
        return "UPDATE \(name.sqlName) SET Z_ENT = -Z_ENT WHERE Z_ENT IN (\(change.claimedNumbers.list))"
    }

    /// Counts the rows that an update of all known entities' rows left out.
    mutating func inspect(afterRenumbering table: String, updated: Int64) throws {
        guard !indexes.contains(where: { $0.table == table && $0.columns == ["z_ent"] }) else { return }
        let left = (try store.integer("SELECT count(*) FROM \(table.sqlName)") ?? 0) - updated
        record(left - (claimedCounts[table] ?? 0), table)
    }

    private mutating func record(_ count: Int64, _ table: String) {
        guard count > 0 else { return }
        notes.append(
            "\(table) has \(Counted(count, "row")) whose entity number is not in the model: "
                + (count == 1
                    ? "it is left unchanged, and is no object" : "they are left unchanged, and are not objects"))
    }

    /// True if the table has a number that isn't known. The query steps from one number to the next, and so does one
    /// index lookup for each entity.
    private func hasNumbers(_ table: String, otherThan known: [Int64]) throws -> Bool {
        let first = "(SELECT min(Z_ENT) FROM \(table))"
        let next = "(SELECT min(Z_ENT) FROM \(table) WHERE Z_ENT > number)"
        let others = try store.integer(
            "WITH RECURSIVE n (number) AS (SELECT \(first) UNION ALL SELECT \(next) FROM n WHERE number IS NOT NULL) "
                + "SELECT EXISTS (SELECT 1 FROM n WHERE number NOT IN (\(known.list))) "
                + "OR EXISTS (SELECT 1 FROM \(table) WHERE Z_ENT IS NULL)")
        return others == 1
    }
}

extension TableChange.Method {
    fileprivate var readsAllRows: Bool { if case .rebuilt = self { true } else { false } }

    fileprivate var isRenumbering: Bool {
        if case .altered(let alteration) = self { alteration.renumbering != nil } else { false }
    }
}
