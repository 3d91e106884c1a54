/// What a client asks of the agent: one line.
package struct AgentRequest: Sendable, Equatable {
    package enum Operation: Sendable, Equatable {
        /// Tell me of each change; with `since`, first of what happened after that token.
        case subscribe(StoreAddress, since: String?)
        case unsubscribe(StoreAddress)
        /// Groups and stores, one object each, before the reply. With a group: only that one.
        case status(group: String?)
        case relocate(RelocateOperation)
    }

    /// A number or a string of the client's, given back in the reply; nil when it doesn't want to match replies.
    package let id: JSONValue?
    package let operation: Operation

    package init(id: JSONValue?, _ operation: Operation) {
        self.id = id
        self.operation = operation
    }
}

/// A line that was no request, with the identifier that the answer can still be matched by.
package struct RefusedLine: Error, Equatable {
    package let id: JSONValue?
    package let error: WireError

    package init(id: JSONValue?, error: WireError) {
        self.id = id
        self.error = error
    }
}

extension AgentRequest {
    /// Reads a request. Unknown members are ignored; an unknown operation is an error.
    package init(parsing line: [UInt8]) throws(RefusedLine) {
        guard case .object(let object)? = try? JSONValue(parsing: line) else {
            throw RefusedLine(
                id: nil,
                error: WireError(code: "bad_json", "not a JSON object on one line", hint: "one object a line, in UTF-8")
            )
        }
        let id = try Self.identifier(of: object)
        do throws(WireError) {
            self.init(id: id, try Operation(object))
        } catch {
            throw RefusedLine(id: id, error: error)
        }
    }

    private static func identifier(of object: JSONObject) throws(RefusedLine) -> JSONValue? {
        switch object["id"] {
        case nil, .null?: nil
        case .integer(let value)?: .integer(value)
        case .number(let value)?: .number(value)
        case .string(let value)? where value.utf8.count <= 256: .string(value)
        default:
            throw RefusedLine(
                id: nil, error: WireError(code: "bad_request", "id is neither a number nor a string of 256 bytes"))
        }
    }

    package var json: JSONObject {
        var object = JSONObject()
        if let id { object["id"] = id }
        operation.write(to: &object)
        return object
    }
}

extension AgentRequest.Operation {
    init(_ object: JSONObject) throws(WireError) {
        switch object.string("op") {
        case "subscribe"?:
            self = .subscribe(try Self.store(of: object), since: try Self.optionalString("since", of: object))
        case "unsubscribe"?: self = .unsubscribe(try Self.store(of: object))
        case "status"?: self = .status(group: try Self.optionalString("group", of: object))
        case "relocate"?: self = .relocate(try RelocateOperation(object))
        case let name?:
            throw WireError(
                code: "unknown_op", "this agent has no operation \(name.prefix(64))",
                hint: "subscribe, unsubscribe, status, relocate")
        case nil: throw WireError(code: "bad_request", "op is missing")
        }
    }

    private static func store(of object: JSONObject) throws(WireError) -> StoreAddress {
        guard let store = object.store else {
            throw WireError(code: "bad_request", "store is missing or no store", hint: "write GROUP_ID/NAME")
        }
        return store
    }

    private static func optionalString(_ key: String, of object: JSONObject) throws(WireError) -> String? {
        switch object[key] {
        case nil, .null?: return nil
        case .string(let value)?: return value
        default: throw WireError(code: "bad_request", "\(key) is not a string")
        }
    }

    func write(to object: inout JSONObject) {
        switch self {
        case .subscribe(let store, let since):
            object["op"] = "subscribe"
            object.setStore(store)
            if let since { object["since"] = .string(since) }
        case .unsubscribe(let store):
            object["op"] = "unsubscribe"
            object.setStore(store)
        case .status(let group):
            object["op"] = "status"
            if let group { object["group"] = .string(group) }
        case .relocate(let relocate):
            object["op"] = "relocate"
            relocate.write(to: &object)
        }
    }
}
