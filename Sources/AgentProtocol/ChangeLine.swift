/// The line of a change, put together from parts that stay: it is made on the way from a commit to its subscribers. Its bytes
/// are those of `StoreEvent.json` in a `WireLine`.
package struct ChangeLine: Sendable {
    private let store: StoreAddress
    private let start: [UInt8]
    /// What `middle` says.
    private var tables: ChangedTables?
    private var middle: [UInt8] = []
    private let token: [UInt8]

    /// `epoch`: of the tokens.
    package init(_ store: StoreAddress, epoch: String) {
        self.store = store
        var object: JSONObject = ["type": "change"]
        object.setStore(store)
        start = Self.open(object)
        token = Array(#","token":"\#(epoch)-"#.utf8)
    }

    /// The object's text without its last brace.
    private static func open(_ object: JSONObject) -> [UInt8] {
        var bytes: [UInt8] = []
        object.write(to: &bytes)
        bytes.removeLast()
        return bytes
    }

    /// Nil when the line would be too long, and is to be shortened.
    package mutating func bytes(_ changed: ChangedTables, number: UInt64) -> [UInt8]? {
        if tables != changed {
            tables = changed
            middle = Self.middle(changed)
        }
        var line: [UInt8] = []
        // Twenty digits, a quote, a brace and a newline.
        line.reserveCapacity(start.count + middle.count + token.count + 23)
        line += start
        line += middle
        line += token
        Self.write(number, to: &line)
        line.append(UInt8(ascii: "\""))
        line.append(UInt8(ascii: "}"))
        line.append(0x0A)
        return line.count > WireLine.longest ? nil : line
    }

    /// The members between the store and the token.
    private static func middle(_ tables: ChangedTables) -> [UInt8] {
        var object = JSONObject()
        tables.write(to: &object)
        var bytes = open(object)
        // What comes in front is no beginning.
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
