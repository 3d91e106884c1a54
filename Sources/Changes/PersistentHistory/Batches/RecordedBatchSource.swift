import CoreDataStore
import SQLiteStore

/// The rows of groupstore's own history.
final class RecordedBatchSource: BatchSource {
    private struct Known {
        let recorded: RecordedTable
        let lookup: RowLookup
        /// The description by entity number; 0 without one.
        var descriptions: [Int64: BatchTable] = [:]
    }

    private let history: RecordedHistory
    private let encoding: TextEncoding
    private let model: PropertyColumns?
    private var known: [Int64: Known] = [:]
    private var commits: CommitRanges?

    init(_ history: RecordedHistory, encoding: TextEncoding) throws {
        self.history = history
        self.encoding = encoding
        model = try PropertyColumns(history.reader)
    }

    func forEachChange(
        after number: Int64, image: @escaping (RecordedKey, [UInt8]) -> Void,
        _ body: (HistoryChange, RecordedKey) throws -> Bool
    ) throws {
        // An image has the columns of its time.
        if number < .max {
            try history.forEachChange(from: number + 1, image: history.isOutdated ? nil : image, body)
        }
    }

    func values(_ image: [UInt8], of key: RecordedKey) -> [StoredValue]? {
        guard let columns = known[key.table]?.recorded.columns else { return nil }
        return FormerRows.values(image, count: columns.count, encoding: encoding)
    }

    func find(_ change: HistoryChange, _ key: RecordedKey) throws -> (
        table: BatchTable, key: [StoredValue], row: FoundRow?
    ) {
        // The triggers were made again since, because the schema changed.
        guard history.tables[key.table]?.isInstalled == true else { throw StoreHistory.Discontinuity.schema }
        let table = try known(key.table, named: change.table)
        switch key.content {
        case .row(let number):
            guard table.recorded.keyColumns.isEmpty else { throw StoreHistory.Discontinuity.schema }
            let row = try table.lookup.row(number)
            return (describe(row, of: key.table), [.integer(number)], row)
        case .quoted(let text):
            let values = QuotedValues.parse(text, encoding: encoding)
            guard values.count == table.recorded.keyColumns.count, !table.recorded.keyColumns.isEmpty else {
                throw StoreHistory.Discontinuity.schema
            }
            // SQLite converts malformed UTF-16 when it quotes: different keys may have the same text.
            guard encoding == .utf8 || !values.contains(where: \.mayBeRepaired) else {
                throw StoreHistory.Discontinuity.gap
            }
            let row = try table.lookup.row(values, recordedBy: change.number)
            return (describe(row, of: key.table), values, row)
        }
    }

    private func known(_ number: Int64, named name: String) throws -> Known {
        if let found = known[number] { return found }
        guard let recorded = try RecordedTable.read(name, in: history.reader) else {
            throw StoreHistory.Discontinuity.schema
        }
        let found = Known(recorded: recorded, lookup: RowLookup(recorded, history.reader, encoding: encoding))
        known[number] = found
        return found
    }

    private func describe(_ row: FoundRow?, of number: Int64) -> BatchTable {
        guard var table = known[number] else { return BatchTable(name: "", columns: []) }
        let entity = model?.entity(of: row, columns: table.recorded.columns) ?? 0
        if let described = table.descriptions[entity] { return described }
        let recorded = table.recorded
        var description = BatchTable(
            name: recorded.name, rowid: recorded.rowidName, key: recorded.identifyingColumns, columns: recorded.columns)
        if let model { description = model.describing(description, entity: entity) }
        table.descriptions[entity] = description
        known[number] = table
        return description
    }

    func addTransactions(_ rows: inout [ChangedRow]) throws {
        // A replica's own commit is a batch, which may have the changes of many commits at home.
        guard !rows.isEmpty, !history.isReplica else { return }
        let known = try commits ?? CommitRanges(history.reader, lastChange: history.current().number)
        commits = known
        for index in rows.indices { rows[index].transaction = known.commit(of: rows[index].number) }
    }

    func unrecordedTables() throws -> [String] {
        let recorded = Set(try history.recordedTables().map(DatabaseSchema.key))
        let own = try HistorySchema.tables(in: history.reader)
        return try DatabaseSchema.tableNames(in: history.reader).filter {
            !own.contains($0) && !recorded.contains(DatabaseSchema.key(of: $0))
        }
    }
}

extension RecordedTable {
    /// Reads a table; nil if there is none or it can't be recorded.
    static func read(_ name: String, in reader: StoreReader) throws -> RecordedTable? {
        try DatabaseSchema(reader, only: name).table(name).flatMap { try? RecordedTable($0, triggers: []) }
    }

    fileprivate var rowidName: String? { if case .rowid(let name, _) = key { name } else { nil } }

    /// The columns of the key, or the one that is the rowid.
    fileprivate var identifyingColumns: [String] { keyColumns.isEmpty ? [alias].compactMap(\.self) : keyColumns }
}

extension BatchTable {
    init(name: String, rowid: String? = nil, key: [String] = [], columns: [String]) {
        self.init(
            name: name, entity: nil, rowid: rowid, key: key, columns: columns, properties: [], toMany: [])
    }
}

extension StoredValue {
    /// True for text that malformed text may have become when SQLite converted it from UTF-16, or that SQLite repairs
    /// when it converts it to UTF-16. SQLite joins half a surrogate pair with whatever unit follows it, so that any
    /// character beyond U+FFFF may come of one.
    package var mayBeRepaired: Bool {
        switch self {
        case .text(let text): text.unicodeScalars.contains { $0.value >= 0xFFFD }
        case .malformedText: true
        case .null, .integer, .real, .blob: false
        }
    }
}
