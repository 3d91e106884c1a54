/// A message from the agent: one line.
package enum AgentMessage: Sendable, Equatable {
    /// The first line of a connection.
    case hello(protocol: Int64, agent: String, maxLineLength: Int64)
    /// The reply to the request with that identifier.
    case reply(id: JSONValue?, JSONObject)
    case failure(id: JSONValue?, WireError)
    /// An event, or one part of a reply that takes several lines; a part carries the request's `id`.
    case event(type: String, JSONObject)

    /// Parses a line. Throws if it isn't a message of this protocol.
    package init(parsing line: [UInt8]) throws(WireError) {
        guard case .object(let read)? = try? JSONValue(parsing: line) else {
            throw WireError(code: "bad_json", "the agent sent a line that isn't a JSON object")
        }
        let object = read.ordered
        switch (object.bool("ok"), object.string("type")) {
        case (true?, _): self = .reply(id: object["id"], object)
        case (false?, _): self = .failure(id: object["id"], WireError(object.object("error") ?? [:]))
        case (nil, "hello"?): self = Self.hello(object)
        case (nil, let type?): self = .event(type: type, object)
        case (nil, nil): throw WireError(code: "bad_message", "the agent sent neither a reply nor an event")
        }
    }

    private static func hello(_ object: JSONObject) -> AgentMessage {
        .hello(
            protocol: object.integer("proto") ?? 0, agent: object.string("agent") ?? "",
            maxLineLength: object.integer("max_line") ?? Int64(WireLine.maxLength))
    }

    package var json: JSONObject {
        switch self {
        case .hello(let version, let agent, let maxLength):
            return [
                "type": "hello", "proto": .integer(version), "agent": .string(agent), "max_line": .integer(maxLength),
            ]
        case .reply(let id, let rest):
            var object: JSONObject = id.map { ["id": $0, "ok": true] } ?? ["ok": true]
            for member in rest.members where member.key != "id" && member.key != "ok" {
                object[member.key] = member.value
            }
            return object
        case .failure(let id, let error):
            var object: JSONObject = id.map { ["id": $0, "ok": false] } ?? ["ok": false]
            object["error"] = .object(error.json)
            return object
        case .event(let type, let rest):
            var object: JSONObject = ["type": .string(type)]
            for member in rest.members where member.key != "type" { object[member.key] = member.value }
            return object
        }
    }
}

extension JSONObject {
    /// The same members in a stable order, because a parser returns them in none: members that identify the object come
    /// first, the others follow by name.
    fileprivate var ordered: JSONObject {
        let first = ["id", "ok", "type", "store", "store_b64"]
        var result = JSONObject()
        for key in first { result[key] = self[key] }
        for member in members.sorted(by: { $0.key < $1.key }) where !first.contains(member.key) {
            result[member.key] = member.value
        }
        return result
    }
}
