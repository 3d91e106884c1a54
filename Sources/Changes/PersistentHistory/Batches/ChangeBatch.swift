import SQLiteStore

/// The rows that changed in a store since a token, as they are now. Use it on one thread, inside `StoreReader.read`:
/// all of its pages are of the same state of the store.
///
/// The pages after a token, applied in order to a copy that had the token's state, lead to the state that the last one
/// was read from, even if each was read from another: a row that changed after its page is in a later page again.
package final class ChangeBatch {
    package struct Page: Sendable {
        package let rows: [ChangedRow]
        package let token: HistoryToken
        /// True if no change follows.
        package let isLast: Bool
    }

    /// The state of the schema.
    package let schema: String
    package let encoding: TextEncoding
    /// The tables with rows whose changes the history doesn't record.
    package let unrecorded: [String]
    /// The tables and entities of the rows that were read so far.
    package private(set) var tables: [BatchTable] = []

    private let reader: StoreReader
    private let history: StoreHistory
    private let source: any BatchSource
    private var numbers: [TableKey: Int] = [:]

    private struct TableKey: Hashable {
        let name: [UInt8]
        let entity: String?
    }

    /// Opens the history for reading with values. Throws `HistoryError.outdated` if the schema has changed and changes
    /// may go unrecorded since, and as `StoreHistory.init` does.
    package init(_ reader: StoreReader) throws {
        self.reader = reader
        history = try StoreHistory(reader)
        encoding = try TextEncoding(reader)
        if let recorded = history.source as? RecordedHistory {
            if recorded.isOutdated, let table = try HistoryAssessment.firstDoubtful(reader) {
                throw HistoryError.outdated(table: table, reader.location.path)
            }
            source = try RecordedBatchSource(recorded, encoding: encoding)
        } else if let coreData = history.source as? CoreDataHistory {
            source = try CoreDataBatchSource(coreData, reader, encoding: encoding)
        } else {
            throw HistoryError.disabled(reader.location.path)
        }
        identifier = try history.start().history
        schema = try SchemaDigest.state(reader)
        unrecorded = try source.unrecordedTables()
    }

    /// The history's identifier.
    package let identifier: String

    package func current() throws -> HistoryToken { try history.current() }
    package func start() throws -> HistoryToken { try history.start() }

    /// Returns the rows of the changes after the token: up to `limit`, and up to `maxBytes` of them as JSON, but at
    /// least one.
    ///
    /// Throws `StoreHistory.Discontinuity`: the rows can't be known, or the schema isn't `knownSchema`.
    /// `HistoryError.rowTooLarge` if a row takes more than `maxRowBytes`.
    package func page(
        after token: HistoryToken, knownSchema: String? = nil, limit: Int = .max,
        maxBytes: Int = StoreHistory.pageBytes, maxRowBytes: Int = .max, filter: HistoryFilter = HistoryFilter()
    ) throws -> Page {
        try history.check(token)
        if let knownSchema, knownSchema != schema { throw StoreHistory.Discontinuity.schema }
        var (rows, size): ([ChangedRow], Int) = ([], 0)
        var known: [RecordedKey: Int] = [:]
        var last = history.position(token.number, token.nonce, token.history)
        var isFull = false
        let images = FormerImages()
        try source.forEachChange(after: token.number) {
            images.add($1, of: $0)
        } _: { change, key in
            let image = images.take(key)
            guard filter.admits(change) else {
                last = history.position(change.number, change.nonce, token.history)
                return true
            }
            guard change.operation != .gap else { throw StoreHistory.Discontinuity.gap }
            if let index = known[key] {
                rows[index].add(change)
            } else {
                var row = try row(of: change, key)
                if change.operation != .insert, let values = image.flatMap({ source.values($0, of: key) }) {
                    row.setBefore(values)
                }
                if row.size > maxRowBytes {
                    let path = reader.location.path
                    throw HistoryError.rowTooLarge(table: change.table, bytes: row.size, path)
                }
                isFull = !rows.isEmpty && size + row.size > maxBytes
                if isFull { return false }
                known[key] = rows.count
                rows.append(row)
                size += row.size
            }
            last = history.position(change.number, change.nonce, token.history)
            isFull = rows.count >= limit || size >= maxBytes
            return !isFull
        }
        try source.addTransactions(&rows)
        return Page(rows: rows, token: last, isLast: !isFull)
    }

    private func row(of change: HistoryChange, _ key: RecordedKey) throws -> ChangedRow {
        let found = try source.find(change, key)
        let name = TableKey(name: Array(found.table.name.utf8), entity: found.table.entity)
        let number = numbers[name] ?? tables.count
        if numbers[name] == nil {
            numbers[name] = number
            tables.append(found.table)
        }
        return ChangedRow(change, table: number, key: found.key, found: found.row)
    }
}

/// The part of a batch's reading that differs between the two kinds of history.
protocol BatchSource {
    /// - Parameter image: Called with what a row held before its next change, if that is recorded.
    func forEachChange(
        after number: Int64, image: @escaping (RecordedKey, [UInt8]) -> Void,
        _ body: (HistoryChange, RecordedKey) throws -> Bool
    ) throws
    /// Parses an image of a row. Returns nil if it doesn't say what the row held.
    func values(_ image: [UInt8], of key: RecordedKey) -> [StoredValue]?
    /// Reads the row of a change; `row` is nil if it is gone.
    func find(_ change: HistoryChange, _ key: RecordedKey) throws -> (
        table: BatchTable, key: [StoredValue], row: FoundRow?
    )
    func unrecordedTables() throws -> [String]
    /// Adds the transactions of the rows' last changes, as far as they are known.
    func addTransactions(_ rows: inout [ChangedRow]) throws
}

/// The images that were recorded before the changes that they belong to. A statement that ends in another way leaves
/// its images behind, so their number is limited.
private final class FormerImages {
    private var images: [RecordedKey: [UInt8]] = [:]
    private var size = 0
    private static let maxSize = 4 << 20

    func add(_ image: [UInt8], of key: RecordedKey) {
        if size > Self.maxSize { (images, size) = ([:], 0) }
        size += image.count + 256
        images[key] = image
    }

    /// Removes and returns the image of a row that has changed.
    func take(_ key: RecordedKey) -> [UInt8]? { images.removeValue(forKey: key) }
}
