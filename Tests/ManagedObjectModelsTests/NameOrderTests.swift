import Testing

@testable import ManagedObjectModels

/// Core Data's hashes depend on the order of names by UTF-16 code units.
struct NameOrderTests {
    private static let characters = [
        "\0", "a", "b", "Z", "_", "~", "\u{7F}", "\u{80}", "é", "e\u{301}", "ÿ", "\u{7FF}", "\u{800}", "\u{D7FF}",
        "\u{E000}",
        "\u{F8FF}", "\u{FB01}", "\u{FFFD}", "\u{FFFF}", "\u{10000}", "😀", "\u{10FFFF}",
    ]

    @Test func namesAreOrderedByTheirUTF16CodeUnits() {
        var names = [""]
        for first in Self.characters {
            names.append(first)
            names += Self.characters.map { "n" + first + $0 }
        }
        var differences: [String] = []
        for first in names {
            for second in names
            where first.precedes(second) != first.utf16.lexicographicallyPrecedes(second.utf16) {
                differences.append("\(first.unicodeScalars.map(\.value)) \(second.unicodeScalars.map(\.value))")
            }
        }
        #expect(differences.isEmpty, "\(differences.prefix(3))")
    }

    @Test func equalNamesKeepTheirOrder() {
        let pairs = [("b", 1), ("a", 2), ("b", 3), ("a", 4), ("é", 5), ("e\u{301}", 6)]
        #expect(pairs.sortedByName(\.0).map(\.1) == [2, 4, 1, 3, 6, 5])
    }
}
