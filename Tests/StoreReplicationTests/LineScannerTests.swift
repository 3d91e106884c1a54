import SQLiteStore
import TestSupport
import Testing

@testable import StoreReplication

struct LineScannerTests {
    private func values(_ text: String) throws -> [StoredValue] {
        var line = LineScanner()
        return try Array(text.utf8).withUnsafeBufferPointer { bytes in
            line.begin(bytes)
            var sink = CollectingSink(encoding: .utf8)
            repeat { try line.value(into: &sink) } while line.take(",")
            try line.end()
            return sink.values
        }
    }

    @Test func readsEachValueThatIsWritten() throws {
        let all: [StoredValue] = [
            .null, .integer(0), .integer(-1), .integer(.max), .integer(.min), .integer(1 << 53),
            .integer(-(1 << 53) + 1),
            .real(0.1), .real(-0.0), .real(2), .real(.infinity), .real(-.infinity), .real(.leastNonzeroMagnitude),
            .real(1.7e308),
            .text(""), .text("a\"\\/\n\r\t\u{0}\u{1F}\u{7F}é\u{1F600}\u{FFFE}"), .blob([]), .blob([0]),
            .blob([1, 255]),
            .blob([0, 1, 2]), .blob(Array(0...255)),
        ]
        var text: [UInt8] = []
        for value in all {
            if !text.isEmpty { text.append(UInt8(ascii: ",")) }
            ValueJSON.append(value, to: &text)
        }
        let found = try values(String(decoding: text, as: UTF8.self))
        #expect(found == all)
        #expect(found.count == all.count)
        if case .real(let zero) = found[8] { #expect(zero.sign == .minus) }
        #expect(try values("\"\\u00e9\\ud83d\\ude00\\b\\f\\/\"") == [.text("é\u{1F600}\u{8}\u{C}/")])
    }

    @Test(arguments: [
        "", "nul", "true", "01", "-", "+1", "1.", ".5e", "1e999", "0x1", "9223372036854775808", "\"", "\"a",
        "\"\\", "\"\\u12", "\"\\ud800\"", "\"\\ud800\\u0041\"", "\"\\udc00\"", "\"\\x\"", "\"\u{1}\"", "[1]",
        "{}", "{\"real\":\"nan\"}", "{\"real\":\"0x1p3\"}", "{\"real\":\"\"}", "{\"integer\":\"1.5\"}",
        "{\"integer\":1}", "{\"base64\":\"A\"}", "{\"base64\":\"====\"}", "{\"base64\":\"AA=A\"}",
        "{\"base64\":\"AAAA", "{\"base64\":\"A===\"}", "null,", "1 ", "{\"base64\":\"AA==AAAA\"}",
        "{\"text_b64\":\"é\"}",
    ])
    func refusesAMalformedValue(_ text: String) {
        #expect(throws: MalformedLine.self) { try values(text) }
    }

    @Test func standsRandomDamage() throws {
        let lines = [
            "{\"type\":\"batch\",\"format\":1,\"from\":\"h1.a.1.2\",\"upto\":\"h1.a.3.4\",\"schema\":\"x\","
                + "\"encoding\":\"UTF-8\",\"version\":3,\"trimmed\":[0,{\"integer\":\"-9007199254740993\"}],\"user_version\":-1,\"application_id\":0}",
            "{\"type\":\"end\",\"rows\":2,\"changes\":2,\"sha256\":\"41c7\"}",
            "{\"type\":\"table\",\"table\":\"Z\",\"rowid\":\"rowid\",\"key\":[],\"columns\":[\"a\",\"b\\\"\"]}",
            "{\"type\":\"contents\",\"table\":\"Z\",\"key\":[\"k\"],\"columns\":[],\"sha256\":\"\",\"rows\":null}",
            "{\"type\":\"sequence\",\"rows\":[[\"a\",1.5],[null,{\"base64\":\"AAA=\"}]]}",
        ]
        var random = SeededGenerator(seed: 7)
        for _ in 0..<20_000 {
            var bytes = Array(lines.randomElement(using: &random)?.utf8 ?? "".utf8)
            for _ in 0..<Int.random(in: 0...3, using: &random) where !bytes.isEmpty {
                let place = Int.random(in: 0..<bytes.count, using: &random)
                switch Int.random(in: 0..<4, using: &random) {
                case 0: bytes[place] = UInt8.random(in: 0...255, using: &random)
                case 1: bytes.remove(at: place)
                case 2: bytes.insert(contentsOf: bytes[place...].prefix(5), at: place)
                default: bytes.removeLast(bytes.count - place)
                }
            }
            bytes.withUnsafeBufferPointer { bytes in
                var line = LineScanner()
                line.begin(bytes)
                _ = try? BatchOpening(&line)
                line.begin(bytes)
                _ = try? BatchEnding(&line)
                line.begin(bytes)
                _ = try? BatchTableLine(&line)
                line.begin(bytes)
                _ = try? BatchContentsLine(&line)
                line.begin(bytes)
                _ = try? SequenceLine(&line)
                line.begin(bytes)
                var sink = CollectingSink(encoding: .utf16le)
                _ = try? line.value(into: &sink)
                #expect(line.position <= bytes.count)
            }
        }
    }
}
