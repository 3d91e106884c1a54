import CoreDataStore
import FoundationEssentials
import ManagedObjectModels
import SQLiteStore

/// Adds the merge to the history that Core Data keeps in the group's store, as one transaction
/// (Documentation/Formats.md, "Core Data's persistent history").
struct CoreDataTransaction {
    let session: MergeSession
    private var store: StoreWriter { session.store }
    private static let author = "groupstore"

    func record() throws {
        guard let layout = session.schema.layout, try store.hasTables("ACHANGE", "ATRANSACTION") else { return }
        let state = MergeSession.State.self
        /// The number and state of each changed row.
        func changed(_ index: Int) -> String {
            "(SELECT gid, s FROM \(session.map(index)) WHERE s IN (\(state.added.rawValue), \(state.takesLegacy.rawValue)) "
                + "UNION SELECT gid, \(state.takesLegacy.rawValue) FROM temp.gs_touched WHERE t = \(index))"
        }
        let isChanged = try session.schema.tables.indices.contains { index in
            try session.schema.tables[index].isCoreData
                && store.integer("SELECT 1 FROM \(changed(index)) LIMIT 1") != nil
        }
        guard isChanged else { return }
        let transaction = try addTransaction()
        var number = try highest(Self.changeEntity, in: "ACHANGE")
        let insertion = try store.prepare(
            "INSERT INTO main.ACHANGE (Z_PK, Z_ENT, Z_OPT, ZCHANGETYPE, ZENTITY, ZENTITYPK, ZTRANSACTIONID, ZCOLUMNS) "
                + "VALUES (?1, \(Self.changeEntity), NULL, ?2, ?3, ?4, \(transaction), ?5)")
        for (index, table) in session.schema.tables.enumerated() where table.isCoreData {
            let rows = try store.prepare(
                "SELECT m.gid, n.Z_ENT, m.s, u.columns, (SELECT group_concat(p, char(10)) FROM temp.gs_touched "
                    + "WHERE t = \(index) AND gid = m.gid) FROM \(changed(index)) AS m "
                    + "JOIN main.\(MergeSession.quote(table.name)) AS n ON n.Z_PK = m.gid "
                    + "LEFT JOIN temp.gs_updated AS u ON u.t = \(index) AND u.gid = m.gid ORDER BY m.gid")
            while try rows.step() {
                number += 1
                let isUpdate = rows.integer(2) == state.takesLegacy.rawValue
                let names = Set([3, 4].flatMap { (rows.text($0) ?? "").split(separator: "\n").map(String.init) })
                let columns: SQLiteValue =
                    isUpdate ? .blob(bitmap(of: names, entity: rows.integer(1), table, layout)) : .null
                insertion.reset()
                try insertion.bind([
                    .integer(number), .integer(isUpdate ? 1 : 0), .integer(rows.integer(1)), .integer(rows.integer(0)),
                    columns,
                ])
                while try insertion.step() {}
            }
        }
        try raise(Self.changeEntity, to: number)
    }

    // MARK: The transaction

    private static let changeEntity: Int64 = 16_001
    private static let transactionEntity: Int64 = 16_002
    private static let stringEntity: Int64 = 16_003

    private func highest(_ entity: Int64, in table: String) throws -> Int64 {
        let recorded =
            try store.integer(
                "SELECT Z_MAX FROM main.Z_PRIMARYKEY WHERE Z_ENT = ?1", [.integer(entity)]) ?? 0
        return max(recorded, try store.integer("SELECT max(Z_PK) FROM main.\(table)") ?? 0)
    }

    private func raise(_ entity: Int64, to number: Int64) throws {
        try store.execute(
            "UPDATE main.Z_PRIMARYKEY SET Z_MAX = max(Z_MAX, ?2) WHERE Z_ENT = ?1",
            [.integer(entity), .integer(number)])
    }

    private func columns(of table: String) throws -> Set<String> {
        Set(try DatabaseSchema.columns(of: table, in: store).map(\.name))
    }

    private func addTransaction() throws -> Int64 {
        let columns = try columns(of: "ATRANSACTION")
        let number = try highest(Self.transactionEntity, in: "ATRANSACTION") + 1
        var names = ["Z_PK", "Z_ENT", "ZTIMESTAMP"]
        // Seconds since 2001-01-01 UTC.
        var values: [SQLiteValue] = [
            .integer(number), .integer(Self.transactionEntity), .real(Date().timeIntervalSinceReferenceDate),
        ]
        let author = try string()
        for (plain, reference) in [
            ("ZAUTHOR", "ZAUTHORTS"), ("ZBUNDLEID", "ZBUNDLEIDTS"), ("ZPROCESSID", "ZPROCESSIDTS"),
        ] {
            if let author, columns.contains(reference) {
                names.append(reference)
                values.append(.integer(author))
            } else if columns.contains(plain) {
                names.append(plain)
                values.append(.text(Self.author))
            }
        }
        let places = names.indices.map { "?\($0 + 1)" }.joined(separator: ", ")
        try store.execute("INSERT INTO main.ATRANSACTION (\(names.joined(separator: ", "))) VALUES (\(places))", values)
        try raise(Self.transactionEntity, to: number)
        return number
    }

    /// Returns the number of the author's name in Core Data's table of names; nil if there is no such table.
    private func string() throws -> Int64? {
        guard try store.hasTables("ATRANSACTIONSTRING") else { return nil }
        if let known = try store.integer(
            "SELECT Z_PK FROM main.ATRANSACTIONSTRING WHERE ZNAME = ?1", [.text(Self.author)])
        {
            return known
        }
        let number = try highest(Self.stringEntity, in: "ATRANSACTIONSTRING") + 1
        try store.execute(
            "INSERT INTO main.ATRANSACTIONSTRING (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (?1, \(Self.stringEntity), 1, ?2)",
            [.integer(number), .text(Self.author)])
        try raise(Self.stringEntity, to: number)
        return number
    }

    // MARK: The changed properties

    /// Returns the bitmap of the changed properties: to-one relationships, attributes, to-many relationships; in each
    /// group inherited ones first, then by name.
    ///
    /// - Parameter columns: The changed columns, and to-many relationships as `ChangedObjects` names them.
    private func bitmap(
        of columns: Set<String>, entity number: Int64, _ table: MergeTable, _ layout: StoreLayout
    ) -> [UInt8] {
        guard let entity = layout.numbers.entities.first(where: { layout.numbers.number(of: $0.name) == number }) else {
            return []
        }
        let lineage = ([entity] + layout.model.superentities(of: entity)).reversed()
        var slots: [Bool] = []
        func isChanged(_ property: String) -> Bool {
            layout.column(of: property, of: entity.name).map { columns.contains($0.name) } ?? false
        }
        let relationships = lineage.flatMap { owner in
            owner.relationships.filter { !$0.isTransient }.sorted { $0.name.precedes($1.name) }
        }
        for relationship in relationships where !relationship.isToMany {
            let isChanged = isChanged(relationship.name)
            slots.append(isChanged)
            if layout.numbers.hasSubentities(relationship.destinationEntityName) { slots.append(isChanged) }
        }
        for owner in lineage {
            for attribute in owner.attributes.filter({ !$0.isTransient }).sorted(by: { $0.name.precedes($1.name) }) {
                slots.append(isChanged(attribute.name))
            }
        }
        slots += relationships.filter(\.isToMany).map {
            columns.contains(ChangedObjects.name(ofRelationship: $0.name))
        }
        var bytes = [UInt8](repeating: 0, count: (slots.count + 7) / 8)
        for (place, isSet) in slots.enumerated() where isSet { bytes[place / 8] |= 0x80 >> UInt8(place % 8) }
        return bytes
    }
}
