/// The name of a table or a column, byte by byte.
///
/// SQLite keeps names apart that differ only in Unicode's normal form, and Swift's `==` doesn't: a set or a dictionary
/// of `String` would take two tables as one.
package struct ExactName: Hashable, Sendable, ExpressibleByStringLiteral {
    package let text: String

    package init(_ text: String) { self.text = text }

    package init(stringLiteral text: String) { self.init(text) }

    package static func == (one: ExactName, other: ExactName) -> Bool { one.text.hasSameBytes(as: other.text) }

    package func hash(into hasher: inout Hasher) { hasher.combine(bytesOf: text) }
}

extension String {
    /// True if the texts are the same to SQLite, which compares bytes. Swift takes the normal forms of a text as equal.
    package func hasSameBytes(as other: String) -> Bool {
        guard utf8.count == other.utf8.count else { return false }
        var (one, other) = (self, other)
        return one.withUTF8 { first in
            other.withUTF8 { UnsafeRawBufferPointer(first).hasSameBytes(as: UnsafeRawBufferPointer($0)) }
        }
    }
}

extension Collection<String> {
    /// The place of a name, byte by byte.
    package func firstIndex(ofExact name: String) -> Index? { firstIndex { $0.hasSameBytes(as: name) } }

    package func containsExact(_ name: String) -> Bool { firstIndex(ofExact: name) != nil }

    /// True if both have the same names in the same order, byte by byte.
    package func hasSameBytes(as others: some Collection<String>) -> Bool {
        count == others.count && zip(self, others).allSatisfy { $0.hasSameBytes(as: $1) }
    }
}

extension Hasher {
    /// Adds what `hasSameBytes(as:)` compares.
    package mutating func combine(bytesOf text: String) {
        var text = text
        text.withUTF8 { combine(bytes: UnsafeRawBufferPointer($0)) }
        // Ends the text, as no byte of UTF-8 does.
        combine(UInt8.max)
    }
}
