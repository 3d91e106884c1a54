import AgentProtocol
import AppRelocation
import ArgumentParser
import CommandSupport
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
            copied is undone: to go on with the copy, run move-app again instead.

            Example:
              groupstore recover group.com.example.notes --dry-run
            """)

    @Argument(help: "The group container: its directory, or the group's identifier.", completion: .containers)
    var groupDir: String

    @Flag(help: "Print what would be done, and change nothing.")
    var dryRun = false

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
        do throws(RelocationFailure) {
            let engine = Relocation(
                request, isCancelled: { Interruption.isRequested }, report: { progress.report($0) })
            found = dryRun ? try engine.interrupted() : try engine.recover { show($0, output) }
            let app =
                dryRun
                ? try AppRelocation.interrupted(in: group)
                : try AppRelocation.recover(
                    in: group, deadline: deadline.duration, isCancelled: { Interruption.isRequested },
                    found: { show($0, output) })
            if let app { found.append(app) }
            let rescues = try StoreRescue.interrupted(in: group, settling: !dryRun, request)
            for rescue in rescues { show(rescue, output) }
            isRescueLeft = !rescues.isEmpty
            if dryRun { for transfer in found { show(transfer, output) } }
        } catch {
            let failure = error.markedIfInterrupted
            progress.fail(failure, source: group, seconds: 0)
            throw ExitCode(failure.exitCode)
        }
        try reporting(output, changing: !dryRun) { finish(found, in: group, output, isRescueLeft) }
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

    /// Prints the summary. The outcome is `finished` if at least one transfer was finished.
    private func finish(
        _ found: [InterruptedTransfer], in group: FilePath, _ output: Output, _ isRescueLeft: Bool
    ) {
        let isFinished = found.contains { $0.remedy == .finish }
        let done = found.isEmpty ? "nothing_to_do" : isFinished ? "finished" : "undone"
        var summary: JSONObject = ["type": "summary", "outcome": .string(done)]
        if dryRun { summary["dry_run"] = true }
        summary.setPath("directory", bytes: group.bytes)
        let nothing = isRescueLeft ? "nothing else was interrupted" : "nothing was interrupted"
        let sentence = found.isEmpty ? "\(nothing) in \(PrintablePath(group))" : done
        output.record(summary, dryRun && !found.isEmpty ? "would be: \(done)" : sentence)
    }
}
