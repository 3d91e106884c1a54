import AgentProtocol
import FoundationEssentials
import GroupContainers
import LinuxSystem
import SystemPackage

/// One row that was changed, as the store's history has it.
public struct RowChange: Sendable, Equatable {
    public enum Operation: String, Sendable {
        case insert, update, delete
    }

    /// A key's value.
    public enum Value: Sendable, Hashable {
        case integer(Int64), real(Double), text(String), blob([UInt8]), null
    }

    public let table: String
    /// Of a Core Data store.
    public let entity: String?
    public let operation: Operation
    /// The rowid; of a WITHOUT ROWID table the key's columns in their order.
    public let key: [Value]
    /// Of an update: the columns, or Core Data's properties, that were assigned; nil where it isn't known.
    public let columns: [String]?
    /// Who says to have made it; nil for writers that don't say.
    public let author: String?
    public let date: Date
}

/// Some of a store's row changes.
public struct RowChangePage: Sendable, Equatable {
    public let changes: [RowChange]
    /// Why `changes` is not all that happened since the token that was given: what is known of the store is stale, read
    /// it anew. `epoch`, `history_trimmed`, `history_gap` or `migrated`; nil when it is all.
    public let reset: String?
    /// What to ask with next. Good wherever the store goes, and with any agent.
    public let token: String
    /// More can be had at once.
    public let hasMore: Bool
}

/// Of which row changes to be told; nil: of all.
public struct RowFilter: Sendable, Equatable {
    public var tables: [String]?
    public var entities: [String]?
    public var operations: [RowChange.Operation]?
    public var authors: [String]?
    /// An app's own changes, where it gives its writes an author.
    public var exceptAuthors: [String]?

    public init() {}
}

extension SharedStore {
    /// The rows that changed after the token, in their order; without one, all that the store's history keeps. Nothing
    /// is waited for. Throws `GroupStoreError`: `noAgent`, or `refused` where the store keeps no history.
    public func rowChanges(
        since token: String? = nil, limit: Int = 256, filter: RowFilter = RowFilter()
    ) async throws -> RowChangePage {
        var wanted = HistoryOperation.Filter(filter)
        wanted.tables = filter.tables
        let operation = HistoryOperation.changes(address, since: token, limit: Int64(limit), wanted)
        return try await Self.ask(.history(operation), RowChangePage.init)
    }

    /// Notes in the store that the subscriber of this name knows all up to the token: nothing after it is purged. Throws
    /// `GroupStoreError`.
    public func acknowledge(_ token: String, by subscriber: String) async throws {
        let operation = HistoryOperation.acknowledge(address, subscriber: subscriber, token: token)
        try await Self.ask(.history(operation)) { _, _ in }
    }

    /// Returns when all that was committed before has been told to subscribers. Throws `GroupStoreError`.
    public func synchronize() async throws { try await Self.ask(.sync(address)) { _, _ in } }

    /// A history is read for some answers: longer than the agent gives its reader.
    static let answerTime = Duration.seconds(40)

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
                    let reply = try AgentConnection(socket).request(operation, deadline: Deadline(after: answerTime)) {
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
            // There may be no thread to be had.
            throw GroupStoreError.visible(error)
        }
    }
}

extension HistoryOperation.Filter {
    /// All but the tables, which subscriptions are told of in another way.
    init(_ filter: RowFilter) {
        self.init()
        entities = filter.entities
        operations = filter.operations?.map(\.rawValue)
        authors = filter.authors
        exceptAuthors = filter.exceptAuthors
    }
}

extension RowChangePage {
    /// `rows`: the parts of the answer that came before the reply.
    init(_ rows: [JSONObject], _ reply: JSONObject) {
        changes = rows.compactMap(RowChange.init)
        reset = rows.first { $0.string("type") == "reset" }?.string("reason")
        token = reply.string("token") ?? ""
        hasMore = reply.bool("more") ?? false
    }
}

extension RowChange {
    /// Nil for what is no row.
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
