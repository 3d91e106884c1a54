/// An error as sent on the wire: a code that programs can rely on, a message, and a hint at a remedy.
///
/// It is no `ActionableError`: the protocol has no dependency, and a peer may send an error without a hint. The agent
/// makes one of an `ActionableError`, and a client an `AgentConnectionError`, which has a remedy.
package struct WireError: Error, Equatable, Sendable {
    package let code: String
    package let message: String
    package let hint: String?
    /// The processes that were waited for, if any.
    package let holders: [StoreEvent.Holder]

    package init(code: String, _ message: String, hint: String? = nil, holders: [StoreEvent.Holder] = []) {
        self.code = code
        self.message = message
        self.hint = hint
        self.holders = holders
    }

    /// Reads an error from JSON; missing members are empty.
    package init(_ object: JSONObject) {
        code = object.string("code") ?? "unknown"
        message = object.string("message") ?? ""
        hint = object.string("hint")
        holders = object.objects("holders").map(StoreEvent.Holder.init)
    }

    /// The error, shortened so that it fits a line: without it, a reader wouldn't know what was refused.
    package var json: JSONObject {
        var object: JSONObject = [
            "code": .string(code), "message": .string(message.shortened(toWireLength: Self.maxMessageLength)),
        ]
        if let hint { object["hint"] = .string(hint.shortened(toWireLength: Self.maxHintLength)) }
        let named = holders.prefix(Self.maxHolders).map { JSONValue.object($0.json) }
        if !named.isEmpty { object["holders"] = .array(named) }
        return object
    }

    private static let maxMessageLength = 8192
    private static let maxHintLength = 2048
    private static let maxHolders = 48
}

extension JSONObject {
    package func string(_ key: String) -> String? {
        if case .string(let value)? = self[key] { value } else { nil }
    }

    package func bool(_ key: String) -> Bool? {
        if case .bool(let value)? = self[key] { value } else { nil }
    }

    package func integer(_ key: String) -> Int64? {
        if case .integer(let value)? = self[key] { value } else { nil }
    }

    package func object(_ key: String) -> JSONObject? {
        if case .object(let value)? = self[key] { value } else { nil }
    }

    /// Returns a list of texts; nil if the member is missing or something else.
    package func strings(_ key: String) -> [String]? {
        guard case .array(let values)? = self[key] else { return nil }
        return values.compactMap { if case .string(let text) = $0 { text } else { nil } }
    }

    /// Returns a list of objects; empty if the member is missing or something else.
    package func objects(_ key: String) -> [JSONObject] {
        guard case .array(let values)? = self[key] else { return [] }
        return values.compactMap { if case .object(let object) = $0 { object } else { nil } }
    }

    /// Returns a number of seconds, written with or without a fraction.
    package func seconds(_ key: String) -> Double? { number(key) }

    /// Returns a number that is written with or without a fraction.
    package func number(_ key: String) -> Double? {
        switch self[key] {
        case .integer(let value)?: Double(value)
        case .number(let value)?: value
        default: nil
        }
    }
}
