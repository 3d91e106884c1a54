import AgentProtocol
import FoundationEssentials
import Glibc
import LinuxSystem
import Logging

/// The form of the log's lines.
package enum LogFormat: String, Sendable, CaseIterable {
    /// A time stamp, the level and the message, for people.
    case text
    /// One JSON object a line.
    case json
    /// A priority prefix (sd-daemon(3)), and no time stamp: the journal has its own.
    case journal

    /// The format for a descriptor: `journal` if it leads to the journal, else `text`.
    ///
    /// - Parameter environment: `JOURNAL_STREAM`, which is `DEVICE:INODE` of the journal's stream (systemd.exec(5)). A
    ///   program that redirected the descriptor elsewhere inherits the variable too, hence the comparison.
    package static func standard(for descriptor: CInt, environment: [String: String]) -> LogFormat {
        var found = stat()
        guard let stream = environment["JOURNAL_STREAM"], fstat(descriptor, &found) == 0 else { return .text }
        return stream == "\(found.st_dev):\(found.st_ino)" ? .journal : .text
    }

    /// Returns the handler that writes in this format.
    package func handler(label: String, to stream: StandardErrorLog) -> any LogHandler {
        self == .text ? StreamLogHandler(label: label, stream: stream) : LineLogHandler(format: self, stream: stream)
    }

    /// Returns the line, without its end, that says how many lines were dropped.
    func droppedLines(_ count: Int) -> String {
        let message = "\(count) log lines were dropped: nothing read standard error"
        return switch self {
        case .text: "groupstore: \(message)"
        case .json, .journal: line(level: .warning, message: message, metadata: [:])
        }
    }

    /// Returns a line, without its end. It is printable: no text in it can begin another line or affect a terminal.
    func line(level: Logger.Level, message: String, metadata: Logger.Metadata) -> String {
        let fields = metadata.sorted { $0.key < $1.key }
        switch self {
        case .text, .journal:
            let words = [message] + fields.map { "\($0.key)=\($0.value)" }
            return "<\(level.priority)>" + PrintableText(words.joined(separator: " ")).description
        case .json:
            var object: JSONObject = [
                "time": WireTime.text(Date.now.timeIntervalSince1970).map { .string($0) } ?? .null,
                "level": .string(level.rawValue), "message": .string(message),
            ]
            if !fields.isEmpty {
                var members = JSONObject()
                for field in fields { members[field.key] = .string("\(field.value)") }
                object["metadata"] = .object(members)
            }
            return Self.escaped(object.text)
        }
    }

    /// Escapes as JSON does what `PrintableText` would escape otherwise. These characters occur in strings only.
    private static func escaped(_ json: String) -> String {
        guard !PrintableText.isPlain(json) else { return json }
        return json.unicodeScalars.reduce(into: "") { text, scalar in
            guard !PrintableText.isPlain(String(scalar)) else { return text.unicodeScalars.append(scalar) }
            let digits = String(scalar.value, radix: 16)
            text += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
        }
    }
}

extension Logger.Level {
    /// The priority of syslog(3).
    fileprivate var priority: Int {
        switch self {
        case .trace, .debug: 7
        case .info: 6
        case .notice: 5
        case .warning: 4
        case .error: 3
        case .critical: 2
        }
    }
}

/// Writes each event as one line of a format for programs.
private struct LineLogHandler: LogHandler {
    let format: LogFormat
    let stream: StandardErrorLog
    var metadata = Logger.Metadata()
    var logLevel = Logger.Level.info

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        var fields = metadata.merging(event.metadata ?? [:]) { $1 }
        if let error = event.error { fields["error"] = "\(error)" }
        stream.write(format.line(level: event.level, message: "\(event.message)", metadata: fields) + "\n")
    }
}
