/// A request from a client to the agent: one line.
package struct AgentRequest: Sendable, Equatable {
    package enum Operation: Sendable, Equatable {
        /// Sends each change of a store from now on.
        case subscribe(SubscribeOperation)
        case unsubscribe(StoreAddress)
        case status(StatusOperation)
        case relocate(RelocateOperation)
        /// Cancels this connection's relocation with that `id`, and puts back what it has moved.
        case cancel(request: JSONValue)
        case present(PresentOperation)
        case unpresent(presenter: UInt64)
        case answer(AnswerOperation)
        case claim(ClaimOperation)
        case release(ReleaseOperation)
        case history(HistoryOperation)
        /// Replies when every transaction committed before the request has been published.
        case sync(StoreAddress)
    }

    /// The client's number or string, which the reply repeats; nil if the client doesn't match replies.
    package let id: JSONValue?
    package let operation: Operation
    /// The directory that the client takes for that of the group: an agent that serves another one under the same
    /// identifier must not answer for it. Nil: the identifier decides. `relocate` has its own.
    package let groupIdentity: RelocateOperation.Identity?

    package init(id: JSONValue?, _ operation: Operation, groupIdentity: RelocateOperation.Identity? = nil) {
        self.id = id
        self.operation = operation
        self.groupIdentity = groupIdentity
    }
}

/// A line that isn't a valid request, with the identifier for the reply if one could be read.
package struct RefusedLine: Error, Equatable {
    package let id: JSONValue?
    package let error: WireError

    package init(id: JSONValue?, error: WireError) {
        self.id = id
        self.error = error
    }
}

extension AgentRequest {
    /// Parses a request. Unknown members are ignored; an unknown operation is an error.
    package init(parsing line: [UInt8]) throws(RefusedLine) {
        guard case .object(let object)? = try? JSONValue(parsing: line) else {
            throw RefusedLine(
                id: nil,
                error: WireError(code: "bad_json", "not a JSON object on one line", hint: "one object a line, in UTF-8")
            )
        }
        let id = try Self.identifier(of: object)
        do throws(WireError) {
            let operation = try Operation(object)
            let isRelocation = if case .relocate = operation { true } else { false }
            self.init(
                id: id, operation,
                groupIdentity: isRelocation ? nil : try RelocateOperation.identity("group_file", of: object))
        } catch {
            throw RefusedLine(id: id, error: error)
        }
    }

    private static func identifier(of object: JSONObject) throws(RefusedLine) -> JSONValue? {
        switch object["id"] {
        case nil, .null?: nil
        case .integer(let value)?: .integer(value)
        // A whole number beyond 64 bits is parsed as the nearest double, so it couldn't be repeated exactly.
        case .number(let value)? where abs(value) < 9_007_199_254_740_992: .number(value)
        case .string(let value)? where value.utf8.count <= 256: .string(value)
        default:
            throw RefusedLine(
                id: nil,
                error: WireError(code: "bad_request", "id is neither a 64-bit number nor a string of at most 256 bytes")
            )
        }
    }

    package var json: JSONObject {
        var object = JSONObject()
        if let id { object["id"] = id }
        if let groupIdentity { object["group_file"] = .object(groupIdentity.json) }
        operation.write(to: &object)
        return object
    }
}

extension AgentRequest.Operation {
    private static let names =
        ["subscribe", "unsubscribe", "status", "relocate", "cancel", "present", "unpresent"]
        + AnswerOperation.Request.allCases.map(\.rawValue) + ["claim", "release"]
        + HistoryOperation.Request.allCases.map(\.rawValue) + ["sync"]

    init(_ object: JSONObject) throws(WireError) {
        switch object.string("op") {
        case "subscribe"?: self = .subscribe(try SubscribeOperation(object))
        case "unsubscribe"?: self = .unsubscribe(try Self.store(of: object))
        case "status"?: self = .status(try StatusOperation(object))
        case "relocate"?: self = .relocate(try RelocateOperation(object))
        case "cancel"?:
            guard let request = object["request"], request != .null else {
                throw WireError(code: "bad_request", "request is missing", hint: "the id of a relocate")
            }
            self = .cancel(request: request)
        case "present"?: self = .present(try PresentOperation(object))
        case "unpresent"?: self = .unpresent(presenter: try object.requiredNumber("presenter", .presenter))
        case "claim"?: self = .claim(try ClaimOperation(object))
        case "release"?: self = .release(try ReleaseOperation(object))
        case "sync"?: self = .sync(try Self.store(of: object))
        case let name?:
            if let answered = AnswerOperation.Request(rawValue: name) {
                self = .answer(try AnswerOperation(answered, object))
                return
            }
            if let history = HistoryOperation.Request(rawValue: name) {
                self = .history(try HistoryOperation(history, object))
                return
            }
            throw WireError(
                code: "unknown_op", "this agent doesn't know the operation \(name.prefix(64))",
                hint: Self.names.joined(separator: ", "))
        case nil: throw WireError(code: "bad_request", "op is missing")
        }
    }

    private static func store(of object: JSONObject) throws(WireError) -> StoreAddress {
        guard let store = object.store else {
            throw WireError(code: "bad_request", "store is missing or invalid", hint: "write GROUP_ID/NAME")
        }
        return store
    }

    func write(to object: inout JSONObject) {
        switch self {
        case .subscribe(let subscribe): subscribe.write(to: &object)
        case .unsubscribe(let store):
            object["op"] = "unsubscribe"
            object.setStore(store)
        case .status(let status): status.write(to: &object)
        case .relocate(let relocate):
            object["op"] = "relocate"
            relocate.write(to: &object)
        case .cancel(let request):
            object["op"] = "cancel"
            object["request"] = request
        case .present(let present):
            object["op"] = "present"
            present.write(to: &object)
        case .unpresent(let presenter):
            object["op"] = "unpresent"
            object["presenter"] = WireNumber(.presenter, presenter).json
        case .answer(let answer):
            object["op"] = .string(answer.request.rawValue)
            answer.write(to: &object)
        case .claim(let claim):
            object["op"] = "claim"
            claim.write(to: &object)
        case .release(let release):
            object["op"] = "release"
            release.write(to: &object)
        case .history(let history): history.write(to: &object)
        case .sync(let store):
            object["op"] = "sync"
            object.setStore(store)
        }
    }
}
