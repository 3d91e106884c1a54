import AgentProtocol
import AppRelocation
import ArgumentParser
import CommandSupport
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import StoreRelocation
import StoreRescue
import SystemPackage

struct RecoverCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "recover",
        abstract: "Finish or undo an interrupted relocation, or the move of a directory.",
        discussion: """
            Prints the journal and the action that follows from it, and performs it. Every relocation and every start \
            of an agent does the same; this command shows it. The move of a directory that was interrupted while it was \
            copied is undone: to go on with the copy, run move-app again instead. The programs that it has stopped are \
            started.

            Example:
              groupstore recover group.com.example.notes --dry-run
            """)

    @Argument(help: "The group container: its directory, or the group's identifier.", completion: .containers)
    var groupDir: String

    @Flag(help: "Print what would be done, and change nothing.")
    var dryRun = false

    @Flag(help: "Forget the programs that a move has stopped, instead of starting them.")
    var leaveStopped = false

    @Option(
        help: ArgumentHelp(
            "The longest wait for another relocation of the group (default: 30s).", valueName: "time"),
        transform: DurationArgument.init)
    var deadline = DurationArgument(seconds: 30)

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        try deadline.validate("--deadline", in: 0...86_400)
    }

    func run() throws {
        let output = Output(outputOptions)
        let progress = RelocationProgressReporter(output)
        var named: FilePath = ""
        try reporting(output) { named = try GroupDirectory.path(groupDir).lexicallyNormalized() }
        let group = named
        var request = RelocationRequest(source: group, group: group)
        request.deadline = deadline.duration
        FileLease.ignoreBreakSignal()
        Interruption.installHandlers(announcing: true)
        var found: [InterruptedTransfer]
        var isRescueLeft = false
        var (started, hasForgotten, stopped): ([ManagedProgram], Bool, StoppedPrograms?) = ([], false, nil)
        do throws(RelocationFailure) {
            let engine = Relocation(
                request, isCancelled: { Interruption.isRequested }, report: { progress.report($0) })
            found = dryRun ? try engine.interrupted() : try engine.recover { show($0, output) }
            var moved = AppMoveRequest(source: group, destination: group)
            moved.deadline = deadline.duration
            let printer = AppMovePrinter(output)
            let apps = AppRelocation(moved) {
                Interruption.isRequested
            } report: { event in
                if case .started(let programs) = event { started = programs }
                if case .recovered = event { hasForgotten = true }
                printer.report(event)
            }
            if dryRun {
                stopped = try AppRelocation.stopped(in: group)
                started = leaveStopped ? [] : stopped?.startable ?? []
                hasForgotten = leaveStopped && stopped != nil
            }
            let app =
                dryRun
                ? try AppRelocation.interrupted(in: group)
                : try apps.recover(leavingStopped: leaveStopped) { show($0, output) }
            if let app { found.append(app) }
            let rescues = try StoreRescue.interrupted(in: group, settling: !dryRun, request) {
                progress.report(.note($0))
                isRescueLeft = true
            }
            for rescue in rescues { show(rescue, output) }
            if !rescues.isEmpty { isRescueLeft = true }
            if dryRun {
                for transfer in found { show(transfer, output) }
                if let stopped, !leaveStopped { printer.show(stopped) }
            }
        } catch {
            let failure = error.markedIfInterrupted
            progress.fail(failure, source: group, seconds: 0)
            throw ExitCode(failure.exitCode)
        }
        let nothing = isRescueLeft ? "nothing else was interrupted" : "nothing was interrupted"
        try reporting(output, changing: !dryRun) {
            finish(found, started, isDone: hasForgotten, nothing: nothing, in: group, output)
        }
    }

    private func show(_ rescue: StoreRescue.Interrupted, _ output: Output) {
        let hint = "groupstore rescue \(rescue.store.shellWord)"
        var row: JSONObject = ["type": "interrupted", "purpose": "rescue", "state": "archived", "will": "wait"]
        row.setPath("from", bytes: rescue.archive.bytes)
        row.setPath("to", bytes: rescue.store.bytes)
        row["hint"] = .string(hint)
        output.record(
            row,
            "interrupted: rescue \(PrintablePath(rescue.store)): what \(rescue.holders) had committed is in "
                + "\(PrintablePath(rescue.archive)), and not in the store yet: \(hint)")
    }

    private func show(_ found: InterruptedTransfer, _ output: Output) {
        var row: JSONObject = ["type": "interrupted", "id": .string(found.id)]
        row["purpose"] = .string(found.purpose.rawValue)
        row["state"] = .string(found.state)
        row.setPath("from", bytes: found.from.bytes)
        if let to = found.to { row.setPath("to", bytes: to.bytes) }
        row["will"] = .string(found.remedy.rawValue)
        let target = found.to.map { " to \(PrintablePath($0))" } ?? ""
        output.record(
            row,
            "interrupted: \(found.purpose.rawValue) \(PrintablePath(found.from))\(target), \(found.state): "
                + "to \(found.remedy.rawValue)")
    }

    /// Prints the summary. The outcome is `finished` if at least one transfer was finished, or there were only stopped
    /// programs, which are started or forgotten.
    private func finish(
        _ found: [InterruptedTransfer], _ started: [ManagedProgram], isDone: Bool, nothing: String,
        in group: FilePath, _ output: Output
    ) {
        let isFinished = found.contains { $0.remedy == .finish } || (found.isEmpty && (!started.isEmpty || isDone))
        let done = isFinished ? "finished" : found.isEmpty ? "nothing_to_do" : "undone"
        var summary: JSONObject = ["type": "summary", "outcome": .string(done)]
        if dryRun { summary["dry_run"] = true }
        summary.setPath("directory", bytes: group.bytes)
        if !started.isEmpty { summary["started"] = started.json }
        let sentence = done == "nothing_to_do" ? "\(nothing) in \(PrintablePath(group))" : done
        output.record(summary, dryRun && done != "nothing_to_do" ? "would be: \(done)" : sentence)
    }
}
