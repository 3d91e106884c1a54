import AgentProtocol
import ArgumentParser
import Glibc
import LinuxSystem
import Synchronization

/// The options that every command accepts.
struct OutputOptions: ParsableArguments {
    @Flag(help: "Print one JSON object per line; the last one is the summary.")
    var json = false

    @Flag(help: "Print nothing on success.")
    var quiet = false
}

/// A command's output: data on standard output, progress and errors on standard error. Each line is written at once, so
/// that a killed process loses none.
struct Output: Sendable {
    let json: Bool
    let quiet: Bool

    init(_ options: OutputOptions) {
        json = options.json
        quiet = options.quiet
    }

    /// Prints one object under `--json`, else the line for people.
    func record(_ object: JSONObject, _ line: @autoclosure () -> String) { record(object, lines: [line()]) }

    /// Prints one object under `--json`, else several lines for people.
    func record(_ object: JSONObject, lines: @autoclosure () -> [String]) {
        if json { Self.write(json: object) } else if !quiet { Self.write(lines: lines(), to: STDOUT_FILENO) }
    }

    /// Reports a failure on standard error and, under `--json`, as the last object too.
    func fail(_ failure: CommandFailure) {
        failSummary(failure)
        var lines = ["groupstore: \(failure.message)"] + failure.reasons
        lines[lines.count - 1] += " (\(failure.remedy))"
        Self.write(lines: lines, to: STDERR_FILENO)
    }

    /// Reports a failure under `--json`, as the last object.
    func failSummary(_ failure: CommandFailure) {
        if json {
            let message = ([failure.message] + failure.reasons).joined(separator: "\n")
            let error: JSONObject = [
                "code": .string(failure.errorCode), "message": .string(message), "hint": .string(failure.remedy),
            ]
            Self.write(json: ["type": "summary", "outcome": "failed", "error": .object(error)])
        }
    }

    /// True once standard output has accepted less than was printed: the disk is full, or the reader is gone.
    private static let hasLostOutput = Atomic<Bool>(false)

    /// Throws `CommandFailure` if some output was lost.
    static func checkDelivered() throws {
        guard hasLostOutput.load(ordering: .relaxed) else { return }
        throw CommandFailure(
            .inputOutput, code: "output_lost", "standard output can't be written to",
            remedy: "free space where it goes, or keep reading it")
    }

    /// Warns about lost output if the command's change has succeeded: a script must not take it for a failure.
    fileprivate static func warnOfLoss() {
        guard hasLostOutput.load(ordering: .relaxed) else { return }
        write("groupstore: the command succeeded, but standard output can't be written to", to: STDERR_FILENO)
    }

    /// Prints a line for people. Its content may come from a store, a path or another process, so control characters
    /// are escaped: it can't affect a terminal or begin a line of its own (`PrintableText`).
    static func write(_ line: String, to descriptor: CInt) { write(lines: [line], to: descriptor) }

    static func write(lines: [String], to descriptor: CInt) {
        write(exactly: lines.map { PrintableText($0).description + "\n" }.joined(), to: descriptor)
    }

    /// Prints an object on its own line, unchanged.
    static func write(json object: JSONObject) { write(exactly: object.text + "\n", to: STDOUT_FILENO) }

    /// Prints lines that were encoded already.
    static func write(encoded lines: ArraySlice<UInt8>) { write(exactly: lines, to: STDOUT_FILENO) }

    private static func write(exactly text: String, to descriptor: CInt) {
        write(exactly: Array(text.utf8)[...], to: descriptor)
    }

    private static func write(exactly bytes: ArraySlice<UInt8>, to descriptor: CInt) {
        var bytes = bytes
        while !bytes.isEmpty {
            let count = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            if count <= 0 {
                if descriptor == STDOUT_FILENO { hasLostOutput.store(true, ordering: .relaxed) }
                return
            }
            bytes = bytes.dropFirst(count)
        }
    }
}

/// Runs a command's body, and converts every error that has a remedy to a message and an exit code.
///
/// - Parameter changing: True if the command exists for its effect rather than for its output.
func reporting(_ output: Output, changing: Bool = false, _ body: () throws -> Void) throws {
    do {
        try body()
        if changing { Output.warnOfLoss() } else { try Output.checkDelivered() }
    } catch let error as any ActionableError {
        let failure = CommandFailure(error)
        output.fail(failure)
        throw failure.status.code
    }
}
