// The oracle.
import Foundation
import TestSupport
import Testing

@testable import StoreMigration

@Suite struct TextFoldingTests {
    private static func isSame(_ first: String, _ second: String) -> Bool {
        first.unicodeScalars.elementsEqual(second.unicodeScalars)
    }

    private static func foundationFold(_ text: String, _ options: Int) -> String {
        var folding: String.CompareOptions = []
        if options & 1 != 0 { folding.insert(.caseInsensitive) }
        if options & 2 != 0 { folding.insert(.diacriticInsensitive) }
        return text.folding(options: folding, locale: nil)
    }

    /// Returns what differs from Foundation.
    private static func differences(_ text: String) -> [String] {
        var found = (0...3).filter { !isSame(SQLFunction.fold(text, $0), foundationFold(text, $0)) }.map {
            "fold \($0)"
        }
        if !isSame(TextFolding.capitalized(text), text.capitalized) { found.append("capitalized") }
        return found
    }

    /// Foundation's tables may be older than the standard library's.
    @Test func foldsEachScalarAsFoundationDoes() {
        var found: [String] = []
        for value in 0...UInt32(0x1_FFFF) {
            guard let scalar = Unicode.Scalar(value), let age = scalar.properties.age, age.major < 15 else { continue }
            let differences = Self.differences(String(scalar)) + Self.differences("a\(scalar)b")
            if differences != [] { found.append("U+\(String(value, radix: 16)): \(differences)") }
        }
        #expect(found == [])
    }

    @Test func foldsTextsAsFoundationDoes() {
        var scalars = Array(0x20...0x24F) + Array(0x300...0x52F) + Array(0x300...0x345)
        scalars += [
            0x1E9E, 0xFB01, 0x1FB3, 0x1FB7, 0x2160, 0xAC00, 0x1100, 0x5D0, 0x5B0, 0x627, 0x64B, 0x939, 0x93C, 0x94D,
        ]
        scalars += [
            0x3042, 0x3099, 0x212A, 0x212B, 0x1D15E, 0x1D165, 0x1F600, 0x200D, 0x13A0, 0xAB70, 0x10400, 0x2019, 0x27,
        ]
        let known = scalars.compactMap { Unicode.Scalar(UInt32($0)) }
        var generator = SeededGenerator(seed: 3)
        for _ in 0..<20_000 {
            var text = String.UnicodeScalarView()
            for _ in 0..<Int.random(in: 0...8, using: &generator) {
                text.append(known[Int.random(in: known.indices, using: &generator)])
            }
            #expect(Self.differences(String(text)) == [], "\(text.map { String($0.value, radix: 16) })")
        }
    }

    @Test(arguments: [
        ("Élan vital", 3, "elan vital"), ("Straße", 1, "strasse"), ("Čeština", 2, "Cestina"), ("ΆΝΝΑ", 3, "αννα"),
        ("Ёлка", 3, "елка"), ("İstanbul", 3, "istanbul"), ("שָׁלוֹם", 2, "שָׁלוֹם"), ("plain", 3, "plain"),
    ]) func foldsWords(_ text: String, _ options: Int, _ expected: String) {
        #expect(SQLFunction.fold(text, options) == expected)
    }
}
