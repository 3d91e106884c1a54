import AgentProtocol
import FoundationEssentials
import PersistentHistory
import SQLiteStore

/// The JSON of changed rows, for output and for the wire.
extension HistoryChange {
    package var json: JSONObject {
        var object: JSONObject = ["number": .integer(number), "table": .string(table)]
        if let entity { object["entity"] = .string(entity) }
        object["op"] = .string(operation.word)
        if let first = key.first { object["key"] = key.count == 1 ? first.json : .array(key.map(\.json)) }
        if let columns { object["columns"] = .array(columns.map { .string($0) }) }
        if let author { object["author"] = .string(author) }
        object["time"] = .time(time)
        if let transaction { object["transaction"] = .integer(transaction) }
        if !tombstone.isEmpty {
            var values = JSONObject()
            for (name, value) in tombstone.sorted(by: { $0.key < $1.key }) { values[name] = value.json }
            object["tombstone"] = .object(values)
        }
        return object
    }
}

extension SQLiteValue {
    package var json: JSONValue {
        switch self {
        case .integer(let value): .integer(value)
        // JSON has no number for infinity, and a string would be a different key.
        case .real(let value): value.isFinite ? .number(value) : .object(["real": .string("\(value)")])
        case .text(let value): .string(value)
        case .blob(let bytes): .object(["base64": .string(Data(bytes).base64EncodedString())])
        case .null: .null
        }
    }
}
