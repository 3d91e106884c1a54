import AgentProtocol
import FoundationEssentials
import PersistentHistory
import SQLiteStore

/// The JSON of change batches (Documentation/WireProtocol.md, "Rows with values"), for output and for the wire.
extension StoredValue {
    /// The value so that any JSON parser can tell what it is: a whole number within 53 bits is an INTEGER, another one
    /// a REAL; what is beyond that is an object with one member.
    package var json: JSONValue {
        switch self {
        case .null: .null
        case .integer(let value):
            abs(value.clamped) <= Self.exactIntegers ? .integer(value) : .object(["integer": .string("\(value)")])
        case .real(let value):
            value.isFinite && value != value.rounded(.towardZero)
                ? .number(value) : .object(["real": .string("\(value)")])
        case .text(let value): .string(value)
        case .malformedText(let bytes): .object(["text_b64": .string(Data(bytes).base64EncodedString())])
        case .blob(let bytes): .object(["base64": .string(Data(bytes).base64EncodedString())])
        }
    }

    /// The integers up to here are those that a parser which reads numbers as doubles keeps apart.
    private static let exactIntegers: Int64 = 1 << 53 - 1
}

extension Int64 {
    /// The number, without the one whose absolute value doesn't fit.
    fileprivate var clamped: Int64 { Swift.max(self, -.max) }
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
