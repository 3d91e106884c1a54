import AgentProtocol
import FoundationEssentials
import GroupContainers
import LinuxSystem
import SystemPackage

/// One changed row, as recorded in the store's history.
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
}

/// A page of a store's row changes, as returned by ``SharedStore/rowChanges(since:limit:filter:)``.
public struct RowChangePage: Sendable, Equatable {
    /// The changed rows in the order of their changes.
    public let changes: [RowChange]
    /// The reason why ``changes`` doesn't cover everything since the given token: `epoch`, `history_trimmed`,
    /// `history_gap` or `migrated`; nil if it does.
    ///
    /// - Important: If this isn't nil, everything read from the store before is stale and must be read again.
    public let reset: String?
    /// The token for the next request. It stays valid when the store moves, and with any agent.
    public let token: String
    /// True if the next page is available at once.
    public let hasMore: Bool
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
    ///     var (token, hasMore) = (savedToken, true)
    ///     while hasMore {
    ///         let page = try await store.rowChanges(since: token)
    ///         apply(page)
    ///         token = page.token
    ///         hasMore = page.hasMore
    ///     }
    ///
    /// - Parameters:
    ///   - token: The token after which to begin; nil for the whole history.
    ///   - limit: The maximum number of rows, 1 to 1000.
    ///   - filter: Selects rows.
    /// - Throws: ``GroupStoreError`` with `noAgent`; `refused`, for example if the store keeps no history or the agent
    ///   doesn't serve it; `system` if no thread can be created.
    public func rowChanges(
        since token: String? = nil, limit: Int = 256, filter: RowFilter = RowFilter()
    ) async throws -> RowChangePage {
        var wanted = HistoryOperation.Filter(filter)
        wanted.tables = filter.tables
        let operation = HistoryOperation.changes(address, since: token, limit: Int64(limit), wanted)
        return try await Self.ask(.history(operation), RowChangePage.init)
    }

    /// Records in the store that the named subscriber knows all changes up to the token. Until it
    /// acknowledges later changes, only a forced purge removes them.
    ///
    /// - Throws: ``GroupStoreError`` with `noAgent`, `refused` or `system`.
    public func acknowledge(_ token: String, by subscriber: String) async throws {
        let operation = HistoryOperation.acknowledge(address, subscriber: subscriber, token: token)
        try await Self.ask(.history(operation)) { _, _ in }
    }

    /// Returns once every transaction committed before the call has been published to subscribers.
    ///
    /// - Throws: ``GroupStoreError`` with `noAgent`, `refused` or `system`.
    public func synchronize() async throws { try await Self.ask(.sync(address)) { _, _ in } }

    /// The time limit for a reply. Some replies need a history to be read, so it exceeds the time that the agent gives
    /// its reader.
    static let replyTimeout = Duration.seconds(40)

    static func ask<Result: Sendable>(
        _ operation: AgentRequest.Operation,
        socket: FilePath? = AgentSocket.path(environment: AgentRegistries.environment),
        _ read: @escaping @Sendable ([JSONObject], JSONObject) -> Result
    ) async throws -> Result {
        do {
            return try await SystemThread.run(name: "gs-rows") {
                do throws(AgentConnectionError) {
                    guard let socket else { throw .noSocketPath }
                    var rows: [JSONObject] = []
                    let reply = try AgentConnection(socket).request(operation, deadline: Deadline(after: replyTimeout))
                    {
                        var row = $1
                        row["type"] = .string($0)
                        rows.append(row)
                    }
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
        changes = rows.compactMap(RowChange.init)
        reset = rows.first { $0.string("type") == "reset" }?.string("reason")
        token = reply.string("token") ?? ""
        hasMore = reply.bool("more") ?? false
    }
}

extension RowChange {
    /// Returns nil if the object isn't a row.
    init?(_ object: JSONObject) {
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
        if case .array(let names)? = object["columns"] {
            columns = names.compactMap { if case .string(let name) = $0 { name } else { nil } }
        } else {
            columns = nil
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
        case .object(let object):
            self = .blob(object.string("base64").flatMap { Data(base64Encoded: $0) }.map { Array($0) } ?? [])
        case .null, .bool, .array: self = .null
        }
    }
}
