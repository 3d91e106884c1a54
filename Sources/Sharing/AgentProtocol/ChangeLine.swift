/// The line of a change event, assembled from parts that are encoded once, because it is on the fast path from a commit
/// to its subscribers. Its bytes are those of `StoreEvent.json` in a `WireLine`.
package struct ChangeLine: Sendable {
    private let start: [UInt8]
    /// The tables that `line` names.
    private var tables: ChangedTables?
    private let token: [UInt8]
    /// The last line. Its first `prefixCount` bytes stay while the tables do.
    private var line: [UInt8] = []
    private var prefixCount = 0

    /// Lines of an agent's feed.
    ///
    /// - Parameter epoch: The epoch of the tokens.
    package init(_ store: StoreAddress, epoch: String) { self.init(store: store.bytes, tokenStart: epoch + "-") }

    /// - Parameters:
    ///   - store: The bytes of the member `store`.
    ///   - tokenStart: What all tokens begin with.
    package init(store: [UInt8], tokenStart: String = "") {
        var object: JSONObject = ["type": "change"]
        object.setPath("store", bytes: store)
        start = Self.open(object)
        token = Array(#","token":"\#(tokenStart)"#.utf8)
    }

    /// Returns the object's text without its closing brace.
    private static func open(_ object: JSONObject) -> [UInt8] {
        var bytes: [UInt8] = []
        object.write(to: &bytes)
        bytes.removeLast()
        return bytes
    }

    /// Returns the line, or nil if it would be too long and must be shortened.
    package mutating func bytes(_ changed: ChangedTables, number: UInt64) -> [UInt8]? {
        bytes(changed) { Self.write(number, to: &$0) }
    }

    /// Returns the line, or nil if it would be too long and must be shortened.
    ///
    /// - Parameter writeToken: Appends the token, which needs no escapes.
    package mutating func bytes(_ changed: ChangedTables, token writeToken: (inout [UInt8]) -> Void) -> [UInt8]? {
        if tables != changed {
            tables = changed
            line = start + Self.middle(changed) + token
            prefixCount = line.count
        }
        line.removeSubrange(prefixCount...)
        writeToken(&line)
        line += Self.end
        return line.count > WireLine.maxLength ? nil : line
    }

    /// A quote, a brace and a newline.
    private static let end = Array("\"}\n".utf8)

    /// Returns the members between the store and the token.
    private static func middle(_ tables: ChangedTables) -> [UInt8] {
        var object = JSONObject()
        tables.write(to: &object)
        var bytes = open(object)
        // Other members come before these: a comma replaces the opening brace.
        bytes[0] = UInt8(ascii: ",")
        return bytes
    }

    private static func write(_ number: UInt64, to line: inout [UInt8]) {
        var divisor: UInt64 = 1
        while number / divisor >= 10 { divisor *= 10 }
        while divisor > 0 {
            line.append(UInt8(ascii: "0") + UInt8(number / divisor % 10))
            divisor /= 10
        }
    }
}
