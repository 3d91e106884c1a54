import SQLiteStore

/// A table whose rows are merged: what its columns mean, and how its rows are matched.
struct MergeTable {
    struct Column {
        enum Role: Equatable {
            case value
            /// Data that may be in an external file.
            case external
            /// The row's number in another table, by its index.
            case reference(Int)
            /// Follows from other values: a derived attribute, or the entity of a referenced object.
            case derived
            /// The place in an order, of the reference in this column.
            case order(of: String)
            /// Core Data's `Z_OPT`.
            case version
            /// Core Data's `Z_ENT`.
            case entity
            /// The row's number.
            case number
        }

        let name: String
        /// The column's name in the legacy store.
        let legacyName: String
        var role: Role
        /// The name for people, by entity number; nil: the column's name.
        var properties: [Int64: String] = [:]
        /// The column with the entity of the object that this reference leads to.
        var companion: String?

        func property(_ entity: Int64) -> String { properties[entity] ?? name }

        /// True if two matched rows with different values in it differ.
        var isCompared: Bool {
            switch role {
            case .value, .external, .reference: true
            case .derived, .order, .version, .entity, .number: false
            }
        }

        var reference: Int? { if case .reference(let table) = role { table } else { nil } }
    }

    /// A list of columns whose values identify a row, for the rows of some entities.
    struct Rule: Equatable {
        /// The entities; nil for all rows.
        var entities: [Int64]?
        var columns: [String]
        var properties: [String]
    }

    /// A kind of rows: an entity, or all rows of a table without a model.
    struct Entity {
        /// The entity's number; 0 for a table without a model.
        let number: Int64
        let name: String?
        var rules: [Rule] = []
        /// True if a row matches only one that is equal in everything.
        var comparesWholeRows = false

        var keys: [[String]] { comparesWholeRows ? [["*"]] : rules.map(\.properties) }
    }

    let name: String
    let legacyName: String
    let isCoreData: Bool
    let isWithoutRowid: Bool
    /// The name of the row's number; nil for a WITHOUT ROWID table.
    let number: String?
    /// The name of the row's number in the legacy store.
    let legacyNumber: String?
    /// True if the row's number is a declared column, which programs see.
    let hasVisibleNumber: Bool
    /// The columns of the primary key of a WITHOUT ROWID table.
    let primaryKey: [String]
    let isAutoincrement: Bool
    var columns: [Column]
    var entities: [Entity]
    /// Columns that foreign keys of other tables name, other than the row's number.
    var referencedColumns: [String] = []

    var entityColumn: String? { isCoreData ? "Z_ENT" : nil }

    func column(_ name: String) -> Column? {
        columns.first { DatabaseSchema.key(of: $0.name) == DatabaseSchema.key(of: name) }
    }

    /// True if the column is the row's number.
    func isVisibleNumber(_ column: Column) -> Bool {
        hasVisibleNumber && number.map(DatabaseSchema.key) == DatabaseSchema.key(of: column.name)
    }

    /// The rules of all entities, without repetition.
    var rules: [Rule] {
        var found: [Rule] = []
        for rule in entities.flatMap(\.rules) where !found.contains(rule) { found.append(rule) }
        return found
    }

    /// True if the row's number is what identifies a row.
    var keyIsNumber: Bool {
        guard !isCoreData, let number, hasVisibleNumber, let rules = entities.first?.rules, !rules.isEmpty else {
            return isWithoutRowid
        }
        return rules.allSatisfy {
            $0.columns.count == 1 && DatabaseSchema.key(of: $0.columns[0]) == DatabaseSchema.key(of: number)
        }
    }

    /// The references among a key's columns.
    var keyReferences: Set<Int> {
        Set(rules.flatMap(\.columns).compactMap { column($0)?.reference })
    }

    var references: Set<Int> { Set(columns.compactMap(\.reference)) }

    /// The table that the row's number itself refers to; nil if it is only a number.
    var numberReference: Int? {
        guard let number, hasVisibleNumber else { return nil }
        return column(number)?.reference
    }
}

/// A join table of Core Data.
struct MergeJoinTable {
    struct Side {
        let column: String
        let table: Int
        /// The column with the places of this side's objects in the other side's order.
        let order: String?
    }

    let name: String
    let legacyName: String
    let relationship: String
    let sides: [Side]
}
