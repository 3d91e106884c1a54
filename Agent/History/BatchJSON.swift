import AgentProtocol
import PersistentHistory
import SQLiteStore

/// The JSON of change batches (Documentation/WireProtocol.md, "Rows with values"), for output and for the wire.
extension StoredValue {
    /// The value so that any JSON parser can tell what it is.
    package var json: JSONValue {
        var text: [UInt8] = []
        ValueJSON.append(self, to: &text)
        return .encoded(text)
    }
}

extension BatchTable {
    /// The line before the first row of the table.
    package var json: JSONObject {
        var object: JSONObject = ["type": "table", "table": .string(name)]
        if let entity { object["entity"] = .string(entity) }
        if let rowid { object["rowid"] = .string(rowid) }
        object["key"] = .array(key.map { .string($0) })
        object["columns"] = .array(columns.map { .string($0) })
        if !properties.isEmpty {
            object["properties"] = .array(properties.map { $0.map { .object($0.json) } ?? .null })
        }
        if !toMany.isEmpty { object["to_many"] = .array(toMany.map { .object($0.json) }) }
        return object
    }
}

extension BatchTable.Property {
    fileprivate var json: JSONObject {
        switch self {
        case .attribute(let name, let type): ["attribute": .string(name), "type": .string(type)]
        case .reference(let name, let destination):
            ["relationship": .string(name), "destination": .string(destination), "holds": "key"]
        case .entity(let name, let destination):
            ["relationship": .string(name), "destination": .string(destination), "holds": "entity"]
        case .order(let name, let destination):
            ["relationship": .string(name), "destination": .string(destination), "holds": "order"]
        }
    }
}

extension BatchTable.ToMany {
    fileprivate var json: JSONObject {
        [
            "relationship": .string(relationship), "destination": .string(destination), "table": .string(table),
            "columns": .array(columns.map { .string($0) }),
        ]
    }
}

extension ChangedRow {
    /// The row's line.
    package func json(of table: BatchTable) -> JSONObject {
        var object: JSONObject = ["type": "row", "number": .integer(number), "table": .string(table.name)]
        if let entity = table.entity { object["entity"] = .string(entity) }
        object["op"] = .string(operation.word)
        if let first = key.first { object["key"] = key.count == 1 ? first.json : .array(key.map(\.json)) }
        if let values { object["values"] = .array(values.map(\.json)) }
        if let before { object["before"] = .array(before.map(\.json)) }
        if !toMany.isEmpty {
            object["to_many"] = .array(toMany.map { .array($0.map { .array($0.map(\.json)) }) })
        }
        if let columns { object["columns"] = .array(columns.map { .string($0) }) }
        if let author { object["author"] = .string(author) }
        object["time"] = .time(time)
        object["transaction"] = .object(transactionJSON)
        return object
    }

    private var transactionJSON: JSONObject {
        transaction.map { ["id": .integer($0), "exact": true] } ?? ["exact": false]
    }
}

extension ChangeBatch {
    /// The batch's first line.
    package func json(from start: HistoryToken) -> JSONObject {
        [
            "type": "batch", "from": .string(start.description), "schema": .string(schema),
            "encoding": .string(encoding.rawValue), "unrecorded": .array(unrecorded.map { .string($0) }),
        ]
    }
}
