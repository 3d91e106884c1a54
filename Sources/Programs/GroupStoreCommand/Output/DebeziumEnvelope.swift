import AgentProtocol
import FoundationEssentials
import PersistentHistory
import SQLiteStore

/// The envelope of Debezium's change events, as its JSON converter writes it without a schema
/// (https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-change-events-value).
struct DebeziumEnvelope {
    /// The database's file name.
    let database: String

    /// - Parameter history: Identifies what numbers the rows: a history, or the copy of a store's pages.
    func json(_ row: EnvelopeRow, history: String) -> JSONObject {
        let time = Int64(exactly: (row.time * 1000).rounded()).map { JSONValue.integer($0) } ?? .null
        var source: JSONObject = [
            "version": .string(ProgramVersion.current), "connector": "groupstore", "name": .string(history),
            "ts_ms": time, "snapshot": "false", "db": .string(database), "sequence": .null,
            "table": .string(row.table),
        ]
        if let entity = row.entity { source["entity"] = .string(entity) }
        source["number"] = .integer(row.number)
        source["key"] = .object(Self.object(row.key))
        if row.isNet { source["net"] = true }
        if let author = row.author { source["author"] = .string(author) }
        let before = row.before.map { JSONValue.object(Self.object($0)) }
        let after = row.after.map { JSONValue.object(Self.object($0)) }
        return [
            "before": before ?? .null, "after": after ?? .null, "source": .object(source),
            "op": .string(row.letter),
            "ts_ms": .integer(Int64(Date().timeIntervalSince1970 * 1000)), "transaction": transaction(row),
        ]
    }

    private func transaction(_ row: EnvelopeRow) -> JSONValue {
        guard let number = row.transaction else { return .null }
        return .object(["id": .string("\(number)"), "total_order": .null, "data_collection_order": .null])
    }

    /// The names are distinct to SQLite, though perhaps not to Swift.
    private static func object(_ row: EnvelopeRow.Values) -> JSONObject {
        JSONObject(members: zip(row.names, row.values).map { ($0, $1.plainJSON) })
    }
}

/// What an envelope says of a row.
struct EnvelopeRow {
    typealias Values = (names: [String], values: [StoredValue])

    let table: String
    let entity: String?
    let number: Int64
    /// Seconds since 1970.
    let time: Double
    let key: Values
    let before: Values?
    let after: Values?
    /// The operation.
    let letter: String
    let author: String?
    /// The number of its transaction; nil if it isn't known.
    let transaction: Int64?
    /// True if several transactions may have made the difference.
    let isNet: Bool
}

extension EnvelopeRow {
    /// The row of a history.
    init(_ row: ChangedRow, of table: BatchTable) {
        self.init(
            table: table.name, entity: table.entity, number: row.number, time: row.time,
            key: (table.key.isEmpty ? ["rowid"] : table.key, row.key), before: row.before.map { (table.columns, $0) },
            after: row.values.map { (table.columns, $0) }, letter: row.operation.letter, author: row.author,
            transaction: row.transaction, isNet: false)
    }
}

extension HistoryChange.Operation {
    fileprivate var letter: String {
        switch self {
        case .insert: "c"
        case .update: "u"
        case .delete, .gap: "d"
        }
    }
}

extension StoredValue {
    /// The value as Kafka's JSON converter writes it: bytes in base64, an infinite number as a text.
    fileprivate var plainJSON: JSONValue {
        switch self {
        case .null: .null
        case .integer(let value): .integer(value)
        case .real(let value): value.isFinite ? .number(value) : .string(value > 0 ? "Infinity" : "-Infinity")
        case .text(let text): .string(text)
        case .blob(let bytes): .string(Data(bytes).base64EncodedString())
        case .malformedText: json
        }
    }
}
