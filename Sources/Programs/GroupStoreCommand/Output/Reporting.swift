import CommandSupport
import Glibc
import LinuxSystem

extension Output {
    /// Reports a failure on standard error and, under `--json`, as the last object too.
    func fail(_ failure: CommandFailure) { fail(failure.report, program: "groupstore") }

    /// Reports a failure under `--json`, as the last object.
    func failSummary(_ failure: CommandFailure) { failSummary(failure.report) }

    /// Throws `CommandFailure` if some output was lost.
    static func checkDelivered() throws {
        guard hasLostOutput else { return }
        throw CommandFailure(
            .inputOutput, code: "output_lost", "standard output can't be written to",
            remedy: "free space where it goes, or keep reading it")
    }

    /// Warns about lost output if the command's change has succeeded: a script must not take it for a failure.
    fileprivate static func warnOfLoss() {
        guard hasLostOutput else { return }
        write("groupstore: the command succeeded, but standard output can't be written to", to: STDERR_FILENO)
    }
}

extension CommandFailure {
    fileprivate var report: FailureReport {
        FailureReport(code: errorCode, message: message, reasons: reasons, remedy: remedy)
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

/// Runs a command's body with its output.
func reporting(_ options: OutputOptions, changing: Bool = false, _ body: (Output) throws -> Void) throws {
    let output = Output(options)
    try reporting(output, changing: changing) { try body(output) }
}
