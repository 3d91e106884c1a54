import TestSupport

/// Mutates an example by a seed: bytes, words of the format, numbers at their limits, parts of other examples, and
/// nesting.
struct Mutator {
    private static let numbers = [
        "0", "-1", "1e400", "-0.0", "255", "256", "65536", "2147483648", "4294967296", "9007199254740993",
        "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616", "0.1",
    ]
    private static let oddBytes: [[UInt8]] = [
        [0], [0x0A], [0x22], [0x5C], [0x7F], [0xC0, 0x80], [0xED, 0xA0, 0x80], [0xEF, 0xBB, 0xBF], [0xFF],
        [0xF4, 0x90, 0x80, 0x80], Array("\\ud800".utf8), Array("\\u0000".utf8), Array("{}".utf8), Array("[]".utf8),
        Array("null".utf8), Array("true".utf8), Array("../".utf8), Array("&a *a".utf8), Array("\t".utf8),
    ]
    private static let longest = 65_536

    private var random: SeededGenerator
    private let words: [[UInt8]]

    init(seed: UInt64, round: Int, words: [String]) {
        random = SeededGenerator(seed: seed &* 0x100_0000_01B3 ^ UInt64(bitPattern: Int64(round)))
        self.words = words.map { Array($0.utf8) }
    }

    /// Returns one of the examples, mutated one to eight times, and occasionally unchanged.
    mutating func input(from examples: [[UInt8]]) -> [UInt8] {
        var bytes = examples.randomElement(using: &random) ?? []
        for _ in 0..<Int.random(in: 0...8, using: &random) { change(&bytes, examples) }
        return Array(bytes.prefix(Self.longest))
    }

    private mutating func change(_ bytes: inout [UInt8], _ examples: [[UInt8]]) {
        let place = position(in: bytes)
        switch Int.random(in: 0..<10, using: &random) {
        case 0 where place < bytes.count: bytes[place] = UInt8.random(in: 0...255, using: &random)
        case 1 where place < bytes.count: bytes[place] ^= 1 << UInt8.random(in: 0..<8, using: &random)
        case 2: bytes.removeSubrange(place..<min(bytes.count, place + Int.random(in: 1...16, using: &random)))
        case 3: bytes.insert(contentsOf: Self.oddBytes.randomElement(using: &random) ?? [], at: place)
        case 4: bytes.insert(contentsOf: words.randomElement(using: &random) ?? [], at: place)
        case 5: replaceNumber(in: &bytes, from: place)
        case 6:
            let other = examples.randomElement(using: &random) ?? []
            bytes.replaceSubrange(place..., with: other[position(in: other)...])
        case 7: bytes.removeSubrange(place...)
        case 8: swapValue(in: &bytes, from: place)
        default:
            let open = Bool.random(using: &random) ? UInt8(ascii: "[") : UInt8(ascii: "{")
            bytes.insert(contentsOf: repeatElement(open, count: 1 << Int.random(in: 0...13, using: &random)), at: place)
        }
    }

    private mutating func position(in bytes: [UInt8]) -> Int { Int.random(in: 0...bytes.count, using: &random) }

    /// Replaces the next run of digits with a number at a limit.
    private mutating func replaceNumber(in bytes: inout [UInt8], from place: Int) {
        let isDigit = { (byte: UInt8) in (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) }
        guard let start = bytes[place...].firstIndex(where: isDigit) else { return }
        let end = bytes[start...].firstIndex { !isDigit($0) } ?? bytes.count
        bytes.replaceSubrange(start..<end, with: Array((Self.numbers.randomElement(using: &random) ?? "0").utf8))
    }

    /// Replaces the text between the next two colons or commas with the text between two others, or with a word.
    private mutating func swapValue(in bytes: inout [UInt8], from place: Int) {
        func value(_ from: Int) -> Range<Int>? {
            let ends = { (byte: UInt8) in byte == UInt8(ascii: ":") || byte == UInt8(ascii: ",") }
            guard let start = bytes[from...].firstIndex(where: ends) else { return nil }
            guard let end = bytes[(start + 1)...].firstIndex(where: ends) else { return nil }
            return start + 1..<end
        }
        guard let replaced = value(place), let other = value(position(in: bytes)) else { return }
        let word = Bool.random(using: &random) ? words.randomElement(using: &random) : nil
        bytes.replaceSubrange(replaced, with: word ?? Array(bytes[other]))
    }
}
