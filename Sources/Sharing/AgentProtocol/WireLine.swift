/// Encodes values as lines: one JSON object and a newline, at most 32 KiB in all.
package enum WireLine {
    /// The longest line in bytes, including the newline.
    package static let maxLength = 32_768

    /// The protocol version that `hello` announces.
    package static let protocolVersion: Int64 = 1

    /// Returns the line of a message for a reader. If it would be too long, the longest member that isn't needed to
    /// understand the line is dropped, and `truncated` is set.
    ///
    /// A request never loses a member, because an absent one has a meaning: see `request`.
    package static func bytes(_ object: JSONObject) -> [UInt8] { fitting(object).line }

    /// Returns the message that `bytes` encodes.
    package static func shortened(_ object: JSONObject) -> JSONObject { fitting(object).object }

    private static func fitting(_ object: JSONObject) -> (object: JSONObject, line: [UInt8]) {
        var shortened = object
        // A member that is too long by itself is dropped without encoding it.
        for (key, value) in object.members where !needed.contains(key) && value.isLonger(than: maxLength) {
            shortened[key] = nil
            shortened["truncated"] = true
        }
        while true {
            var line: [UInt8] = []
            line.reserveCapacity(256)
            shortened.write(to: &line)
            line.append(0x0A)
            guard line.count > maxLength, let key = longestOptionalKey(of: shortened) else { return (shortened, line) }
            shortened[key] = nil
            shortened["truncated"] = true
        }
    }

    /// Returns a request's line, or nil if it would be too long.
    package static func request(_ object: JSONObject) -> [UInt8]? {
        var line: [UInt8] = []
        object.write(to: &line)
        line.append(0x0A)
        return line.count > maxLength ? nil : line
    }

    private static let needed: Set<String> = [
        "id", "type", "ok", "claim", "presenter", "store", "store_b64", "token", "reason", "truncated", "op",
    ]

    private static func longestOptionalKey(of object: JSONObject) -> String? {
        object.members.filter { !needed.contains($0.key) }
            .max { length(of: $0.value) < length(of: $1.value) }?.key
    }

    private static func length(of value: JSONValue) -> Int {
        var bytes: [UInt8] = []
        value.write(to: &bytes)
        return bytes.count
    }
}

extension JSONValue {
    /// Returns whether the encoded value is certainly longer than `limit`, without encoding it.
    fileprivate func isLonger(than limit: Int) -> Bool { leastLength > limit }

    private var leastLength: Int {
        switch self {
        case .null, .bool, .integer, .number: 1
        case .string(let text): text.utf8.count
        case .array(let values): values.reduce(0) { $0 + $1.leastLength }
        case .object(let object): object.members.reduce(0) { $0 + $1.key.utf8.count + $1.value.leastLength }
        case .encoded(let text): text.count
        }
    }
}

extension String {
    /// The text, cut between two characters and with an ellipsis if it takes more than `limit` bytes in a line.
    package func shortened(toWireLength limit: Int) -> String {
        let ellipsis = "…"
        var length = 0
        var end = unicodeScalars.startIndex
        for index in unicodeScalars.indices {
            length += WireLine.escapedLength(unicodeScalars[index])
            if length > limit { return String(unicodeScalars[..<end]) + ellipsis }
            // Leaves room for the ellipsis.
            if length <= limit - ellipsis.utf8.count { end = unicodeScalars.index(after: index) }
        }
        return self
    }
}

/// Splits a stream of bytes into lines.
///
/// Hand-written because Foundation's `AsyncLineSequence` has no limit: a peer that sends no newline would fill the
/// memory.
package struct LineBuffer {
    /// A line exceeds the limit; where the next line begins is unknown.
    package struct LineTooLong: Error, Equatable {}

    private var bytes: [UInt8] = []
    /// The start of the next line, and the end of the range that is known to hold no newline.
    private var start = 0
    private var searched = 0
    private let limit: Int

    /// - Parameter limit: The longest line in bytes, including its newline.
    package init(limit: Int = WireLine.maxLength) { self.limit = limit }

    package var isEmpty: Bool { start == bytes.count }

    package mutating func append(_ more: some Sequence<UInt8>) {
        if start > 0 {
            bytes.removeFirst(start)
            searched -= start
            start = 0
        }
        bytes.append(contentsOf: more)
    }

    /// Returns the next complete line without its newline; nil if there is none yet.
    package mutating func next() throws(LineTooLong) -> [UInt8]? {
        guard let newline = bytes[searched...].firstIndex(of: 0x0A) else {
            searched = bytes.count
            if bytes.count - start >= limit { throw LineTooLong() }
            return nil
        }
        guard newline - start < limit else { throw LineTooLong() }
        defer {
            start = newline + 1
            searched = start
        }
        return Array(bytes[start..<newline])
    }
}

extension WireLine {
    /// The longest text in a part, as JSON: the rest of the line is for the request's `id`.
    private static let maxPartLength = maxLength - 4096

    /// Returns the object's line, or if it is too long, several lines of type `part`. Their `data`, joined, is the
    /// object; the last one has `last`.
    package static func wholeLines(_ object: JSONObject) -> [[UInt8]] {
        let text = object.text
        guard text.utf8.count > maxPartLength else { return [Array(text.utf8) + [0x0A]] }
        var lines: [[UInt8]] = []
        var rest = text.unicodeScalars[...]
        while !rest.isEmpty {
            var length = 0
            let end = rest.firstIndex { scalar in
                length += escapedLength(scalar)
                return length > maxPartLength
            }
            var part: JSONObject = ["type": "part", "data": .string(String(rest[..<(end ?? rest.endIndex)]))]
            if end == nil { part["last"] = true }
            lines.append(Array(part.text.utf8) + [0x0A])
            rest = end.map { rest[$0...] } ?? rest[rest.endIndex...]
        }
        return lines
    }

    static func escapedLength(_ scalar: Unicode.Scalar) -> Int {
        switch scalar.value {
        case 0x22, 0x5C: 2
        case ..<0x20, 0x7F: 6
        default: UTF8.width(scalar)
        }
    }
}

/// Joins the parts of objects that are longer than a line.
package struct PartBuffer {
    private var text: [UInt8] = []

    package init() {}

    /// Returns the object of a line: the line itself, or what the last part completes; nil for another part. Throws
    /// `WireError` if the parts aren't an object.
    package mutating func object(_ line: JSONObject) throws(WireError) -> JSONObject? {
        guard line.string("type") == "part" else { return line }
        text += (line.string("data") ?? "").utf8
        guard line.bool("last") == true else { return nil }
        defer { text = [] }
        guard case .object(let whole)? = try? JSONValue(parsing: text) else {
            throw WireError(code: "bad_json", "the agent sent parts that aren't a JSON object")
        }
        return whole
    }
}
