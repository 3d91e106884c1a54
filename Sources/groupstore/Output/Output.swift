import AgentProtocol
import ArgumentParser
import Glibc
import LinuxSystem
import Synchronization

/// What every command understands.
struct OutputOptions: ParsableArguments {
    @Flag(help: "Print one JSON object a line; the last one is the summary.")
    var json = false

    @Flag(help: "Print nothing when all went well.")
    var quiet = false
}

/// Where a command's words go: data to standard output, progress and errors to standard error. Each line is
/// written at once, so that nothing is lost with a process that is killed.
struct Output: Sendable {
    let json: Bool
    let quiet: Bool

    init(_ options: OutputOptions) {
        json = options.json
        quiet = options.quiet
    }

    /// One object under `--json`, else the line for people.
    func record(_ object: JSONObject, _ line: @autoclosure () -> String) { record(object, lines: [line()]) }

    /// The same with several lines.
    func record(_ object: JSONObject, lines: @autoclosure () -> [String]) {
        if json { Self.write(json: object) } else if !quiet { Self.write(lines: lines(), to: STDOUT_FILENO) }
    }

    /// Says why the command ends, on standard error and, under `--json`, as its last object too.
    func fail(_ failure: CommandFailure) {
        if json {
            let message = ([failure.message] + failure.reasons).joined(separator: "\n")
            var error: JSONObject = ["code": .string(failure.code), "message": .string(message)]
            if let remedy = failure.remedy { error["hint"] = .string(remedy) }
            Self.write(json: ["type": "summary", "outcome": "failed", "error": .object(error)])
        }
        let remedy = failure.remedy.map { " (\($0))" } ?? ""
        var lines = ["groupstore: \(failure.message)"] + failure.reasons
        lines[lines.count - 1] += remedy
        Self.write(lines: lines, to: STDERR_FILENO)
    }

    /// Standard output has taken less than was printed: a full disk, or nobody reads it any more.
    private static let hasLost = Atomic<Bool>(false)

    /// Throws `CommandFailure` when not all that was printed has arrived.
    static func checkDelivered() throws {
        guard hasLost.load(ordering: .relaxed) else { return }
        throw CommandFailure(
            .inputOutput, code: "output_lost", "standard output can't be written to",
            remedy: "free space where it goes, or keep reading it")
    }

    /// The same of a command that has done what it was for by then: a script must not take that for undone.
    fileprivate static func tellOfLoss() {
        guard hasLost.load(ordering: .relaxed) else { return }
        write("groupstore: all was done, but standard output can't be written to", to: STDERR_FILENO)
    }

    /// A line for people. What it is about may come from a store, a path or another process, so nothing in it can act on a
    /// terminal or begin a line of its own (`PrintableText`).
    static func write(_ line: String, to descriptor: CInt) { write(lines: [line], to: descriptor) }

    static func write(lines: [String], to descriptor: CInt) {
        write(exactly: lines.map { PrintableText($0).description + "\n" }.joined(), to: descriptor)
    }

    /// An object on a line of its own, exactly as it is.
    static func write(json object: JSONObject) { write(exactly: object.text + "\n", to: STDOUT_FILENO) }

    private static func write(exactly text: String, to descriptor: CInt) {
        var bytes = Array(text.utf8)[...]
        while !bytes.isEmpty {
            let count = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            if count <= 0 {
                if descriptor == STDOUT_FILENO { hasLost.store(true, ordering: .relaxed) }
                return
            }
            bytes = bytes.dropFirst(count)
        }
    }
}

/// Runs a command's body, and turns its failure into a message and an exit code. `changing`: it is there for what it
/// does, and not for what it prints.
func reporting(_ output: Output, changing: Bool = false, _ body: () throws -> Void) throws {
    do {
        try body()
        if changing { Output.tellOfLoss() } else { try Output.checkDelivered() }
    } catch let failure as CommandFailure {
        output.fail(failure)
        throw failure.status.code
    }
}
