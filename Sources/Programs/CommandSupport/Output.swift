import AgentProtocol
import ArgumentParser
import Glibc
import LinuxSystem
import Synchronization

/// The options that every command accepts.
package struct OutputOptions: ParsableArguments {
    @Flag(help: "Print one JSON object per line; the last one is the summary.")
    package var json = false

    @Flag(help: "Print nothing but errors.")
    package var quiet = false

    package init() {}
}

/// A command's output: data on standard output, progress and errors on standard error. Each line is written at once, so
/// that a killed process loses none.
package struct Output: Sendable {
    package let json: Bool
    package let quiet: Bool

    package init(_ options: OutputOptions) {
        json = options.json
        quiet = options.quiet
    }

    init(json: Bool, quiet: Bool) {
        self.json = json
        self.quiet = quiet
    }

    /// Prints one object under `--json`, else nothing.
    package func record(_ object: JSONObject) { record(object, lines: []) }

    /// Prints one object under `--json`, else the line for people.
    package func record(_ object: JSONObject, _ line: @autoclosure () -> String) { record(object, lines: [line()]) }

    /// Prints one object under `--json`, else several lines for people.
    package func record(_ object: JSONObject, lines: @autoclosure () -> [String]) {
        if json { Self.write(json: object) } else if !quiet { Self.write(lines: lines(), to: STDOUT_FILENO) }
    }

    /// True once standard output has accepted less than was printed: the disk is full, or the reader is gone.
    package static var hasLostOutput: Bool { lostOutput.load(ordering: .relaxed) }
    private static let lostOutput = Atomic<Bool>(false)

    /// Prints a line for people. Its content may come from a store, a path or another process, so control characters
    /// are escaped: it can't affect a terminal or begin a line of its own (`PrintableText`).
    package static func write(_ line: String, to descriptor: CInt) { write(lines: [line], to: descriptor) }

    package static func write(lines: [String], to descriptor: CInt) {
        write(exactly: lines.map { PrintableText($0).description + "\n" }.joined(), to: descriptor)
    }

    /// Prints an object on its own line, unchanged.
    package static func write(json object: JSONObject) { write(exactly: object.text + "\n", to: STDOUT_FILENO) }

    /// Prints lines that were encoded already.
    package static func write(encoded lines: ArraySlice<UInt8>) { write(exactly: lines, to: STDOUT_FILENO) }

    private static func write(exactly text: String, to descriptor: CInt) {
        write(exactly: Array(text.utf8)[...], to: descriptor)
    }

    private static func write(exactly bytes: ArraySlice<UInt8>, to descriptor: CInt) {
        var bytes = bytes
        while !bytes.isEmpty {
            let count = try? retrying("write") {
                bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            }
            guard let count, count > 0 else {
                if descriptor == STDOUT_FILENO { lostOutput.store(true, ordering: .relaxed) }
                return
            }
            bytes = bytes.dropFirst(count)
        }
    }
}

// MARK: - Failures

/// An error as a command reports it.
package struct FailureReport: Sendable {
    /// A code that scripts can rely on, such as `no_agent`.
    package let code: String
    package let message: String
    /// Additional lines of the message.
    package var reasons: [String] = []
    package let remedy: String

    package init(code: String, message: String, reasons: [String] = [], remedy: String) {
        (self.code, self.message, self.reasons, self.remedy) = (code, message, reasons, remedy)
    }

    package init(_ error: any ActionableError) {
        self.init(code: error.errorCode, message: error.fullMessage, remedy: error.remedy)
    }
}

extension Output {
    /// Reports a failure on standard error and, under `--json`, as the last object too.
    ///
    /// - Parameters:
    ///   - program: The name of the program, with which the line begins.
    ///   - outcome: The outcome in the last object.
    package func fail(_ report: FailureReport, program: String, outcome: String = "failed") {
        failSummary(report, outcome: outcome)
        var lines = ["\(program): \(report.message)"] + report.reasons
        lines[lines.count - 1] += " (\(report.remedy))"
        Self.write(lines: lines, to: STDERR_FILENO)
    }

    /// Reports a failure under `--json`, as the last object.
    package func failSummary(_ report: FailureReport, outcome: String = "failed") {
        guard json else { return }
        let message = ([report.message] + report.reasons).joined(separator: "\n")
        let error: JSONObject = [
            "code": .string(report.code), "message": .string(message), "hint": .string(report.remedy),
        ]
        Self.write(json: ["type": "summary", "outcome": .string(outcome), "error": .object(error)])
    }
}
