import LinuxSystem
import SQLiteFormat
import TestSupport
import Testing

@testable import ChangeFeed

@Suite struct StorePositionTests {
    private func position(
        _ numbers: [UInt64], hasCounter: Bool, hasStamp: Bool, checkpointed: UInt32 = 0
    ) -> StorePosition {
        StorePosition(
            identity: FileIdentity(device: numbers[0], inode: numbers[1]),
            commit: WALPosition(
                salt: numbers[2], frame: UInt32(truncatingIfNeeded: numbers[3]),
                checksum: FrameChecksum(
                    UInt32(truncatingIfNeeded: numbers[4]), UInt32(truncatingIfNeeded: numbers[5]))),
            changeCounter: hasCounter ? UInt32(truncatingIfNeeded: numbers[6]) : nil,
            stamp: hasStamp
                ? StoreFiles.Stamp(
                    size: Int64(bitPattern: numbers[7]), modified: Int64(bitPattern: numbers[8]),
                    changed: Int64(bitPattern: numbers[9])) : nil,
            checkpointedFrame: checkpointed)
    }

    @Test func readsItsOwnText() throws {
        var generator = SeededGenerator(seed: 5)
        for round in 0..<400 {
            // Of all lengths, from 0 to the largest number.
            let numbers = (0..<10).map { _ in
                UInt64.random(in: 0...UInt64.max, using: &generator) >> UInt64.random(in: 0...64, using: &generator)
            }
            let position = position(
                numbers, hasCounter: round % 2 == 0, hasStamp: round % 3 == 0,
                checkpointed: round % 5 == 0 ? UInt32(truncatingIfNeeded: numbers[3]) : 0)
            #expect(try #require(StorePosition(position.description)) == position, "\(position)")
        }
    }

    @Test func writesHexadecimalNumbers() {
        let numbers: [UInt64] = [0, 1, .max, 16, 15, 0x10, 255, 0x123_4567_89AB_CDEF, 1 << 63, 0xA0]
        let all = position(numbers, hasCounter: true, hasStamp: true)
        #expect(all.description == "0.1.ffffffffffffffff.10.f.10.ff.123456789abcdef.8000000000000000.a0")
        let few = position(numbers, hasCounter: false, hasStamp: false)
        #expect(few.description == "0.1.ffffffffffffffff.10.f.10.-.-.-.-")
        let checkpointed = position(numbers, hasCounter: false, hasStamp: false, checkpointed: 0x1F)
        #expect(checkpointed.description == "0.1.ffffffffffffffff.10.f.10.-.-.-.-.1f")
    }
}
