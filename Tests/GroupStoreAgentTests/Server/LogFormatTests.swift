import AgentProtocol
import Glibc
import Logging
import TestSupport
import Testing

@testable import GroupStoreAgent

@Suite struct LogFormatTests {
    private func lines(_ format: LogFormat, level: Logger.Level = .trace, _ body: (Logger) -> Void) throws -> [String] {
        var pipe: [CInt] = [0, 0]
        try #require(Glibc.pipe(&pipe) == 0)
        let stream = StandardErrorLog(to: pipe[1], format: format)
        var logger = Logger(label: "test") { format.handler(label: $0, to: stream) }
        logger.logLevel = level
        body(logger)
        #expect(stream.flush(within: .ample))
        close(pipe[1])
        defer { close(pipe[0]) }
        var bytes = [UInt8](repeating: 0, count: 65_536)
        let count = read(pipe[0], &bytes, bytes.count)
        return String(decoding: bytes.prefix(max(0, count)), as: UTF8.self).split(separator: "\n").map(String.init)
    }

    @Test func journalLinesHaveAPriorityAndNoTimeStamp() throws {
        let found = try lines(.journal) { logger in
            for level in Logger.Level.allCases { logger.log(level: level, "message") }
            logger.info("several", metadata: ["b": "2", "a": "1"])
        }
        #expect(
            found == [
                "<7>message", "<7>message", "<6>message", "<5>message", "<4>message", "<3>message", "<2>message",
                "<6>several a=1 b=2",
            ])
    }

    /// A name in a message can't begin another entry, nor change its priority.
    @Test func journalEscapesWhatWouldBeginAnotherLine() throws {
        let found = try lines(.journal) { $0.info("one\n<0>two\u{202E}\u{1B}[31m", metadata: ["path": "a\nb"]) }
        #expect(found == ["<6>one\\u{a}<0>two\\u{202e}\\u{1b}[31m path=a\\u{a}b"])
    }

    @Test func jsonIsOneObjectALine() throws {
        let text = "\"quoted\" \\ \n\t\u{7F}\u{85}\u{202E} Ω 数据 \u{1F4BE}"
        let found = try lines(.json) { logger in
            logger.error("\(text)", metadata: ["path": "\(text)"])
            logger.info("plain")
        }
        #expect(found.count == 2)
        for line in found {
            #expect(!line.unicodeScalars.contains { $0.value < 0x20 || (0x7F..<0xA0).contains($0.value) })
            #expect(!line.unicodeScalars.contains("\u{202E}"))
        }
        guard case .object(let first)? = try? JSONValue(parsing: found[0].utf8),
            case .object(let second)? = try? JSONValue(parsing: found[1].utf8)
        else { throw Unexpected("no JSON: \(found)") }
        #expect(first.string("message") == text)
        #expect(first.string("level") == "error")
        #expect(first.object("metadata")?.string("path") == text)
        #expect(first.string("time")?.wholeMatch(of: /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/) != nil)
        #expect(second.string("message") == "plain" && second["metadata"] == nil)
    }

    @Test func textIsTheLoggersOwn() throws {
        let found = try lines(.text) { $0.notice("hello") }
        #expect(found.first?.hasSuffix("notice test: [GroupStoreAgentTests] hello") == true, "\(found)")
    }

    @Test func omitsLowerLevels() throws {
        let found = try lines(.journal, level: .warning) { logger in
            logger.notice("low")
            logger.warning("high")
        }
        #expect(found == ["<4>high"])
    }

    @Test func droppedLinesAreReportedInTheFormat() {
        #expect(LogFormat.text.droppedLines(3) == "groupstore: 3 log lines were dropped: nothing read standard error")
        #expect(LogFormat.journal.droppedLines(3) == "<4>3 log lines were dropped: nothing read standard error")
        #expect(LogFormat.json.droppedLines(3).hasPrefix("{"))
    }

    /// A program under systemd whose standard error was redirected inherits the variable.
    @Test func recognizesTheJournalByItsDeviceAndInode() throws {
        var pipe: [CInt] = [0, 0]
        try #require(Glibc.pipe(&pipe) == 0)
        defer { for end in pipe { close(end) } }
        var found = stat()
        try #require(fstat(pipe[1], &found) == 0)
        let stream = "\(found.st_dev):\(found.st_ino)"
        func standard(_ value: String?) -> LogFormat {
            .standard(for: pipe[1], environment: value.map { ["JOURNAL_STREAM": $0] } ?? [:])
        }
        #expect(standard(stream) == .journal)
        for other in [nil, "", "1:2", stream + "0", "\(found.st_dev)", ":", "x:y"] { #expect(standard(other) == .text) }
    }
}
