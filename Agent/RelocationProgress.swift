import AgentProtocol
import Glibc
import LinuxSystem
import StoreRelocation
import SystemPackage

/// Tells of a relocation: JSON lines, or words for a person with a progress bar when standard error is a terminal.
final class RelocationProgress {
    private let output: Output
    private let isTerminal = isatty(STDERR_FILENO) == 1
    private var bar: ProgressBar?
    private var lastReported: Int64 = 0

    init(_ output: Output) { self.output = output }

    func report(_ event: RelocationEvent) {
        switch event {
        case .plan(let sentence, let bytes):
            emit(["type": "plan", "text": .string(sentence), "bytes_to_copy": .integer(bytes)], sentence)
        case .recovered(let text): emit(["type": "recovered", "text": .string(text)], text)
        case .note(let text): emit(["type": "note", "text": .string(text)], text)
        case .waiting(let holders): waiting(holders)
        case .copied(let bytes, let total): copied(bytes, total)
        case .verifying: break
        case .published: clearBar()
        }
    }

    private func waiting(_ holders: [FileHolder]) {
        let names = holders.map { "\($0.program) (pid \($0.pid))" }.joined(separator: ", ")
        guard names != lastWaiting else { return }
        lastWaiting = names
        emit(
            ["type": "waiting", "holders": .array(holders.map { .object($0.json) })],
            "waiting for \(names.isEmpty ? "a process that can't be seen from here" : names)")
    }
    private var lastWaiting: String?

    private func copied(_ bytes: Int64, _ total: Int64) {
        if output.json {
            guard bytes - lastReported >= 64 << 20 || bytes == total || bytes < lastReported else { return }
            lastReported = bytes
            output.record(["type": "progress", "bytes": .integer(bytes), "of": .integer(total)], "")
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
    private func emit(_ object: JSONObject, _ line: String) {
        clearBar()
        if output.json {
            output.record(object, "")
        } else if !output.quiet {
            Output.write(line, to: STDERR_FILENO)
        }
    }

    func finish(_ summary: RelocationSummary, seconds: Double, dryRun: Bool) {
        clearBar()
        for note in summary.notes { emit(["type": "note", "text": .string(note)], note) }
        var object = Self.summary(summary.outcome.rawValue, seconds)
        if dryRun { object["dry_run"] = true }
        object.setPath("from", bytes: summary.from.bytes)
        object.setPath("to", bytes: summary.to.bytes)
        object["method"] = summary.method.map { .string($0.rawValue) } ?? .null
        object["bytes"] = .integer(summary.bytes)
        object["seconds"] = .number(seconds)
        output.record(object, sentence(summary, dryRun))
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
        var object = Self.summary(failure.outcome, seconds)
        object.setPath("from", bytes: source.bytes)
        object["seconds"] = .number(seconds)
        var error: JSONObject = ["code": .string(failure.code), "message": .string(failure.message)]
        error["hint"] = .string(failure.remedy)
        object["error"] = .object(error)
        if !failure.holders.isEmpty { object["holders"] = .array(failure.holders.map { .object($0.json) }) }
        if !failure.sides.isEmpty { object["sides"] = .array(failure.sides.map { .object($0.json) }) }
        if output.json { Output.write(object.text, to: STDOUT_FILENO) }
        Output.write("groupstore: \(failure.message) (\(failure.remedy))", to: STDERR_FILENO)
        if !output.json { for side in failure.sides { Output.write(side.text, to: STDERR_FILENO) } }
    }

    private static func summary(_ outcome: String, _ seconds: Double) -> JSONObject {
        ["type": "summary", "outcome": .string(outcome)]
    }
}

extension FileHolder {
    var json: JSONObject { ["pid": .integer(Int64(pid)), "program": .string(program)] }
}

extension ConflictSide {
    var json: JSONObject {
        var object: JSONObject = ["role": .string(role.rawValue)]
        object.setPath("path", bytes: path.bytes)
        object["modified"] = .number(Double(modified) / 1e9)
        object["bytes"] = .integer(bytes)
        var counts = JSONObject()
        for (table, count) in rows { counts[table] = .integer(count) }
        object["rows"] = .object(counts)
        object["store_uuid"] = storeUUID.map { .string($0) } ?? .null
        object["model"] = .array(modelIdentifiers.map { .string($0) })
        return object
    }

    var text: String {
        let counts = rows.filter { $0.count > 0 }.map { "\($0.table) \($0.count)" }.joined(separator: ", ")
        let uuid = storeUUID.map { ", store \($0)" } ?? ""
        return "  \(role.rawValue): \(PrintablePath(path)), \(ByteCount(bytes)), \(counts)\(uuid)"
    }
}
