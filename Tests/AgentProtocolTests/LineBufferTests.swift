import AgentProtocol
import Testing

@Suite struct LineBufferTests {
    private func lines(_ buffer: inout LineBuffer) throws -> [String] {
        var found: [String] = []
        while let line = try buffer.next() { found.append(String(decoding: line, as: UTF8.self)) }
        return found
    }

    @Test func returnsALineOnceItsNewlineArrives() throws {
        var buffer = LineBuffer()
        for byte in "half".utf8 {
            buffer.append([byte])
            #expect(try buffer.next() == nil)
        }
        buffer.append("\nwhole\nnext".utf8)
        #expect(try lines(&buffer) == ["half", "whole"])
        #expect(!buffer.isEmpty)
        buffer.append(" one\n".utf8)
        #expect(try lines(&buffer) == ["next one"])
        #expect(buffer.isEmpty)
    }

    /// The lines are the same however the stream is split.
    @Test(arguments: 1...12)
    func returnsTheSameLinesForAnySplit(_ size: Int) throws {
        let text = Array("{\"a\":1}\n\n{\"b\":\"ü\"}\n{}\n".utf8)
        var buffer = LineBuffer()
        var found: [String] = []
        for start in stride(from: 0, to: text.count, by: size) {
            buffer.append(text[start..<min(start + size, text.count)])
            found += try lines(&buffer)
        }
        #expect(found == ["{\"a\":1}", "", "{\"b\":\"ü\"}", "{}"])
    }

    @Test func countsTheNewlineInTheLimit() throws {
        var buffer = LineBuffer(limit: 8)
        buffer.append("1234567\n".utf8)
        #expect(try lines(&buffer) == ["1234567"])
        buffer.append("12345678\n".utf8)
        #expect(throws: LineBuffer.LineTooLong.self) { try buffer.next() }
    }

    @Test func rejectsALineWithoutAnEnd() throws {
        var buffer = LineBuffer(limit: 8)
        buffer.append("1234567".utf8)
        #expect(try buffer.next() == nil)
        buffer.append("8".utf8)
        #expect(throws: LineBuffer.LineTooLong.self) { try buffer.next() }
    }
}
