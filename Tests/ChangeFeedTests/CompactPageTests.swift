import TestSupport
import Testing

@testable import ChangeFeed

@Suite struct CompactPageTests {
    /// Pages of all shapes: none, short and long runs of zeros at each end and in between.
    private func page(_ generator: inout SeededGenerator, size: Int) -> [UInt8] {
        var content = [UInt8](repeating: 0, count: size)
        for _ in 0..<Int.random(in: 0...4, using: &generator) {
            let start = Int.random(in: 0...size, using: &generator)
            let end = Int.random(in: start...size, using: &generator)
            for index in start..<end { content[index] = UInt8.random(in: 0...2, using: &generator) }
        }
        return content
    }

    @Test func keepsThePage() {
        var generator = SeededGenerator(seed: 11)
        for size in [0, 1, 2, 511, 512, 4096] {
            for _ in 0..<60 {
                let content = page(&generator, size: size)
                let compact = content.withUnsafeBytes { CompactPage($0) }
                #expect(compact.expanded == content && compact.count == size)
            }
        }
    }

    @Test func comparesFromAnOffset() {
        var generator = SeededGenerator(seed: 12)
        for round in 0..<600 {
            let content = page(&generator, size: 512)
            let compact = content.withUnsafeBytes { CompactPage($0) }
            let start = [0, 100, 511, 512].randomElement(using: &generator) ?? 0
            var other = content
            if round % 3 != 0 {
                let changed = Int.random(in: 0..<512, using: &generator)
                other[changed] = other[changed] == 0 ? 1 : 0
            }
            let isSame = other.withUnsafeBytes { compact.isSame(as: $0, from: start) }
            #expect(isSame == (content[start...] == other[start...]), "round \(round), from \(start)")
        }
        let shorter = [UInt8](repeating: 0, count: 511)
        let compact = [UInt8](repeating: 0, count: 512).withUnsafeBytes { CompactPage($0) }
        #expect(!shorter.withUnsafeBytes { compact.isSame(as: $0, from: 0) })
    }

    @Test func readsNumbers() {
        let content: [UInt8] = [1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 1, 0]
        let compact = content.withUnsafeBytes { CompactPage($0) }
        #expect(compact.word(0) == 0x0100_0000 && compact.word(4) == 2 && compact.word(8) == 256)
    }
}
