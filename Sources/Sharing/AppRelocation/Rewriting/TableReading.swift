import SQLiteStore
import StoreRelocation

/// The reading and changing of one table's rows by their key.
struct TableReading {
    let table: DatabaseSchema.Table
    /// The columns that a statement can assign.
    let columns: [String]
    private let keys: [String]
    /// The places of the key in `columns`; nil if the key is the rowid.
    private let keyPlaces: [Int]?
    /// The places of the declared primary key in `columns`. Empty if there is none, or if it is the rowid.
    private let declaredPlaces: [Int]
    private let encoding: TextEncoding

    /// Returns nil if no name reaches a row.
    init?(_ table: DatabaseSchema.Table, _ encoding: TextEncoding) {
        self.table = table
        self.encoding = encoding
        let columns = table.assignableColumns.map(\.name)
        self.columns = columns
        let names = table.primaryKey.map(\.name)
        let places = names.compactMap { columns.firstIndex(of: $0) }
        declaredPlaces = table.rowidAlias == nil && places.count == names.count ? places : []
        if let rowid = table.rowid {
            (keys, keyPlaces) = ([rowid], nil)
        } else {
            guard table.kind == .withoutRowid, !names.isEmpty, places.count == names.count else { return nil }
            (keys, keyPlaces) = (names, places)
        }
    }

    /// Calls `body` with each row's key and cells.
    func forEachRow(_ store: SQLiteConnection, _ body: ([StoredValue], [StoredValue]) throws -> Void) throws {
        let names = (keys + columns).map(\.sqlName).joined(separator: ", ")
        let rows = try store.prepare("SELECT \(names) FROM main.\(table.name.sqlName)")
        while try rows.step() {
            let values = (0..<Int32(keys.count + columns.count)).map { rows.storedValue($0, encoding: encoding) }
            try body(Array(values[..<keys.count]), Array(values[keys.count...]))
        }
    }

    /// Returns the bytes of a text, or nil for any other value.
    func text(_ value: StoredValue) -> [UInt8]? {
        switch value {
        case .text(let text): Array(text.utf8)
        case .malformedText(let bytes) where encoding == .utf8: bytes
        case .malformedText, .null, .integer, .real, .blob: nil
        }
    }

    /// The key of a row whose cells have changed.
    func identity(_ key: [StoredValue], _ cells: [StoredValue]) -> [StoredValue] {
        keyPlaces.map { $0.map { cells[$0] } } ?? key
    }

    /// The row's name by its declared key, which only the program changes. Nil for a row that has none: `VACUUM` may
    /// number it anew.
    func name(_ key: [StoredValue], _ cells: [StoredValue]) -> String? {
        if table.rowidAlias != nil, case .integer(let rowid)? = key.first { return String(rowid) }
        let declared = declaredPlaces.map { cells[$0] }
        // SQLite allows NULL, any number of times, in the key of a table with rowids.
        guard !declared.isEmpty, !declared.contains(.null) else { return nil }
        var sum = RowSum()
        sum.add(declared, [])
        return sum.text
    }

    func update(
        _ store: SQLiteConnection, _ key: [StoredValue], _ places: [Int], _ values: [StoredValue]
    ) throws {
        let assignments = places.enumerated().map { "\(columns[$1].sqlName) = ?\($0 + 1)" }.joined(separator: ", ")
        let conditions = keys.enumerated().map { "\($1.sqlName) IS ?\(places.count + $0 + 1)" }
        let update = try store.prepare(
            "UPDATE OR ABORT main.\(table.name.sqlName) SET \(assignments) "
                + "WHERE \(conditions.joined(separator: " AND "))")
        try update.bind(stored: values + key)
        while try update.step() {}
    }
}

/// A hash of a table's rows that doesn't depend on their order.
struct RowSum: Equatable {
    private var sums: [UInt64] = [0, 0]
    private var count = 0

    var text: String { "\(sums[0])-\(sums[1])" }

    mutating func add(_ key: [StoredValue], _ cells: [StoredValue]) {
        var bytes: [UInt8] = []
        for value in key + cells { Self.append(value, to: &bytes) }
        var hash = ContentHash()
        bytes.withUnsafeBytes { hash.update($0) }
        // The text ends with 32 hexadecimal digits.
        let digits = hash.text().suffix(32)
        sums[0] &+= UInt64(digits.prefix(16), radix: 16) ?? 0
        sums[1] &+= UInt64(digits.suffix(16), radix: 16) ?? 0
        count += 1
    }

    private static func append(_ value: StoredValue, to bytes: inout [UInt8]) {
        let (tag, content): (UInt8, [UInt8]) =
            switch value {
            case .null: (0, [])
            case .integer(let number): (1, Array(String(number).utf8))
            case .real(let number): (2, Array(String(number.bitPattern).utf8))
            case .text(let text): (3, Array(text.utf8))
            case .malformedText(let text): (4, text)
            case .blob(let blob): (5, blob)
            }
        bytes.append(tag)
        bytes += Array(String(content.count).utf8) + [0x3A]
        bytes += content
    }
}
