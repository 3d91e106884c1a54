import AgentProtocol
import FoundationEssentials
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// One changed row, from the store's history or from its pages.
///
///     for change in page.changes where change.table == "note" {
///         reload(change.key)
///     }
public struct RowChange: Sendable, Equatable {
    /// A kind of change.
    public enum Operation: String, Sendable {
        /// The statement that made the change.
        case insert, update, delete
    }

    /// A value of a row's key, in SQLite's storage classes.
    public enum Value: Sendable, Hashable {
        /// The storage classes of SQLite (https://sqlite.org/datatype3.html, §2).
        case integer(Int64), real(Double), text(String), blob([UInt8]), null
        /// The bytes, in the store's encoding, of a text that isn't valid in it.
        case malformedText([UInt8])

        /// Returns true if SQLite's collation BINARY takes the values as equal: texts with the same bytes. Swift takes
        /// the normal forms of a text as equal.
        public static func == (one: Value, other: Value) -> Bool {
            switch (one, other) {
            case (.integer(let first), .integer(let second)): first == second
            case (.real(let first), .real(let second)): first == second
            case (.text(let first), .text(let second)): first.hasSameBytes(as: second)
            case (.blob(let first), .blob(let second)): first == second
            case (.null, .null): true
            case (.malformedText(let first), .malformedText(let second)): first == second
            case (.integer, _), (.real, _), (.text, _), (.blob, _), (.null, _), (.malformedText, _): false
            }
        }

        /// Hashes the value.
        public func hash(into hasher: inout Hasher) {
            switch self {
            case .integer(let number): hasher.combine(number)
            case .real(let number): hasher.combine(number)
            case .text(let text): hasher.combine(bytesOf: text)
            case .blob(let bytes), .malformedText(let bytes): hasher.combine(bytes)
            case .null: hasher.combine(0)
            }
        }
    }
    /// The table's name.
    public let table: String
    /// The entity's name in a Core Data store; nil otherwise.
    public let entity: String?
    /// The kind of change.
    public let operation: Operation
    /// The rowid as the only element, or the key columns of a WITHOUT ROWID table in their order.
    public let key: [Value]
    /// The columns, or Core Data's properties, that an update assigned; nil for other operations, and if they aren't
    /// known.
    public let columns: [String]?
    /// The author that the writer declared; nil if it declared none.
    public let author: String?
    /// The time of the change, by the writer's clock.
    public let date: Date
    /// The row as it was when the page was read; from the store's pages, as it was after the change. Nil if it was
    /// gone, or values weren't requested.
    public let values: RowValues?
    /// The row before its first change in the page; nil if it is new, or `history enable --before` didn't record it.
    /// From the store's pages, the row before the change, unless a change of the table's definition came with it.
    public let before: RowValues?
    /// The commit that the change belongs to; nil if it isn't known for certain.
    public let transaction: String?
}

/// A row's values by column.
///
///     if let title = change.values?["title"], case .text(let text) = title { show(text) }
public struct RowValues: Sendable, Equatable {
    /// The names of the stored columns, in the table's order. Generated columns aren't among them.
    public let columns: [String]
    /// The values of ``columns``.
    public let values: [RowChange.Value]
    /// The names of Core Data's properties that the columns belong to; nil for other columns. Empty without a model.
    public let properties: [String?]
    /// The many-to-many relationships of an object in Core Data's own history, by name: the key of each related object,
    /// in order. Otherwise empty; the rows that keep a relationship are then among the changes.
    public let related: [String: [RowChange.Value]]

    /// Returns the value of a column, or of a Core Data property; nil if there is none of that name.
    public subscript(name: String) -> RowChange.Value? {
        // Names that Swift takes for equal may be different to SQLite.
        let wanted = Array(name.utf8)
        let column = columns.firstIndex { Array($0.utf8) == wanted }
        let index = column ?? properties.firstIndex { $0.map { Array($0.utf8) } == wanted }
        return index.map { values[$0] }
    }
}

/// A page of a store's row changes, as returned by
/// ``SharedStore/rowChanges(since:includingValues:schema:limit:filter:)``.
public struct RowChangePage: Sendable, Equatable {
    /// The changed rows in the order of their changes.
    public let changes: [RowChange]
    /// The reason why ``changes`` doesn't cover everything since the given token: `epoch`, `history_trimmed`,
    /// `history_gap`, `migrated` or, with values, `schema_changed`; nil if it does.
    ///
    /// - Important: If this isn't nil, everything read from the store before is stale and must be read again.
    public let reset: String?
    /// The token for the next request. It stays valid when the store moves, and with any agent.
    public let token: String
    /// True if the next page is available at once.
    public let hasMore: Bool
    /// The state of the store's schema; nil if values weren't requested. Each change of the schema and each VACUUM
    /// changes it.
    public let schema: String?
    /// The tables whose changes aren't among the store's recorded ones. Empty if values weren't requested.
    public let unrecordedTables: [String]
}

/// Selects row changes. A property that is nil selects all of them.
///
///     var filter = RowFilter()
///     filter.tables = ["note"]
///     filter.exceptAuthors = ["com.example.notes"]
public struct RowFilter: Sendable, Equatable {
    /// The tables' names, compared without regard to the case of ASCII letters.
    public var tables: [String]?
    /// The entities' names in a Core Data store. A row whose entity is unknown is selected too.
    public var entities: [String]?
    /// The kinds of change.
    public var operations: [RowChange.Operation]?
    /// The authors whose changes are selected.
    public var authors: [String]?
    /// The authors whose changes are left out, such as the app's own name if it declares one with its writes.
    public var exceptAuthors: [String]?

    /// Creates a filter that selects all row changes.
    public init() {}
}

extension SharedStore {
    /// Returns the rows that changed after a token, in order. Returns at once; it doesn't wait for changes.
    ///
    /// The store needs no history if the agent's configuration has `rows: true` for it: the agent then finds the rows
    /// in the store's pages, and nothing is written to the store. Else the store must keep a history.
    ///
    ///     var (token, hasMore) = (savedToken, true)
    ///     while hasMore {
    ///         let page = try await store.rowChanges(since: token)
    ///         apply(page)
    ///         token = page.token
    ///         hasMore = page.hasMore
    ///     }
    ///
    /// With values, each row comes once, whole, as it is when the page is read, or with no values if it is gone. Remove
    /// what is gone first, then put the others over what is there. A copy that had the store's state at the token then
    /// has a later one once ``RowChangePage/hasMore`` is false; until then its rows may be of different times. The copy
    /// must have been made or brought up to date under the same ``RowChangePage/schema``.
    ///
    /// From the store's pages, a page has the rows of one transaction, or the difference that several made, with
    /// ``RowChange/before``. Apply the pages in their order.
    ///
    /// - Parameters:
    ///   - token: The token after which to begin; nil for all that is kept.
    ///   - includingValues: True for the rows with their values.
    ///   - schema: The state of an earlier page. If the store's schema has another one, the page is a reset.
    ///   - limit: The maximum number of rows, 1 to 1000.
    ///   - filter: Selects rows.
    /// - Throws: ``GroupStoreError`` with `noAgent`; `refused`, for example if the agent doesn't serve the store,
    ///   or if the store keeps no history and its rows aren't read from its pages; `system` if no thread can be
    ///   created.
    public func rowChanges(
        since token: String? = nil, includingValues: Bool = false, schema: String? = nil, limit: Int = 256,
        filter: RowFilter = RowFilter()
    ) async throws -> RowChangePage {
        var wanted = HistoryOperation.Filter(filter)
        wanted.tables = filter.tables
        let operation = HistoryOperation.changes(
            address, since: token, limit: Int64(limit), wanted, includingValues ? .values(schema: schema) : .changes)
        return try await Self.ask(.history(operation), in: container.identityNow, RowChangePage.init)
    }

    /// Records in the store's history that the named subscriber knows all changes up to the token. Until it
    /// acknowledges later changes, only a forced purge removes them. Refused with `not_supported` if rows come from the
    /// store's pages: nothing is written to such a store.
    ///
    /// - Throws: ``GroupStoreError`` with `noAgent`, `refused` or `system`.
    public func acknowledge(_ token: String, by subscriber: String) async throws {
        let operation = HistoryOperation.acknowledge(address, subscriber: subscriber, token: token)
        try await Self.ask(.history(operation), in: container.identityNow) { _, _ in }
    }

    /// Returns once every transaction committed before the call has been published to subscribers.
    ///
    /// - Throws: ``GroupStoreError`` with `noAgent`, `refused` or `system`.
    public func synchronize() async throws {
        try await Self.ask(.sync(address), in: container.identityNow) { _, _ in }
    }

    /// The time limit for a reply. Some replies need a history to be read, so it exceeds the time that the agent gives
    /// its reader.
    static let replyTimeout = Duration.seconds(40)

    static func ask<Result: Sendable>(
        _ operation: AgentRequest.Operation, in group: RelocateOperation.Identity? = nil,
        socket: FilePath? = AgentSocket.path(environment: AgentRegistries.environment),
        _ read: @escaping @Sendable ([JSONObject], JSONObject) -> Result
    ) async throws -> Result {
        do {
            return try await SystemThread.run(name: "gs-rows") {
                do throws(AgentConnectionError) {
                    guard let socket else { throw .noSocketPath }
                    var rows: [JSONObject] = []
                    var parts = PartBuffer()
                    var problem: WireError?
                    let reply = try AgentConnection(socket).request(
                        operation, in: group, deadline: Deadline(after: replyTimeout)
                    ) {
                        var line = $1
                        line["type"] = .string($0)
                        do throws(WireError) {
                            if let row = try parts.object(line) { rows.append(row) }
                        } catch {
                            problem = error
                        }
                    }
                    if let problem { throw .notUnderstood(socket, problem.message) }
                    return read(rows, reply)
                } catch {
                    throw GroupStoreError(error)
                }
            }
        } catch {
            // Creating the thread may have failed.
            throw GroupStoreError.visible(error)
        }
    }
}

extension HistoryOperation.Filter {
    /// Creates a filter without tables, which subscriptions send separately.
    init(_ filter: RowFilter) {
        self.init()
        entities = filter.entities
        operations = filter.operations?.map(\.rawValue)
        authors = filter.authors
        exceptAuthors = filter.exceptAuthors
    }
}

extension RowChangePage {
    /// - Parameter rows: The parts of the reply that came before its end.
    init(_ rows: [JSONObject], _ reply: JSONObject) {
        var tables: [RowTable] = []
        var changes: [RowChange] = []
        for row in rows {
            if let table = RowTable(row) { tables.append(table) }
            let table = tables.last { $0.isOf(row) }
            let values = table.flatMap { RowValues(row, "values", of: $0) }
            let before = table.flatMap { RowValues(row, "before", of: $0) }
            if let change = RowChange(row, values: values, before: before) { changes.append(change) }
        }
        self.changes = changes
        schema = reply.string("schema")
        unrecordedTables = rows.first { $0.string("type") == "batch" }?.strings("unrecorded") ?? []
        reset = rows.first { $0.string("type") == "reset" }?.string("reason")
        token = reply.string("token") ?? ""
        hasMore = reply.bool("more") ?? false
    }
}

extension RowChange {
    /// Returns nil if the object isn't a row.
    init?(_ object: JSONObject, values: RowValues? = nil, before: RowValues? = nil) {
        guard object.string("type") ?? "row" == "row", let operation = object.string("op").flatMap(Operation.init)
        else {
            return nil
        }
        table = object.string("table") ?? ""
        entity = object.string("entity")
        self.operation = operation
        key =
            switch object["key"] {
            case .array(let values)?: values.map(Value.init)
            case let value?: [Value(value)]
            case nil: []
            }
        columns = object.strings("columns")
        self.values = values
        self.before = before
        switch object["transaction"] {
        // With values, the transaction is an object that says whether it is certain.
        case .object(let known)?: transaction = known.bool("exact") == true ? known["id"]?.text : nil
        case .integer(let number)?: transaction = "\(number)"
        default: transaction = nil
        }
        author = object.string("author")
        date = Date(timeIntervalSince1970: object.string("time").flatMap(WireTime.seconds) ?? 0)
    }
}

extension RowChange.Value {
    init(_ value: JSONValue) {
        switch value {
        case .integer(let number): self = .integer(number)
        case .number(let number): self = .real(number)
        case .string(let text): self = .text(text)
        case .object(let object) where object["real"] != nil:
            self = object.string("real").flatMap(Double.init).map { .real($0) } ?? .null
        case .object(let object) where object["integer"] != nil:
            self = object.string("integer").flatMap { Int64($0) }.map { .integer($0) } ?? .null
        case .object(let object) where object["text_b64"] != nil:
            self = .malformedText(object.string("text_b64").flatMap { Data(base64Encoded: $0) }.map { Array($0) } ?? [])
        case .object(let object):
            self = .blob(object.string("base64").flatMap { Data(base64Encoded: $0) }.map { Array($0) } ?? [])
        // No parser returns an encoded value.
        case .null, .bool, .array, .encoded: self = .null
        }
    }
}

/// The line of a table in a page with values.
private struct RowTable {
    let name: [UInt8]
    let entity: String?
    let columns: [String]
    let properties: [String?]
    let relationships: [String]

    /// Returns nil if the object isn't the line of a table.
    init?(_ object: JSONObject) {
        guard object.string("type") == "table", let columns = object.strings("columns") else { return nil }
        name = Array((object.string("table") ?? "").utf8)
        entity = object.string("entity")
        self.columns = columns
        relationships = object.objects("to_many").map { $0.string("relationship") ?? "" }
        guard case .array(let properties)? = object["properties"], properties.count == columns.count else {
            self.properties = []
            return
        }
        self.properties = properties.map { property in
            guard case .object(let property) = property else { return nil }
            return property.string("attribute")
                ?? (property.string("holds") == "key" ? property.string("relationship") : nil)
        }
    }

    func isOf(_ row: JSONObject) -> Bool {
        name == Array((row.string("table") ?? "").utf8) && entity == row.string("entity")
    }
}

extension RowValues {
    /// Returns nil if the row has no such values.
    fileprivate init?(_ row: JSONObject, _ key: String, of table: RowTable) {
        guard case .array(let values)? = row[key], values.count == table.columns.count else { return nil }
        columns = table.columns
        properties = table.properties
        self.values = values.map(RowChange.Value.init)
        guard key == "values", case .array(let relations)? = row["to_many"] else {
            related = [:]
            return
        }
        let keys = relations.map { relation -> [RowChange.Value] in
            guard case .array(let rows) = relation else { return [] }
            return rows.compactMap { if case .array(let row) = $0 { row.first.map(RowChange.Value.init) } else { nil } }
        }
        related = Dictionary(zip(table.relationships, keys), uniquingKeysWith: { first, _ in first })
    }
}
