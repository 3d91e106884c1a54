import AgentProtocol
import Glibc
import GroupStoreAgent
import LinuxSystem
import StoreRelocation
import SystemPackage

/// Tells of a relocation: JSON lines, or words for a person with a progress bar when standard error is a terminal.
final class RelocationProgress {
    private let output: Output
    private let isTerminal = isatty(STDERR_FILENO) == 1
    private var bar: ProgressBar?
    private var lastReported: Int64 = 0
    private var lastWaiting: String?

    init(_ output: Output) { self.output = output }

    func report(_ event: RelocationEvent) {
        switch event {
        case .plan(let text, _), .recovered(let text), .note(let text): emit(event, text)
        case .waiting(let holders): waiting(holders, event)
        case .copied(let bytes, let total): copied(bytes, total)
        case .published: clearBar()
        }
    }

    private func waiting(_ holders: [FileHolder], _ event: RelocationEvent) {
        let names = holders.map { "\($0.program) (pid \($0.pid))" }.joined(separator: ", ")
        guard names != lastWaiting else { return }
        lastWaiting = names
        emit(event, "waiting for \(names.isEmpty ? "a process that can't be seen from here" : names)")
    }

    private func copied(_ bytes: Int64, _ total: Int64) {
        if output.json {
            guard bytes - lastReported >= 64 << 20 || bytes == total || bytes < lastReported else { return }
            lastReported = bytes
            emit(.copied(bytes: bytes, of: total), "")
        } else if isTerminal, !output.quiet {
            if bar == nil { bar = ProgressBar(total: total) }
            bar?.show(bytes)
        }
    }

    private func clearBar() {
        bar?.clear()
        bar = nil
    }

    /// People read this on standard error; scripts read objects on standard output.
    private func emit(_ event: RelocationEvent, _ text: String) {
        clearBar()
        if output.json {
            if let line = event.line { output.record(line.members.typed(line.type), "") }
        } else if !output.quiet {
            Output.write(text, to: STDERR_FILENO)
        }
    }

    func finish(_ summary: RelocationSummary, seconds: Double, dryRun: Bool) {
        clearBar()
        if !output.json { for note in summary.notes { report(.note(note)) } }
        output.record(
            summary.members(seconds: seconds, dryRun: dryRun).typed("summary"), sentence(summary, dryRun))
    }

    private func sentence(_ summary: RelocationSummary, _ dryRun: Bool) -> String {
        let from = PrintablePath(summary.from)
        let to = PrintablePath(summary.to)
        if dryRun { return "would be: \(summary.outcome.rawValue)" }
        switch summary.outcome {
        case .relocated:
            return "relocated \(from) to \(to) (\(summary.method?.rawValue ?? ""), \(ByteCount(summary.bytes)))"
        case .alreadyRelocated: return "already relocated: \(to)"
        case .nothingToDo: return "nothing to do: no store at \(from)"
        }
    }

    func fail(_ failure: RelocationFailure, source: FilePath, seconds: Double) {
        clearBar()
        if output.json {
            Output.write(failure.members(source: source, seconds: seconds).typed("summary").text, to: STDOUT_FILENO)
        }
        Output.write("groupstore: \(failure.message) (\(failure.remedy))", to: STDERR_FILENO)
        if !output.json { for side in failure.sides { Output.write(side.text, to: STDERR_FILENO) } }
    }
}

extension JSONObject {
    /// The members behind a `type`.
    fileprivate func typed(_ type: String) -> JSONObject {
        var object: JSONObject = ["type": .string(type)]
        for (key, value) in members { object[key] = value }
        return object
    }
}

extension ConflictSide {
    fileprivate var text: String {
        let counts = rows.filter { $0.count > 0 }.map { "\($0.table) \($0.count)" }.joined(separator: ", ")
        let uuid = storeUUID.map { ", store \($0)" } ?? ""
        return "  \(role.rawValue): \(PrintablePath(path)), \(ByteCount(bytes)), \(counts)\(uuid)"
    }
}
