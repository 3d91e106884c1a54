/// The schema of a database as SQLite describes it: its objects, and its tables with all that SQL needs to know.
///
/// Read it in the transaction whose rows it describes: the value is of one moment, and nothing is read later. The
/// number of queries doesn't depend on the number of tables. All other code asks this value; only `MigrationAudit`
/// reads schemas itself, because it checks what was done by this reading.
package struct DatabaseSchema: Sendable {
    /// A row of `sqlite_schema` (https://sqlite.org/schematab.html).
    package struct Object: Equatable, Sendable {
        package enum Kind: String, Sendable {
            case table, index, trigger, view
        }

        package let kind: Kind
        package let name: String
        /// The table or view that it belongs to; the name itself for these.
        package let table: String
        package let creation: String
    }

    /// https://sqlite.org/pragma.html#pragma_table_xinfo
    package struct Column: Equatable, Sendable {
        package enum Storage: Int64, Sendable {
            case ordinary
            /// An argument of a virtual table.
            case hidden
            /// Generated, computed on reading.
            case virtual
            /// Generated, stored with the row.
            case stored
        }

        package let name: String
        package let type: String
        package let isMandatory: Bool
        /// The default value as SQL; nil for none.
        package let defaultValue: String?
        /// The column's place in the primary key, from 1; 0 if it isn't part of it.
        package let keyPlace: Int64
        package let storage: Storage

        /// True if a statement can assign the column.
        package var isAssignable: Bool { storage == .ordinary }
    }

    /// An index, also one that SQLite makes for a constraint (https://sqlite.org/pragma.html#pragma_index_xinfo).
    package struct Index: Sendable {
        /// A part of the key.
        package struct Term: Sendable {
            /// The column; nil for an expression and for the rowid.
            package let column: String?
            package let isExpression: Bool
            package let collation: String?
        }

        package enum Origin: String, Sendable {
            case statement = "c"
            case uniqueConstraint = "u"
            case primaryKey = "pk"
        }

        package let name: String
        package let origin: Origin
        package let isUnique: Bool
        package let isPartial: Bool
        /// Nil for an index that SQLite makes for a constraint.
        package let creation: String?
        package internal(set) var terms: [Term] = []

        /// The first part of the key with a collation that SQLite doesn't have itself; nil if there is none.
        package var termOfUnknownCollation: Term? {
            terms.first { term in
                term.collation.map { !["BINARY", "NOCASE", "RTRIM"].contains($0.uppercased()) } ?? false
            }
        }

        /// That collation.
        package var unknownCollation: String? { termOfUnknownCollation?.collation }
    }

    /// One column of a foreign key (https://sqlite.org/pragma.html#pragma_foreign_key_list).
    package struct ForeignKey: Sendable {
        package let column: String
        package let table: String
        /// Nil for the primary key of the other table.
        package let target: String?
        /// The column's place in the key, from 0.
        package let place: Int
        /// True if it has another action than NO ACTION.
        package let hasAction: Bool

        package init(column: String, table: String, target: String?, place: Int = 0, hasAction: Bool = false) {
            (self.column, self.table, self.target) = (column, table, target)
            (self.place, self.hasAction) = (place, hasAction)
        }
    }

    package struct Table: Sendable {
        package enum Kind: Equatable, Sendable {
            case rowid, withoutRowid
            /// A virtual table. Other tables store its rows, if any.
            case virtual
        }

        package let name: String
        package let kind: Kind
        /// True if a virtual table keeps its content here, and its module is available to say so.
        package let isShadow: Bool
        package let creation: String
        /// Empty for a virtual table, whose columns only its module knows: `columns(of:in:)`.
        package internal(set) var columns: [Column] = []
        package internal(set) var indexes: [Index] = []
        package var foreignKeys: [ForeignKey] = []
    }

    /// The objects in the order of their creation, without those that SQLite makes for constraints.
    package let objects: [Object]
    /// The tables in the order of their creation, without views and SQLite's own (`sqlite_…`).
    package var tables: [Table]
    /// The tables' places by `key(of:)`.
    let places: [String: Int]

    /// Returns the table that SQL means by a name.
    package func table(_ name: String) -> Table? { places[Self.key(of: name)].map { tables[$0] } }

    /// The tables in the order of their names.
    package var tablesByName: [Table] { tables.sorted { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) } }

    package func objects(_ kind: Object.Kind) -> [Object] { objects.filter { $0.kind == kind } }

    /// Returns the tables that keep the content of a virtual table: their names begin with its name and `_`. If there
    /// are virtual tables `a` and `a_b`, `a_b_data` belongs to `a_b`, although it begins with `a_` too.
    package func shadowTables(of table: Table) -> [Table] {
        let owners = tables.filter { $0.kind == .virtual }.map { Self.key(of: $0.name) }
        let own = Self.key(of: table.name)
        return tables.filter { shadow in
            let name = Self.key(of: shadow.name)
            return shadow.isShadow
                && owners.filter { name.hasPrefix($0 + "_") }.max { $0.utf8.count < $1.utf8.count } == own
        }
    }

    /// Returns a key that is equal for names that SQLite takes for the same: ASCII letters regardless of case, and all
    /// else byte by byte. Swift takes some texts for equal that SQLite keeps apart.
    package static func key(of name: String) -> String {
        if name.utf8.allSatisfy({ $0 < 0x80 }) { return name.lowercased() }
        var scalars = String.UnicodeScalarView()
        for byte in name.utf8 { scalars.append(UnicodeScalar(0x41...0x5A ~= byte ? byte + 0x20 : byte)) }
        return String(scalars)
    }
}

extension DatabaseSchema.Table {
    /// The columns that a statement can assign. Generated ones follow from these, and may need functions of the store's
    /// own program.
    package var assignableColumns: [DatabaseSchema.Column] { columns.filter(\.isAssignable) }

    /// The columns of the primary key, in its order.
    package var primaryKey: [DatabaseSchema.Column] {
        columns.filter { $0.keyPlace > 0 }.sorted { $0.keyPlace < $1.keyPlace }
    }

    /// The INTEGER PRIMARY KEY, another name of the rowid; nil if there is none. Any other primary key of a table with
    /// rowids has an index, even INTEGER PRIMARY KEY DESC (https://sqlite.org/lang_createtable.html, §5).
    package var rowidAlias: String? {
        let key = primaryKey
        guard kind == .rowid, key.count == 1, !indexes.contains(where: { $0.origin == .primaryKey }) else { return nil }
        return key[0].name
    }

    /// A name that reaches the rowid: one that no column has, else the INTEGER PRIMARY KEY; nil if there is none.
    package var rowid: String? {
        guard kind == .rowid else { return nil }
        let taken = Set(columns.map { DatabaseSchema.key(of: $0.name) })
        return Self.rowidNames.first { !taken.contains($0) } ?? rowidAlias
    }

    /// The module of a virtual table in lower case; nil for another table or if the statement can't be parsed.
    package var module: String? { kind == .virtual ? VirtualTableModule.name(declaredIn: creation) : nil }

    /// SQLite's names of the rowid (https://sqlite.org/lang_createtable.html, §5).
    package static let rowidNames = ["rowid", "_rowid_", "oid"]

    /// Returns the column that SQL means by a name.
    package func column(_ name: String) -> DatabaseSchema.Column? {
        let key = DatabaseSchema.key(of: name)
        return columns.first { DatabaseSchema.key(of: $0.name) == key }
    }
}

extension String {
    /// The string as a quoted SQL identifier.
    package var sqlName: String { quoted("\"") }

    /// The string as an SQL string literal.
    package var sqlText: String { quoted("'") }

    /// Doubles the quotation marks by scalar: a mark and an accent after it are one character to Swift, not to SQLite.
    private func quoted(_ mark: Unicode.Scalar) -> String {
        var result = String.UnicodeScalarView([mark])
        for scalar in unicodeScalars {
            if scalar == mark { result.append(mark) }
            result.append(scalar)
        }
        result.append(mark)
        return String(result)
    }
}
