import CoreDataStore
import SQLiteStore
import StoreMigration
import StoreRelocation

/// Updates the values that follow from the rows: counters of numbers, and derived attributes.
struct Bookkeeping {
    let session: MergeSession
    private var store: StoreWriter { session.store }

    func run() throws -> [String] {
        for table in session.schema.tables {
            if table.isCoreData { try raiseMaximum(of: table) }
            if table.isAutoincrement { try raiseSequence(of: table) }
        }
        return try derive()
    }

    private func raiseMaximum(of table: MergeTable) throws {
        guard let root = table.entities.first?.number else { return }
        try store.execute(
            "UPDATE main.Z_PRIMARYKEY SET Z_MAX = max(Z_MAX, coalesce((SELECT max(Z_PK) FROM main."
                + "\(MergeSession.quote(table.name))), 0)) WHERE Z_ENT = ?1", [.integer(root)])
    }

    /// Raises AUTOINCREMENT's counter to the greater one of both sides (https://sqlite.org/autoinc.html).
    private func raiseSequence(of table: MergeTable) throws {
        for database in ["main", "legacy"] where try !store.hasTables("sqlite_sequence", in: database) { return }
        let known = try store.integer(
            "SELECT max(seq) FROM legacy.sqlite_sequence WHERE name = ?1", [.text(table.legacyName)])
        guard let known,
            try store.integer("SELECT seq FROM legacy.sqlite_sequence WHERE name = ?1", [.text(table.legacyName)])
                != nil
        else { return }
        try store.execute(
            "UPDATE main.sqlite_sequence SET seq = max(seq, ?2) WHERE name = ?1", [.text(table.name), .integer(known)])
        if store.changes == 0 {
            try store.execute(
                "INSERT INTO main.sqlite_sequence (name, seq) VALUES (?1, ?2)", [.text(table.name), .integer(known)])
        }
    }

    /// Computes derived attributes again. Returns notes about those that can't be computed.
    private func derive() throws -> [String] {
        guard let layout = session.schema.layout else { return [] }
        for derived in layout.derivedAttributeTriggers where !derived.isSaveTime {
            let numbers = layout.numbers.family(of: derived.entity).map(layout.numbers.number)
            let column = derived.column.sqlName
            try store.execute(
                "UPDATE main.\(derived.table.sqlName) AS t SET \(column) = \(derived.value) "
                    + "WHERE Z_ENT IN (\(numbers.sorted().map(String.init).joined(separator: ", "))) "
                    + "AND \(column) IS NOT \(derived.value)")
        }
        var notes: [String] = []
        for name in layout.unsupportedDerivations {
            let parts = name.split(separator: ".", maxSplits: 1).map(String.init)
            guard parts.count == 2, let column = layout.column(of: parts[1], of: parts[0])?.name,
                let table = layout.table(of: parts[0])?.name, let index = session.schema.index(of: table)
            else { continue }
            let numbers = layout.numbers.family(of: parts[0]).map(layout.numbers.number)
            try store.execute(
                "UPDATE main.\(table.sqlName) SET \(column.sqlName) = NULL WHERE \(column.sqlName) IS NOT NULL AND Z_ENT IN "
                    + "(\(numbers.sorted().map(String.init).joined(separator: ", "))) AND Z_PK IN "
                    + "(SELECT gid FROM \(session.map(index)) WHERE s IN (\(MergeSession.State.added.rawValue), "
                    + "\(MergeSession.State.takesLegacy.rawValue)))")
            if store.changes > 0 {
                notes.append(
                    "\(name) is derived in a way that groupstore can't compute: it has no value in the added "
                        + "objects until Core Data saves them")
            }
        }
        return notes
    }
}
