/// The tables that a change affects, as sent on the wire.
package struct ChangedTables: Sendable, Equatable {
    /// The tables' names, sorted; nil if nothing is known of them.
    package let names: [String]?
    /// True if no other table was changed; `names` isn't nil then.
    package let isComplete: Bool

    package static let unknown = ChangedTables(names: nil, isComplete: false)

    private init(names: [String]?, isComplete: Bool) {
        self.names = names
        self.isComplete = isComplete
    }

    /// Creates a value; it is `unknown` if the names would fill a line.
    package init(_ names: some Collection<String>, isComplete: Bool) {
        let bytes = names.reduce(0) { $0 + Self.length($1) }
        if bytes > Self.maxNameBytes || names.isEmpty && !isComplete {
            self = .unknown
        } else {
            self.init(names: Self.sorted(names), isComplete: isComplete)
        }
    }

    /// Returns the names in order, each once. Names that differ only in Unicode's normal form are different tables.
    private static func sorted(_ names: some Collection<String>) -> [String] {
        let sorted = names.sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }
        return zip(sorted.indices, sorted).filter { place, name in
            place == 0 || !sorted[place - 1].utf8.elementsEqual(name.utf8)
        }.map(\.1)
    }

    package static func == (one: ChangedTables, other: ChangedTables) -> Bool {
        guard one.isComplete == other.isComplete, let first = one.names, let second = other.names else {
            return one.isComplete == other.isComplete && one.names == nil && other.names == nil
        }
        return first.count == second.count && zip(first, second).allSatisfy { $0.utf8.elementsEqual($1.utf8) }
    }

    /// The limit in bytes for the names, so that the line has room for a store and a token.
    private static let maxNameBytes = WireLine.maxLength / 2

    /// Returns a name's length in JSON, with quotes and a comma.
    private static func length(_ name: String) -> Int {
        name.utf8.reduce(3) { $0 + ($1 < 0x20 || $1 == 0x7F ? 6 : $1 == 0x22 || $1 == 0x5C ? 2 : 1) }
    }

    /// Reads the members that `write` wrote.
    init(_ object: JSONObject) {
        self.init(names: object.strings("tables"), isComplete: object.bool("complete") ?? false)
    }

    func write(to object: inout JSONObject) {
        if let names { object["tables"] = .array(names.map { .string($0) }) }
        object["complete"] = .bool(isComplete)
    }

    /// Returns the tables of two changes that are published as one.
    package func union(_ other: ChangedTables) -> ChangedTables {
        if self == other { return self }
        return ChangedTables(
            (names ?? []) + (other.names ?? []), isComplete: isComplete && other.isComplete)
    }
}

/// The tables that a subscriber asks for. SQLite ignores the case of ASCII letters in names.
package struct TableFilter: Sendable, Equatable {
    /// The names as the subscriber wrote them.
    package let names: [String]
    private let folded: Set<String>

    package init(_ names: [String]) {
        self.names = names
        folded = Set(names.map(Self.fold))
    }

    /// Returns whether a change may affect one of the tables.
    package func admits(_ tables: ChangedTables) -> Bool {
        !tables.isComplete || (tables.names ?? []).contains(where: admits)
    }

    package func admits(_ name: String) -> Bool { folded.contains(Self.fold(name)) }

    /// Returns a key that is equal for names that SQLite takes for the same: ASCII letters regardless of case, and all
    /// else byte by byte. Swift takes some texts for equal that SQLite keeps apart, but none of characters below
    /// U+0100.
    package static func fold(_ name: String) -> String {
        if name.utf8.allSatisfy({ $0 < 0x80 }) { return name.lowercased() }
        var scalars = String.UnicodeScalarView()
        for byte in name.utf8 { scalars.append(UnicodeScalar(0x41...0x5A ~= byte ? byte + 0x20 : byte)) }
        return String(scalars)
    }
}
