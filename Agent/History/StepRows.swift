import AgentProtocol
import RowShadow
import SQLiteFormat
import SQLiteStore

/// The rows of steps as JSON, for the wire.
struct StepRows {
    fileprivate typealias Row = (number: UInt64, end: Int64, object: JSONObject)

    /// Where a page ended within a step, so that the next one doesn't read the step from its start.
    struct Continuation {
        /// The number of the last row of the page.
        let number: UInt64
        /// A table, and the place in the log behind that row.
        fileprivate let place: (table: LoggedTable, offset: Int64)
    }

    private let known: UInt64
    private let limit: Int
    /// The token where a batch with values begins; nil for rows without values.
    private let start: String?
    private let tables: TableFilter?
    private let operations: [String]?
    private var end: JSONObject = [:]
    private(set) var number: UInt64 = 0
    private(set) var objects: [JSONObject] = []
    /// The number of rows.
    private(set) var count = 0
    /// The number of the last row that was added.
    private(set) var lastNumber: UInt64
    /// True if there are more rows than `limit`.
    private(set) var isFull = false
    /// The tables that the steps made, dropped or altered, by their former and their present names.
    private(set) var redefined: Set<ExactName> = []
    /// True if an earlier page had the line of the present table.
    private var wasTold = false
    /// The number of objects up to the last row.
    private var endOfRows = 0
    /// The rows of the present table.
    private var rows: [Row] = []
    private var bytes = 0
    private var offset: Int64 = 0
    /// Where the next page begins; nil if that is another step, or if nothing was added.
    private(set) var continuation: Continuation?

    /// The number of bytes from which on a page is full.
    private static let maximumBytes = 1 << 20
    private struct Enough: Error {}

    /// - Parameter known: The number of the last row that is known already.
    init(after known: UInt64, limit: Int, values start: String?, filter: HistoryOperation.Filter?) {
        self.known = known
        self.limit = limit
        self.start = start
        lastNumber = known
        tables = filter?.tables.map { TableFilter($0) }
        operations = filter?.operations
    }

    /// Adds the rows of a step until it is full. Returns false if they aren't known.
    ///
    /// - Parameter former: Where the page before this one ended, if this is of the same step and filter.
    mutating func read(_ reader: StepReader, from former: Continuation? = nil) throws -> Bool {
        let step = reader.step
        guard step.kind != .gap else { return false }
        number = former?.number ?? step.firstRow - 1
        var transaction: JSONObject = ["id": .integer(Int64(step.number)), "exact": .bool(step.kind == .exact)]
        if step.kind == .net { transaction["net"] = true }
        end = ["time": .time(step.time), "transaction": .object(transaction)]
        let encoding = TextEncoding(step.encoding)
        if let start {
            objects.append([
                "type": "batch", "from": .string(start), "schema": .string("\(step.schemaVersion)"),
                "encoding": .string(encoding.rawValue), "unrecorded": .array([]),
            ])
        }
        func opened(_ logged: LoggedTable) throws -> StepTable {
            func definition(_ part: LoggedTable.Definition?) throws -> StoredTable? {
                try part.map { try StoredTable(name: $0.name, creation: $0.sql, encoding: encoding) }
            }
            return StepTable(logged, before: try definition(logged.before), after: try definition(logged.after))
        }
        var table: StepTable?
        var isContinued = former != nil
        do {
            try reader.forEach(from: former?.place) { logged in
                if let table { append(of: table) }
                table = nil
                wasTold = number < known || isContinued
                isContinued = false
                if logged.before != logged.after {
                    redefined.formUnion([logged.before, logged.after].compactMap { $0.map { ExactName($0.name) } })
                }
                guard logged.isAdmitted(by: tables) else { return }
                table = try opened(logged)
            } row: { row in
                number += 1
                offset = reader.offset
                guard number > known else { return }
                if let table { addRow(table, try table.values(of: row)) }
                if rows.count + count > limit || bytes > Self.maximumBytes { throw Enough() }
            }
            if let table { append(of: table) }
        } catch is Enough {
            isFull = true
            rows.removeSubrange(min(rows.count, max(limit - count, 0))...)
            // The next page begins after the last row, also where that isn't remembered.
            if rows.isEmpty { objects.removeSubrange(endOfRows...) } else if let table { append(of: table) }
        } catch is StoreError {
            return false
        } catch is MalformedRecord {
            return false
        }
        return true
    }

    private mutating func append(of table: StepTable) {
        let isRedefined = !wasTold && table.logged.before != table.logged.after
        if start != nil, !rows.isEmpty || isRedefined, let definition = table.definition(saysChange: isRedefined) {
            objects.append(JSONObject(members: [("type", "table")] + definition.members))
        }
        for row in rows {
            objects.append(row.object)
            lastNumber = row.number
        }
        if let last = rows.last {
            continuation = Continuation(number: last.number, place: (table.logged, last.end))
        }
        if !rows.isEmpty { endOfRows = objects.count }
        count += rows.count
        rows = []
    }

    /// Adds the row that was counted last, unless its values are the same before and after.
    private mutating func addRow(_ table: StepTable, _ row: StepRow) {
        let (before, after) = (row.before, row.after)
        let isSame = before.flatMap { former in after.map { table.sameColumns(former, $0) } }
        if let isSame, isSame.allSatisfy({ $0 }) { return }
        let operation = before == nil ? "insert" : after == nil ? "delete" : "update"
        guard operations?.contains(operation) ?? true else { return }
        var object: JSONObject = [:]
        if start != nil { object["type"] = "row" }
        object["number"] = .integer(Int64(number))
        object["table"] = .string(table.logged.name)
        object["op"] = .string(operation)
        if let first = row.key.first {
            object["key"] = row.key.count == 1 ? first.json : .array(row.key.map(\.json))
        }
        if start != nil {
            if let after { object["values"] = .array(after.map(\.json)) }
            if table.hasSameColumns, let before { object["before"] = .array(before.map(\.json)) }
        }
        if let isSame, let columns = table.after?.columns {
            object["columns"] = .array(zip(columns, isSame).compactMap { $1 ? nil : .string($0) })
        }
        for member in end.members { object[member.key] = member.value }
        if start != nil { bytes += object.text.utf8.count }
        rows.append((number, offset, object))
    }
}
