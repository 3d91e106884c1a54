/// Which tables a change is about, as it travels.
package struct ChangedTables: Sendable, Equatable {
    /// Sorted; nil: nothing is known of them.
    package let names: [String]?
    /// No other table was changed; `names` is there then.
    package let isComplete: Bool

    package static let unknown = ChangedTables(names: nil, isComplete: false)

    private init(names: [String]?, isComplete: Bool) {
        self.names = names
        self.isComplete = isComplete
    }

    /// What would fill a line says nothing of the tables.
    package init(_ names: Set<String>, isComplete: Bool) {
        let bytes = names.reduce(0) { $0 + Self.length($1) }
        if bytes > Self.longest || names.isEmpty && !isComplete {
            self = .unknown
        } else {
            self.init(names: names.sorted(), isComplete: isComplete)
        }
    }

    /// Bytes of names in a line, which has room for a store and a token besides.
    private static let longest = WireLine.longest / 2

    /// In JSON, with quotes and a comma.
    private static func length(_ name: String) -> Int {
        name.utf8.reduce(3) { $0 + ($1 < 0x20 || $1 == 0x7F ? 6 : $1 == 0x22 || $1 == 0x5C ? 2 : 1) }
    }

    func write(to object: inout JSONObject) {
        if let names { object["tables"] = .array(names.map { .string($0) }) }
        object["complete"] = .bool(isComplete)
    }

    /// Of two changes that are told as one.
    package func union(_ other: ChangedTables) -> ChangedTables {
        if self == other { return self }
        return ChangedTables(
            Set(names ?? []).union(other.names ?? []), isComplete: isComplete && other.isComplete)
    }
}

/// The tables that a subscriber wants to hear of. SQLite tells no upper from lower case in names' ASCII letters.
package struct TableFilter: Sendable, Equatable {
    /// As they were asked for.
    package let names: [String]
    private let folded: Set<String>

    package init(_ names: [String]) {
        self.names = names
        folded = Set(names.map(Self.fold))
    }

    /// Whether a change may be about one of them.
    package func admits(_ tables: ChangedTables) -> Bool {
        !tables.isComplete || (tables.names ?? []).contains(where: admits)
    }

    package func admits(_ name: String) -> Bool { folded.contains(Self.fold(name)) }

    /// In small letters.
    package static func fold(_ name: String) -> String {
        String(decoding: name.utf8.map { (0x41...0x5A).contains($0) ? $0 | 0x20 : $0 }, as: UTF8.self)
    }
}
