import AgentProtocol
import FoundationEssentials
import Glibc
import GroupStoreAgent
import LinuxSystem
import SystemPackage

/// A reader of external data to fuzz.
enum Target: String, CaseIterable {
    case journal, receipt, claim, stopped, request, message, lines, parts, configuration
    case xmlStore = "xml-store"

    func reader(in directory: FilePath) throws -> Reader {
        switch self {
        case .journal: try RecordReaders.journal(directory)
        case .receipt: try RecordReaders.receipt(directory)
        case .claim: try RecordReaders.claim(directory)
        case .stopped: try RecordReaders.stopped(directory)
        case .request: WireReaders.request
        case .message: WireReaders.message
        case .lines: WireReaders.lines
        case .parts: WireReaders.parts
        case .configuration: ConfigurationReader.reader(home: directory)
        case .xmlStore: try XMLStoreReader.reader(directory)
        }
    }

    /// The words of the target's format.
    var words: [String] {
        switch self {
        case .journal, .receipt, .claim, .stopped:
            [
                "\"version\":1", "\"b64\":\"AAEC\"", "{\"b64\":\"/w==\"}", "\"committing\":{}",
                "\"publish\":{\"as\":\"a\"}",
                "\"discard\":{}", "\"restore\":{}", "\"rename\"", "\"2001-01-01T00:00:00Z\"",
                "\"2001-01-01T00:00:00.5Z\"",
                "\"a/b\"", "\"/\"", "\"..\"",
            ]
        case .request, .message, .lines, .parts:
            [
                "\"op\":\"relocate\"", "\"op\":\"claim\"", "\"op\":\"present\"", "\"id\":1", "\"store_b64\":\"AA==\"",
                "\"tables\":[]", "\"path_b64\":\"/w\"", "\"dev\":\"1\"", "\"ino\":\"2\"", "\"deadline\":1e9",
                "\"ok\":false",
            ]
        case .xmlStore:
            [
                "<object", "</object>", "<attribute", "<relationship", " idrefs=\"z102\"", "name=\"", "type=\"", "z102",
                "NOTE", "MEMO", "\\u3c00", "&#0;", "&lt;", "<![CDATA[", "]]>", "1e999", "nan", "9223372036854775808",
                "</database>", "<plist><dict>",
            ]
        case .configuration:
            [
                "- ", ": ", "? ", "<<: *a", "&a ", "*a", "!!binary ", "|\n", ">\n", "---\n", "{a: b}", "~",
                "18446744073709551616s",
            ]
        }
    }
}

/// Reads one input, and returns a verdict.
struct Reader: Sendable {
    enum Verdict {
        case accepted
        case refused
        case wrong(String)
    }

    /// Well-formed inputs.
    let examples: [[UInt8]]
    let read: @Sendable ([UInt8]) -> Verdict
}

enum WireReaders {
    static let request = Reader(
        examples: examples([
            #"{"id":1,"op":"subscribe","store":"group.com.example.notes/Notes.sqlite","since":"e1.5","tables":["ZNOTE"]}"#,
            #"{"id":"two","op":"status","group":"group.com.example.notes"}"#,
            #"{"id":3,"op":"present","store":"group.a/Notes.sqlite","presenter":7}"#,
            #"{"op":"relinquished","claim":"c7","presenter":1}"#,
            #"{"id":4,"op":"claim","accesses":[{"store":"g.a/b","mode":"writing","options":["moving"]}],"deadline":30}"#,
            #"{"id":5,"op":"release","claim":"c7","moved":[]}"#,
            #"{"id":6,"op":"relocate","source":"/a/b","source_b64":"/w==","group":"/g","dev":"1","ino":"2","deadline":5}"#,
        ])
    ) { line in
        guard let request = try? AgentRequest(parsing: line) else { return .refused }
        guard let again = try? AgentRequest(parsing: Array(request.json.text.utf8)), again == request else {
            return .wrong("\(request) is not read back: \(request.json.text.prefix(300))")
        }
        return .accepted
    }

    static let message = Reader(
        examples: examples([
            #"{"type":"hello","proto":1,"agent":"0.1.0","max_line":32768}"#,
            #"{"id":1,"ok":true,"token":"e1.5","path":"/a/b"}"#,
            #"{"type":"change","store":"g.a/b","token":"e1.6","tables":["ZNOTE"],"complete":true}"#,
            #"{"id":2,"ok":false,"error":{"code":"unknown_store","message":"no","hint":"yes"}}"#,
            #"{"type":"relocating","store":"g.a/b","waiting_for":[{"pid":1,"program":"x"}]}"#,
        ])
    ) { line in
        guard let message = try? AgentMessage(parsing: line) else { return .refused }
        let text = message.json.text
        guard let again = try? AgentMessage(parsing: Array(text.utf8)), again == message else {
            return .wrong("not read back: \(text.prefix(300))")
        }
        return .accepted
    }

    /// The lines are the same however the stream is cut into pieces.
    static let lines = Reader(examples: request.examples.map { $0 + [0x0A] + $0 + [0x0A] }) { stream in
        let expected = cut(stream, pieces: stream.count + 1)
        for pieces in [1, 7, 4096] where cut(stream, pieces: pieces) != expected {
            return .wrong("other lines in pieces of \(pieces)")
        }
        return .accepted
    }

    /// An object longer than a line is the same after it was sent in parts.
    static let parts = Reader(
        examples: examples([
            #"{"type":"row","number":1,"table":"note","op":"insert","key":1,"values":["milk",{"real":"2.0"},null]}"#,
            #"{"type":"row","key":"\u0000\"\\\ud83d\ude00","values":[""#
                + String(repeating: #"\n\u0001\"é😀a"#, count: 4000) + #""]}"#,
            #"{"type":"part","data":"{\"type\":","last":false}"#, #"{"type":"part","data":"1}","last":true}"#,
        ])
    ) { line in
        guard case .object(let object)? = try? JSONValue(parsing: line) else { return .refused }
        var (buffer, found) = (PartBuffer(), [JSONObject]())
        for part in WireLine.wholeLines(object) {
            guard part.count <= WireLine.maxLength, case .object(let read)? = try? JSONValue(parsing: part) else {
                return .wrong("a part of \(part.count) bytes isn't a line")
            }
            // A part by itself may be wrong, but must not end the process.
            guard object.string("type") != "part" else {
                _ = try? buffer.object(read)
                return .accepted
            }
            if let whole = try? buffer.object(read) { found.append(whole) }
        }
        return found == [object] ? .accepted : .wrong("\(found.count) objects came of one")
    }

    private static func cut(_ stream: [UInt8], pieces: Int) -> [[UInt8]] {
        var (buffer, found) = (LineBuffer(), [[UInt8]]())
        var rest = stream[...]
        while !rest.isEmpty {
            buffer.append(rest.prefix(pieces))
            rest = rest.dropFirst(pieces)
            do {
                while let line = try buffer.next() { found.append(line) }
            } catch {
                return found
            }
        }
        return found
    }

    private static func examples(_ texts: [String]) -> [[UInt8]] { texts.map { Array($0.utf8) } }
}

enum ConfigurationReader {
    private static let text = """
        socket: { path: ~/run/agent.sock, allow-uids: [1001, 1002] }
        claim-deadline: 90s
        groups:
          - id: group.com.example.notes
            directory: ~/notes
            stores:
              - name: Notes.sqlite
                legacy: [~/old/Notes.sqlite, "/var/old/my notes"]
                on-conflict: keep-group
                retire: symlink
                settle: 250ms
              - name: data.data
          - id: group.com.example.empty

        """

    static func reader(home: FilePath) -> Reader {
        Reader(examples: [Array(text.utf8), Array("groups: []\n".utf8)]) { read($0, home: home) }
    }

    private static func read(_ bytes: [UInt8], home: FilePath) -> Reader.Verdict {
        guard let text = String(validating: bytes, as: UTF8.self) else { return .refused }
        let file = ConfigurationFile("/etc/fuzz.yaml", environment: ["HOME": home.string])
        do throws(ConfigurationError) {
            let configuration = try file.parse(text)
            let directories = configuration.groups.map(\.directory)
            return directories.allSatisfy(\.isAbsolute) ? .accepted : .wrong("a relative directory: \(directories)")
        } catch {
            return "\(error)".isEmpty || error.remedy.isEmpty ? .wrong("refused without a word") : .refused
        }
    }
}
