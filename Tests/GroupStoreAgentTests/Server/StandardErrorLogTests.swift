import GroupStoreAgent
import Glibc
import TestSupport
import Testing

@Suite struct StandardErrorLogTests {
    /// Reads whole lines from the pipe until `isEnough`.
    private func read(_ descriptor: CInt, until isEnough: ([Substring]) -> Bool) throws -> [Substring] {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            if bytes.last == UInt8(ascii: "\n") {
                let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n")
                if isEnough(lines) { return lines }
            }
            var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            guard poll(&entry, 1, 10_000) > 0 else { throw Unexpected("no more lines") }
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            guard count > 0 else { throw Unexpected("the pipe has ended") }
            bytes += buffer[..<count]
        }
    }

    /// Counts the written lines, and those reported as dropped.
    private func count(_ lines: [Substring]) -> (written: Int, dropped: Int) {
        let reports = lines.filter { $0.hasPrefix("groupstore: ") }
        let dropped = reports.compactMap { Int($0.split(separator: " ")[1]) }.reduce(0, +)
        return (lines.count - reports.count, dropped)
    }

    @Test func dropsLinesInsteadOfWaitingForAReader() throws {
        var pipe: [CInt] = [0, 0]
        try #require(Glibc.pipe(&pipe) == 0)
        defer { for end in pipe { close(end) } }
        let log = StandardErrorLog(to: pipe[1], capacity: 100)
        // Sixty times what a pipe holds: without a queue, this would never end.
        let line = String(repeating: "x", count: 999) + "\n"
        for _ in 0..<4000 { log.write(line) }
        #expect(!log.flush(within: .zero))
        let lines = try read(pipe[0]) { count($0).written + count($0).dropped == 4000 }
        // A pipe's 64 lines, and twice the queue's capacity: the lines being written, and those waiting.
        #expect(count(lines).written <= 400)
        // It continues as if nothing had happened.
        log.write("the next\n")
        #expect(try read(pipe[0]) { $0.last == "the next" } == ["the next"])
        #expect(log.flush(within: .ample))
    }
}
