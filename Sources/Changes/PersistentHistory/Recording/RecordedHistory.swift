import FoundationEssentials
import SQLiteFormat
import SQLiteStore

/// The history that groupstore's triggers record.
struct RecordedHistory: HistorySource {
    struct Table {
        let name: String
        /// True if its triggers record now. The name of another one is that of an earlier time.
        let isInstalled: Bool
        let hasKeyColumns: Bool
        /// The columns' names; nil if columns were added since: an update that assigned one of those was recorded
        /// without it.
        let columns: [String]?
    }

    let reader: StoreReader
    private let identifier: String
    private let trimmed: Int64
    private let trimmedNonce: Int64
    let isOutdated: Bool
    let isReplica: Bool
    /// True if it also records what rows held before.
    let recordsImages: Bool
    let tables: [Int64: Table]
    let encoding: TextEncoding

    /// Creates a source, or returns nil if the store has no such history.
    init?(_ reader: StoreReader) throws {
        self.reader = reader
        let own = try HistorySchema.tables(in: reader)
        guard own.isSuperset(of: ["GS_HISTORY", "GS_CHANGE"]) else { return nil }
        isReplica = own.contains(HistorySchema.replicaTable)
        let row = try reader.prepare(
            "SELECT identifier, version, trimmed, trimmed_nonce, schema_version FROM GS_HISTORY WHERE id = 1")
        guard try row.step(), let identifier = row.text(0) else {
            throw HistoryError.foreign("GS_HISTORY", reader.location.path)
        }
        guard row.integer(1) <= HistorySchema.versionWithImages else {
            throw HistoryError.newer(version: row.integer(1), reader.location.path)
        }
        self.identifier = identifier
        recordsImages = row.integer(1) == HistorySchema.versionWithImages
        trimmed = row.integer(2)
        trimmedNonce = row.integer(3)
        isOutdated = try reader.integer("PRAGMA main.schema_version") != row.integer(4)
        tables = try Self.tables(reader, columnTriggers: isOutdated ? Self.columnTriggers(reader) : [:])
        encoding = try TextEncoding(reader)
    }

    /// Reads the recorded tables. A renamed table is listed by its current name: its triggers moved with it.
    private static func tables(
        _ reader: StoreReader, columnTriggers: [String: String]
    ) throws -> [Int64: Table] {
        let row = try reader.prepare(
            """
            SELECT t.id, coalesce(s.tbl_name, t.name), t.key_columns IS NOT NULL, t.columns, s.name IS NOT NULL
            FROM GS_TABLE AS t
            LEFT JOIN sqlite_schema AS s ON s.type = 'trigger' AND s.name = 'GS_' || t.id || '_I'
            """)
        var found: [Int64: Table] = [:]
        while try row.step() {
            let name = row.text(1) ?? ""
            let columns = names(row.text(3)).map {
                HistoryTriggers.columns($0, number: row.integer(0), triggers: columnTriggers)
            }
            let present = try DatabaseSchema.columns(of: name, in: reader).filter(\.isAssignable).map(\.name)
            found[row.integer(0)] = Table(
                name: name, isInstalled: row.integer(4) == 1, hasKeyColumns: row.integer(2) == 1,
                columns: columns.flatMap { present.allSatisfy($0.containsExact) ? $0 : nil })
        }
        return found
    }

    /// Returns the statements of the triggers that record assigned columns, by name.
    private static func columnTriggers(_ reader: StoreReader) throws -> [String: String] {
        let triggers = try reader.rows(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND name GLOB 'GS_[0-9]*_C[0-9]*'"
        ) { ($0.decodedText(0) ?? "", $0.decodedText(1) ?? "") }
        return Dictionary(triggers, uniquingKeysWith: { first, _ in first })
    }

    /// Returns the names in a JSON array; nil for other text.
    static func names(_ json: String?) -> [String]? {
        // Foundation's scanner reads past the last byte to locate some errors, and traps. The padding prevents that.
        try? JSONDecoder().decode(
            [String].self, from: Data(((json ?? "") + String(repeating: " ", count: 16)).utf8))
    }

    func summary() throws -> StoreHistory.Summary {
        let row = try reader.prepare("SELECT name, number, (time - 2440587.5) * 86400 FROM GS_SUBSCRIBER ORDER BY name")
        var subscribers: [HistorySubscriber] = []
        while try row.step() {
            subscribers.append(HistorySubscriber(name: row.text(0) ?? "", number: row.integer(1), time: row.real(2)))
        }
        return StoreHistory.Summary(
            kind: .groupstore, token: try current(),
            changes: try reader.integer("SELECT count(*) FROM GS_CHANGE WHERE \(Self.isChange)") ?? 0,
            first: try reader.integer("SELECT number FROM GS_CHANGE WHERE \(Self.isChange) ORDER BY number LIMIT 1"),
            trimmed: trimmed,
            tables: try recordedTables(), isOutdated: isOutdated, doubtfulTables: try doubtfulTables(),
            recordsImages: recordsImages, subscribers: subscribers)
    }

    /// Returns the tables whose changes are recorded now, by name.
    func recordedTables() throws -> [String] {
        try reader.rows(
            "SELECT tbl_name FROM sqlite_schema WHERE type = 'trigger' AND name GLOB 'GS_[0-9]*_I' ORDER BY tbl_name"
        ) { $0.text(0) ?? "" }
    }

    func doubtfulTables() throws -> [String] { isOutdated ? try HistoryAssessment.doubtful(reader) : [] }

    func current() throws -> HistoryToken {
        let last = try reader.prepare(
            "SELECT number, nonce FROM GS_CHANGE WHERE \(Self.isChange) ORDER BY number DESC LIMIT 1")
        guard try last.step() else { return try start() }
        return HistoryToken(history: identifier, number: last.integer(0), nonce: last.integer(1))
    }

    func start() throws -> HistoryToken { HistoryToken(history: identifier, number: trimmed, nonce: trimmedNonce) }

    func check(_ token: HistoryToken) throws {
        guard token.history == identifier else { throw StoreHistory.Discontinuity.epoch }
        if token.number == trimmed {
            guard token.nonce == trimmedNonce else { throw StoreHistory.Discontinuity.epoch }
            return
        }
        guard token.number > trimmed else { throw StoreHistory.Discontinuity.trimmed }
        let row = try reader.prepare("SELECT nonce FROM GS_CHANGE WHERE number = ?", [.integer(token.number)])
        guard try row.step(), row.integer(0) == token.nonce else { throw StoreHistory.Discontinuity.epoch }
    }

    func forEachChange(from number: Int64, _ body: (HistoryChange) throws -> Bool) throws {
        try forEachChange(from: number, image: nil) { change, _ in try body(change) }
    }

    /// Calls `body` with each change and the key of its row, beginning with this number, until `body` returns false.
    ///
    /// - Parameter image: Called with what a row held before its next change, if that is recorded.
    func forEachChange(
        from number: Int64, image: ((RecordedKey, [UInt8]) -> Void)?,
        _ body: (HistoryChange, RecordedKey) throws -> Bool
    ) throws {
        let isWanted =
            recordsImages && image != nil ? "operation <> \(HistorySchema.assignment)" : Self.isChange
        let row = try reader.prepare(
            """
            SELECT number, nonce, table_id, operation, key, \(Self.assigned), author, (time - 2440587.5) * 86400, columns
            FROM GS_CHANGE AS c WHERE number >= \(number) AND \(isWanted) ORDER BY number
            """)
        while try row.step() {
            let content: RecordedKey.Content =
                row.value(4).isInteger ? .row(row.integer(4)) : .quoted(row.textBytes(4) ?? [])
            let key = RecordedKey(table: row.integer(2), content: content)
            if row.integer(3) == HistorySchema.image, recordsImages {
                image?(key, row.textBytes(8) ?? [])
                continue
            }
            guard try body(change(row), key) else { return }
        }
    }

    func number(ofLast count: Int) throws -> Int64? {
        try reader.integer(
            """
            SELECT min(number) FROM
            (SELECT number FROM GS_CHANGE WHERE \(Self.isChange) ORDER BY number DESC LIMIT \(count))
            """)
    }

    private static let isChange = HistorySchema.isChange

    /// SQL of the column bits of the update `c`. Version 1 kept them in the update's own row; now they are in the rows
    /// right before it.
    private static let assigned = """
        CASE operation WHEN 1 THEN columns | (SELECT coalesce(sum(DISTINCT n.columns), 0) FROM GS_CHANGE AS n
        WHERE n.number < c.number AND n.number > coalesce((SELECT p.number FROM GS_CHANGE AS p
        WHERE p.number < c.number AND p.\(isChange) ORDER BY p.number DESC LIMIT 1), 0)
        AND n.table_id = c.table_id AND n.key = c.key AND n.operation = \(HistorySchema.assignment)) END
        """

    private func change(_ row: SQLiteStatement) throws -> HistoryChange {
        guard let operation = HistoryChange.Operation(rawValue: row.integer(3)) else {
            throw HistoryError.foreign("a row of GS_CHANGE", reader.location.path)
        }
        let table =
            tables[row.integer(2)] ?? Table(name: "", isInstalled: false, hasKeyColumns: false, columns: nil)
        let key: [SQLiteValue] =
            operation == .gap
            ? []
            : table.hasKeyColumns
                ? QuotedValues.parse(row.text(4) ?? "", encoding: encoding.rawValue) : [row.value(4)]
        return HistoryChange(
            number: row.integer(0), nonce: row.integer(1), table: table.name, entity: nil, entityNumber: nil,
            operation: operation,
            key: key, columns: operation == .update ? assigned(row.integer(5), of: table) : nil, author: row.text(6),
            time: row.real(7), transaction: nil, tombstone: [:])
    }

    /// Returns the assigned columns. Returns nil if no bit is set, or the table has more columns than bits: a column
    /// has no bit, or a trigger ran out of order.
    private func assigned(_ bits: Int64, of table: Table) -> [String]? {
        guard bits != 0, let columns = table.columns, columns.count <= HistoryTriggers.maxColumns else { return nil }
        let assigned = columns.enumerated().filter { bits & (1 << Int64($0.offset)) != 0 }.map(\.element)
        // A column that took the name of a dropped one has two bits.
        return assigned.enumerated().filter { !assigned[..<$0.offset].containsExact($0.element) }.map(\.element)
    }
}

/// The key of a changed row, as `GS_CHANGE` has it.
struct RecordedKey: Hashable {
    enum Content: Hashable {
        /// A rowid.
        case row(Int64)
        /// The bytes, in UTF-8, of the values of a WITHOUT ROWID table's key (`QuotedValues`).
        case quoted([UInt8])
    }

    /// The number of its `GS_TABLE`.
    let table: Int64
    let content: Content
}

extension SQLiteValue {
    fileprivate var isInteger: Bool { if case .integer = self { true } else { false } }
}
