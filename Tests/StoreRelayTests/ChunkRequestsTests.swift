import TestSupport
import Testing

@testable import StoreRelay

/// Chunks over a link that keeps the order of what it delivers, and loses the rest.
struct ChunkRequestsTests {
    private enum Message {
        case chunk(Int), probe(Int)
    }

    @Test(arguments: 0..<200) func everyChunkArrivesAndNoneIsRequestedInVain(_ seed: Int) {
        var random = SeededGenerator(seed: UInt64(seed))
        let (count, window) = (Int.random(in: 1...60, using: &random), Int.random(in: 1...24, using: &random))
        let begin = Int.random(in: 0..<count, using: &random)
        var requests = ChunkRequests(from: begin, to: count, window: window)
        var (requested, lost, received): ([Int: Int], [Int: Int], Set<Int>) = ([:], [:], [])
        var link: [Message] = []
        let loss = Int.random(in: 0...60, using: &random)
        while !requests.isComplete {
            while let index = requests.begin() {
                #expect((requests.first..<min(count, requests.first + window)).contains(index))
                requested[index, default: 0] += 1
                link.append(.chunk(index))
            }
            if link.isEmpty { link.append(.probe(requests.sent)) }
            // A part of what is under way arrives, or is lost.
            for _ in 0..<Int.random(in: 1...link.count, using: &random) {
                let message = link.removeFirst()
                let isLost = Int.random(in: 0..<100, using: &random) < loss
                switch message {
                case .chunk(let index) where isLost: lost[index, default: 0] += 1
                case .chunk(let index):
                    let (isNeeded, isNeededAgain) = (requests.receive(index), requests.receive(index))
                    #expect(isNeeded && !isNeededAgain)
                    received.insert(index)
                case .probe(let number): if !isLost { requests.receiveProbe(number) }
                }
            }
        }
        #expect(received == Set(begin..<count) && requests.first == count)
        for index in begin..<count { #expect(requested[index] == 1 + lost[index, default: 0]) }
        let (isNeeded, next) = (requests.receive(count), requests.begin())
        #expect(!isNeeded && next == nil)
    }
}
