/// An error as it travels: a word that programs can rely on, a sentence, and what would help.
package struct WireError: Error, Equatable, Sendable {
    package let code: String
    package let message: String
    package let hint: String?

    package init(code: String, _ message: String, hint: String? = nil) {
        self.code = code
        self.message = message
        self.hint = hint
    }

    /// Reads what `json` wrote; whatever is missing is empty.
    package init(_ object: JSONObject) {
        code = object.string("code") ?? "unknown"
        message = object.string("message") ?? ""
        hint = object.string("hint")
    }

    package var json: JSONObject {
        var object: JSONObject = ["code": .string(code), "message": .string(message)]
        if let hint { object["hint"] = .string(hint) }
        return object
    }
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

    /// Seconds, written with or without a fraction.
    package func seconds(_ key: String) -> Double? {
        switch self[key] {
        case .integer(let value)?: Double(value)
        case .number(let value)?: value
        default: nil
        }
    }
}
