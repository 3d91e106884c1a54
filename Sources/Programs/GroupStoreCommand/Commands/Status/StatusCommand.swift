import AgentProtocol
import ArgumentParser
import CommandSupport
import Glibc
import GroupStore
import GroupStoreAgent
import LinuxSystem
import SystemPackage

/// The form of `status`.
enum StatusFormat: String, CaseIterable, ExpressibleByArgument {
    case text
    /// As `--json`.
    case json
    /// Metrics for Prometheus and its relatives.
    case openmetrics

    /// The values that the help lists: `--json` is the way to JSON.
    static var allValueStrings: [String] { [Self.text, .openmetrics].map(\.rawValue) }
}

struct StatusCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status",
        abstract: "Show the stores, their relocations, and their subscribers.",
        discussion: """
            Shows everything that the agent serves, or one group or store. Works without an agent for a group or a \
            store: shows the directory's content and past relocations. Also shows conflicts, refusals, and a \
            configuration that the agent could not read; the exit code is that of the first one.

            --check prints nothing if all is well, else one line for each conflict, refusal, rejected configuration, \
            store that is not followed, store whose rows can't be recorded, store that has waited longer than --waiting to \
            be relocated, and subscriber that has not read for --stuck-after. --watch shows a table that is kept up to date; \
            where standard output is no terminal, a line for each row that has changed. q or Ctrl-C ends it. --format \
            openmetrics prints metrics, and exits with 0 whatever they report, unless no agent answers.

            Example:
              groupstore status --watch
            """)

    @Argument(
        help: ArgumentHelp(
            "A group's directory or identifier, or a store: its file, GROUP_ID/NAME, or where it was relocated from.",
            valueName: "group-or-store"), completion: .groupsAndStores)
    var target: String?

    @Flag(help: "Show a table that is kept up to date.")
    var watch = false

    @Option(
        help: ArgumentHelp("The time between two answers, with --watch (default: 1s).", valueName: "time"),
        transform: DurationArgument.init
    )
    var interval = DurationArgument(seconds: 1)

    @Flag(help: "Print only problems, one line each; the exit code is that of the first one.")
    var check = false

    @Option(
        help: ArgumentHelp(
            "Report a subscriber that has not read for this long, with --check (default: 30s).", valueName: "time"),
        transform: DurationArgument.init)
    var stuckAfter = DurationArgument(seconds: Int(ProblemLimits.standardStuckSubscriber))

    @Option(
        help: ArgumentHelp(
            "Report a store that has waited so long to be relocated, with --check (default: 10m).", valueName: "time"),
        transform: DurationArgument.init)
    var waiting = DurationArgument(seconds: Int(ProblemLimits.standardWaiting))

    @Option(help: ArgumentHelp("Print text, or metrics for Prometheus.", valueName: "format"))
    var format: StatusFormat?

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        if [watch, check, format == .openmetrics].filter({ $0 }).count > 1 {
            throw ValidationError("--watch, --check and --format openmetrics exclude each other")
        }
        if outputOptions.json, let format, format != .json {
            throw ValidationError("--json and --format \(format.rawValue) exclude each other")
        }
        if watch, outputOptions.quiet { throw ValidationError("--watch and --quiet exclude each other") }
        try interval.validate("--interval", in: 0.1...3600)
        try stuckAfter.validate("--stuck-after", in: 0...31_536_000)
        try waiting.validate("--waiting", in: 0...31_536_000)
    }

    func run() throws {
        var options = outputOptions
        if format == .json { options.json = true }
        let output = Output(options)
        try reporting(output) {
            if watch { return try StatusWatch(target, interval: interval.duration, output).run() }
            if format == .openmetrics { return try printMetrics() }
            let reading = try read(output)
            if check { return try check(reading, output) }
            for row in reading.rows { output.record(row.object, lines: row.lines) }
            output.record(reading.summary, lines: reading.summaryLines)
            if let problem = reading.agent?.problems.first { throw ExitCode(problem.exitCode) }
        }
    }

    /// Reads the status. Without an agent, and without a target, the relays are all that is known.
    private func read(_ output: Output) throws -> StatusReading {
        do {
            return try StatusReading(of: target)
        } catch let error as CommandFailure where error.status == .unavailable && target == nil && !check {
            for row in RelayRows(of: nil).rows { output.record(row.object, lines: row.lines) }
            throw error
        }
    }

    private var limits: ProblemLimits { ProblemLimits(stuckSubscriber: stuckAfter.seconds, waiting: waiting.seconds) }

    private func check(_ reading: StatusReading, _ output: Output) throws {
        let problems = reading.problems(limits)
        for problem in problems { output.record(problem.record, problem.line) }
        if output.json {
            let summary: JSONObject = [
                "type": "summary", "outcome": problems.isEmpty ? "ok" : "problems",
                "problems": .integer(Int64(problems.count)),
            ]
            output.record(summary, "")
        }
        if let problem = problems.first { throw ExitCode(problem.exitCode) }
    }

    /// Prints the metrics. Without an agent there is one, which says so: a monitor reads the output, not the exit code.
    private func printMetrics() throws {
        do {
            let reading = try StatusReading(of: target)
            var metrics = reading.agent.map { AgentMetrics($0, limits).text } ?? AgentMetrics.noAgent
            reading.relays.add(to: &metrics)
            Output.write(lines: metrics.lines, to: STDOUT_FILENO)
        } catch let error as CommandFailure where error.status == .unavailable {
            var metrics = AgentMetrics.noAgent
            RelayRows(of: nil).add(to: &metrics)
            Output.write(lines: metrics.lines, to: STDOUT_FILENO)
            throw error
        }
    }
}
