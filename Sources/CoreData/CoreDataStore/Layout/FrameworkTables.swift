import SQLiteStore

/// Core Data's own tables beside those of entities and relationships: which they are, and where they hold entity
/// numbers, objects' keys and names of the model. Migrations and merges read it here. The audit has its own reading.
///
/// The three kinds of CloudKit's tables that refer to objects were derived from the names of their columns:
///
/// - `ACHANGE`: `ZENTITY`, `ZENTITYPK`; `ZCOLUMNS` and the tombstones number an entity's properties.
/// - `ANSCKRECORDMETADATA`, `ANSCKHISTORYANALYZERSTATE`: `ZENTITYID`, `ZENTITYPK`.
/// - `ANSCKMIRROREDRELATIONSHIP`, `ANSCKIMPORTPENDINGRELATIONSHIP`: the names `ZCDENTITYNAME`, `ZRELATEDENTITYNAME` and
///   `ZRELATIONSHIPNAME`; the objects are known by their records.
/// - `ANSCKRECORDZONEMOVERECEIPT` and tables of assets: `ZRECORDMETADATA`, a row of `ANSCKRECORDMETADATA`.
///
/// The other `ANSCK…` tables hold zones, operations, events and settings. `Z_ENT` in all of these is the table's own
/// entity, whose number no model changes (from 16001 on).
package enum FrameworkTables {
    /// Entity numbers with their highest keys, the metadata, the model cache.
    package static let bookkeeping: Set<String> = ["Z_PRIMARYKEY", "Z_METADATA", "Z_MODELCACHE"]
    /// Persistent history.
    package static let history: Set<String> = ["ACHANGE", "ATRANSACTION", "ATRANSACTIONSTRING"]
    /// The numbers of entities below this are a model's.
    package static let firstNumber: Int64 = 16000

    /// Returns true for the tables by which NSPersistentCloudKitContainer mirrors a store.
    package static func isMirroring(_ table: String) -> Bool { table.uppercased().hasPrefix("ANSCK") }

    /// Returns true for each of Core Data's own tables.
    package static func contains(_ table: String) -> Bool {
        let name = table.uppercased()
        return bookkeeping.contains(name) || history.contains(name) || isMirroring(name)
    }

    /// A table whose rows refer to objects by entity number and key.
    package struct ObjectTable: Equatable, Sendable {
        package let name: String
        /// The column of entity numbers.
        package let entity: String
    }

    /// A table whose rows name an entity and one of its relationships. A name that the store's table lacks is nil.
    package struct NameTable: Equatable, Sendable {
        package let name: String
        package let entity: String
        package let relationship: String?
        package let relatedEntity: String?
    }

    /// The tables of a store that refer to objects by number. One of CloudKit's is known by its column.
    package static func objectTables(of schema: DatabaseSchema) -> [ObjectTable] {
        schema.tablesByName.map(\.name).compactMap { table in
            let column = table.uppercased() == "ACHANGE" ? "ZENTITY" : isMirroring(table) ? "ZENTITYID" : nil
            guard let column, schema.has(column: column, in: table) else { return nil }
            return ObjectTable(name: table, entity: column)
        }
    }

    /// CloudKit's tables that name entities.
    package static func nameTables(of schema: DatabaseSchema) -> [NameTable] {
        mirroringTables(of: schema, with: "ZCDENTITYNAME").map { table in
            func column(_ name: String) -> String? { schema.has(column: name, in: table) ? name : nil }
            return NameTable(
                name: table, entity: "ZCDENTITYNAME", relationship: column("ZRELATIONSHIPNAME"),
                relatedEntity: column("ZRELATEDENTITYNAME"))
        }
    }

    /// CloudKit's tables whose rows belong to a row of `ANSCKRECORDMETADATA`, which the column `ZRECORDMETADATA` names.
    package static func recordParts(of schema: DatabaseSchema) -> [String] {
        mirroringTables(of: schema, with: "ZRECORDMETADATA")
    }

    private static func mirroringTables(of schema: DatabaseSchema, with column: String) -> [String] {
        schema.tablesByName.map(\.name).filter { isMirroring($0) && schema.has(column: column, in: $0) }
    }

    /// Returns true for a column of a table that isn't Core Data's if its name says that it may hold entity numbers.
    /// What other frameworks keep there isn't known.
    package static func isSuspect(_ column: String) -> Bool {
        ["Z_ENT", "ZENTITY", "ZENTITYID"].contains(column.uppercased())
    }

    /// Returns the suspect columns of tables that aren't Core Data's, as `TABLE.COLUMN`.
    package static func suspects(in schema: DatabaseSchema, besides layout: StoreLayout) -> [String] {
        let own = Set((layout.tables.map(\.name) + layout.joinTables.map(\.name)).map { $0.uppercased() })
        let others = schema.tablesByName.map(\.name).filter { !contains($0) && !own.contains($0.uppercased()) }
        return others.flatMap { table in
            schema.columnNames(of: table).filter(isSuspect).map { "\(table).\($0)" }
        }
    }
}
