import AgentProtocol
import FoundationEssentials
import PersistentHistory
import SQLiteStore

/// The envelope of Debezium's change events, as its JSON converter writes it without a schema
/// (https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-change-events-value).
struct DebeziumEnvelope {
    /// The database's file name.
    let database: String

    func json(_ row: ChangedRow, of table: BatchTable, history: String) -> JSONObject {
        let time = Int64(exactly: (row.time * 1000).rounded()).map { JSONValue.integer($0) } ?? .null
        var source: JSONObject = [
            "version": .string(ProgramVersion.current), "connector": "groupstore", "name": .string(history),
            "ts_ms": time, "snapshot": "false", "db": .string(database), "sequence": .null,
            "table": .string(table.name),
        ]
        if let entity = table.entity { source["entity"] = .string(entity) }
        source["number"] = .integer(row.number)
        let names = table.key.isEmpty ? ["rowid"] : table.key
        source["key"] = .object(Self.object(names, row.key))
        if let author = row.author { source["author"] = .string(author) }
        let before = row.before.map { JSONValue.object(Self.object(table.columns, $0)) }
        let after = row.values.map { JSONValue.object(Self.object(table.columns, $0)) }
        return [
            "before": before ?? .null, "after": after ?? .null, "source": .object(source),
            "op": .string(row.operation.letter),
            "ts_ms": .integer(Int64(Date().timeIntervalSince1970 * 1000)), "transaction": transaction(row),
        ]
    }

    private func transaction(_ row: ChangedRow) -> JSONValue {
        guard let number = row.transaction else { return .null }
        return .object(["id": .string("\(number)"), "total_order": .null, "data_collection_order": .null])
    }

    /// The names are distinct to SQLite, though perhaps not to Swift.
    private static func object(_ names: [String], _ values: [StoredValue]) -> JSONObject {
        JSONObject(members: zip(names, values).map { ($0, $1.plainJSON) })
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
