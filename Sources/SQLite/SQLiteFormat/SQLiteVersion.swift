import Glibc

/// A version of SQLite, such as 3.40.1.
package struct SQLiteVersion: Hashable, Sendable, Comparable, CustomStringConvertible {
    package let minor: Int
    package let patch: Int

    package init(minor: Int, patch: Int) {
        self.minor = minor
        self.patch = patch
    }

    /// The first version in which two connections that write or checkpoint at once can't corrupt a database in WAL mode
    /// (https://sqlite.org/wal.html, "The WAL-Reset Bug").
    package static let withoutResetBug = SQLiteVersion(minor: 51, patch: 3)

    package var description: String { "3.\(minor).\(patch)" }

    package static func < (one: SQLiteVersion, other: SQLiteVersion) -> Bool {
        (one.minor, one.patch) < (other.minor, other.patch)
    }
}

/// Detects SQLite in the bytes of a program or library, which contain its version and the date of its sources as text.
struct SQLiteVersionScan {
    private var versions: Set<SQLiteVersion> = []
    private var sourceYears: Set<Int> = []

    /// The bytes that consecutive pieces must share, so that no text is cut in two.
    static let overlap = 80

    mutating func add(_ piece: UnsafeRawBufferPointer) {
        each(UInt8(ascii: "3"), in: piece) { if let found = Self.version(piece, at: $0) { versions.insert(found) } }
        each(UInt8(ascii: "2"), in: piece) {
            if let found = Self.sourceYear(piece, at: $0) { sourceYears.insert(found) }
        }
    }

    /// The detected version. Nil if there is no SQLite, or if its version can't be told from those of other programs.
    ///
    /// SQLite's shell contains only the date of the sources and links the library for the rest. A program with SQLite
    /// linked in also contains unrelated version numbers. The year of the sources decides between them.
    var version: SQLiteVersion? {
        guard let year = sourceYears.max() else { return nil }
        if versions.count == 1 { return versions.first }
        let likely = versions.filter { Self.minors(in: year).contains($0.minor) }
        return likely.count == 1 ? likely.first : nil
    }

    /// The last minor version of each year, since versions follow the years closely
    /// (https://sqlite.org/chronology.html).
    private static let lastMinors = [
        2015: 9, 2016: 15, 2017: 21, 2018: 26, 2019: 30, 2020: 34, 2021: 37, 2022: 40, 2023: 44, 2024: 47, 2025: 51,
    ]

    /// Returns the minor versions that were still maintained in that year.
    private static func minors(in year: Int) -> ClosedRange<Int> {
        let last = lastMinors[year] ?? (year < 2015 ? 8 : .max)
        return min(lastMinors[year - 2] ?? (year < 2018 ? 7 : 51), last)...last
    }

    private func each(_ byte: UInt8, in piece: UnsafeRawBufferPointer, _ body: (Int) -> Void) {
        guard let base = piece.baseAddress else { return }
        var next = 0
        while next < piece.count, let found = memchr(base + next, CInt(byte), piece.count - next) {
            let index = UnsafeRawPointer(found) - base
            body(index)
            next = index + 1
        }
    }

    /// Parses `3.N.P` followed by a zero byte. SQLite before 3.7 had no WAL.
    private static func version(_ piece: UnsafeRawBufferPointer, at start: Int) -> SQLiteVersion? {
        if start > 0, isNumeral(piece[start - 1]) || piece[start - 1] == UInt8(ascii: ".") { return nil }
        var numbers: [Int] = []
        var next = start
        while next < piece.count, numbers.count < 4 {
            let digits = piece[next...].prefix(3).prefix(while: isNumeral)
            guard (1...2).contains(digits.count), let end = digits.indices.last.map({ $0 + 1 }), end < piece.count
            else {
                return nil
            }
            numbers.append(digits.reduce(0) { $0 * 10 + Int($1 - UInt8(ascii: "0")) })
            if piece[end] == 0 { break }
            guard piece[end] == UInt8(ascii: ".") else { return nil }
            next = end + 1
        }
        guard (3...4).contains(numbers.count), numbers[0] == 3, numbers[1] >= 7 else { return nil }
        return SQLiteVersion(minor: numbers[1], patch: numbers[2])
    }

    private static let sourcePattern = Array("2000-00-00 00:00:00 ".utf8)

    /// Parses `YYYY-MM-DD HH:MM:SS` and the hash of the sources, which begins with at least 40 hexadecimal digits.
    private static func sourceYear(_ piece: UnsafeRawBufferPointer, at start: Int) -> Int? {
        guard start + sourcePattern.count + 40 <= piece.count, piece[start + 1] == UInt8(ascii: "0") else { return nil }
        for (offset, expected) in sourcePattern.enumerated() {
            let byte = piece[start + offset]
            guard isNumeral(expected) ? isNumeral(byte) : byte == expected else { return nil }
        }
        let hash = piece[(start + sourcePattern.count)...].prefix(40)
        guard hash.allSatisfy({ isNumeral($0) || (UInt8(ascii: "a")...UInt8(ascii: "f")).contains($0) }) else {
            return nil
        }
        return piece[start..<start + 4].reduce(0) { $0 * 10 + Int($1 - UInt8(ascii: "0")) }
    }

    private static func isNumeral(_ byte: UInt8) -> Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) }
}
