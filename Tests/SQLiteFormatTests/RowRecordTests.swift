import SQLiteFormat
import Testing

@Suite struct RowRecordTests {
    private func describe(_ bytes: [UInt8]) -> [String]? {
        bytes.withUnsafeBytes { bytes in
            RowRecord(bytes)?.fields.map { field in
                switch field {
                case .null: "null"
                case .integer(let value): "\(value)"
                case .real(let value): "\(value)"
                case .text(let bytes): "'\(String(decoding: bytes, as: UTF8.self))'"
                case .blob(let bytes): "\(Array(bytes))"
                }
            }
        }
    }

    @Test func readsEachSerialType() {
        #expect(describe([3, 0, 1, 0xFE]) == ["null", "-2"])
        #expect(describe([5, 2, 3, 8, 9, 0x80, 0, 0x7F, 0xFF, 0xFF]) == ["-32768", "8388607", "0", "1"])
        #expect(describe([2, 4, 0xFF, 0xFF, 0xFF, 0xFF]) == ["-1"])
        #expect(describe([2, 5, 0x80, 0, 0, 0, 0, 0]) == ["-140737488355328"])
        #expect(describe([2, 6, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]) == ["9223372036854775807"])
        #expect(describe([2, 7, 0x3F, 0xF8, 0, 0, 0, 0, 0, 0]) == ["1.5"])
        #expect(describe([3, 17, 16, 0x61, 0x62, 1, 2]) == ["'ab'", "[1, 2]"])
        #expect(describe([3, 12, 13]) == ["[]", "''"])
        #expect(describe([1]) == [])
    }

    @Test(
        arguments: [
            [], [0], [3, 0], [2, 1], [2, 1, 0, 0], [2, 10], [2, 11], [2, 0x81], [9, 0], [3, 0x81, 0x80],
            [11, 0x8F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0],
        ] as [[UInt8]])
    func refusesMalformedRecords(_ bytes: [UInt8]) {
        #expect(describe(bytes) == nil)
    }
}
