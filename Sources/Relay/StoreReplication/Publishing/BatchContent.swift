import LinuxSystem
import PersistentHistory
import SQLiteFormat
import SQLiteStore

/// One batch, read in one transaction (Documentation/Relay.md, "The format").
///
/// Its memory doesn't grow with the number of changes: SQLite sorts the changed keys, in a file if there are many, and
/// the lines wait in two spools. Deleted keys and lines that need no second look go to the first, rows to the second.
struct BatchContent {
    let upto: HistoryToken
    let schema: String
    /// The state that history doesn't record, as the batch carries it.
    let extras: Known

    struct Known: Equatable {
        let lines: [UInt8]
        /// The state of the schema.
        let schema: String
        /// The digests of virtual tables' contents, by the bytes of their names.
        var contents: [[UInt8]: ContentsReading.Digest] = [:]
    }

    private(set) var rows = 0
    private(set) var changes = 0
    let head = SpooledOutput()
    let body = SpooledOutput()
    /// The lines after the rows.
    private(set) var tail: [UInt8] = []

    private let encoding: TextEncoding

    /// A line with several rows of history ends at this size, in bytes.
    private static let lineSize = 16 << 10
    private static let bufferSize = 128 << 10

    /// Reads a batch. Returns nil if the token is the last one, and the state that history doesn't record is unchanged.
    init?(
        _ reader: StoreReader, of store: ReplicableStore, _ history: StoreHistory, after token: HistoryToken,
        known: Known?
    ) throws {
        schema = store.schema
        let encoding = try TextEncoding(reader)
        self.encoding = encoding
        try history.check(token)
        if try RecordedPosition.lastBreak(after: token.number, reader) != nil {
            throw StoreHistory.Discontinuity.gap
        }
        let now = try history.current()
        upto = now
        let settings = try BatchExtras(reader, store.position)
        let contents = store.virtualTables.compactMap { table -> ContentsReading? in
            guard case .own(let content)? = table.content else { return nil }
            return ContentsReading(content, reader, encoding: encoding)
        }
        var extras = Known(lines: settings.lines, schema: store.schema)
        for content in contents { extras.contents[Array(content.table.name.utf8)] = try content.digest() }
        self.extras = extras
        if now.number == token.number, known == extras { return nil }
        try head.append(settings.opening(from: token, upto: now, schema: store.schema, encoding: encoding))
        try readHistory(reader, after: token.number)
        try head.append(settings.tables)
        if now.number > token.number { try readRows(reader, of: store.tables, after: token.number) }
        for content in contents {
            let name = Array(content.table.name.utf8)
            guard let digest = extras.contents[name] else { continue }
            let isChanged = known?.contents[name] != digest
            try content.append(digest, withRows: isChanged, to: body)
            if isChanged { rows += digest.rows }
        }
        tail = settings.sequence
    }

    private mutating func readHistory(_ reader: StoreReader, after number: Int64) throws {
        let row = try reader.prepare(
            """
            SELECT number, table_id, operation, key, columns, nonce, time, author FROM main.GS_CHANGE
            WHERE number > ?1 ORDER BY number
            """, [.integer(number)])
        var line: [UInt8] = []
        while try row.step() {
            line += line.isEmpty ? "{\"type\":\"history\",\"rows\":[[".utf8 : ",[".utf8
            for column: Int32 in 0..<8 {
                if column > 0 { line.append(UInt8(ascii: ",")) }
                row.appendJSON(column, encoding: encoding, to: &line)
            }
            line.append(UInt8(ascii: "]"))
            changes += 1
            if line.count > Self.lineSize {
                line += "]}\n".utf8
                try head.append(line)
                line.removeAll(keepingCapacity: true)
            }
        }
        if !line.isEmpty { try head.append(line + "]}\n".utf8) }
    }

    /// Reads each changed key once, in the order of the tables' b-trees.
    private mutating func readRows(
        _ reader: StoreReader, of tables: [ReplicatedTable], after number: Int64
    ) throws {
        let tables = Dictionary(tables.map { ($0.number, $0) }, uniquingKeysWith: { first, _ in first })
        let change = try reader.prepare(
            """
            SELECT table_id, key FROM main.GS_CHANGE WHERE number > ?1 AND operation < 3
            GROUP BY table_id, key ORDER BY table_id, key
            """, [.integer(number)])
        var (deletes, found): ([UInt8], [UInt8]) = ([], [])
        var current: RowReading?
        while try change.step() {
            let number = change.integer(0)
            if current?.table.number != number {
                guard let table = tables[number] else { throw StoreHistory.Discontinuity.schema }
                current = RowReading(table, reader, encoding: encoding)
            }
            guard let current else { continue }
            try current.read(change, deletes: &deletes, rows: &found)
            rows += 1
            if deletes.count > Self.bufferSize {
                try head.append(deletes)
                deletes.removeAll(keepingCapacity: true)
            }
            if found.count > Self.bufferSize {
                try body.append(found)
                found.removeAll(keepingCapacity: true)
            }
        }
        try head.append(deletes)
        try body.append(found)
    }
}
