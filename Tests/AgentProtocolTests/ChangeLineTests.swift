import AgentProtocol
import TestSupport
import Testing

@Suite struct ChangeLineTests {
    private static let pieces = ["note", "\"", "\\", "\n", "\r", "\t", "\u{1}", "\u{7F}", "é", "🍎", "/", " "]

    private func word(_ random: inout some RandomNumberGenerator) -> String {
        (0...Int.random(in: 0...6, using: &random)).map { _ in Self.pieces.randomElement(using: &random) ?? "" }
            .joined()
    }

    private func number(_ random: inout some RandomNumberGenerator) -> UInt64 {
        UInt64.random(in: 0...UInt64.max, using: &random) >> UInt64.random(in: 0...63, using: &random)
    }

    private func generalLine(_ tables: ChangedTables, _ store: StoreAddress, _ number: UInt64) -> [UInt8] {
        WireLine.bytes(
            StoreEvent.change(tables).json(store: store, token: FeedToken(epoch: "e1", number: number).description))
    }

    /// Uses one `ChangeLine` for many changes of one store: nothing it keeps of one change may appear in the next.
    @Test func producesTheBytesOfAGeneralLine() throws {
        var random = SeededGenerator(seed: Tier.seed)
        for _ in 0..<200 {
            let name = word(&random).replacing("/", with: "-")
            var bytes = Array(name.utf8)
            // Sometimes not UTF-8.
            if Bool.random(using: &random) { bytes.append(0xFF) }
            guard let store = StoreAddress(group: "group.example", name: bytes) else { continue }
            var line = ChangeLine(store, epoch: "e1")
            for _ in 0..<20 {
                let names = Set((0..<Int.random(in: 0...4, using: &random)).map { _ in word(&random) })
                let tables = ChangedTables(names, isComplete: Bool.random(using: &random))
                let number = number(&random)
                #expect(line.bytes(tables, number: number) == generalLine(tables, store, number))
            }
            for number in [0, 1, 9, 10, 99, 100, UInt64.max] {
                #expect(line.bytes(.unknown, number: number) == generalLine(.unknown, store, number))
            }
        }
    }

    @Test func returnsNilForALineThatIsTooLong() throws {
        let store = try #require(StoreAddress(group: String(repeating: "\u{1}", count: 16_000), name: Array("a".utf8)))
        var line = ChangeLine(store, epoch: "e1")
        let tables = ChangedTables([String(repeating: "a", count: 16_000)], isComplete: true)
        #expect(line.bytes(tables, number: 1) == nil)
    }
}
