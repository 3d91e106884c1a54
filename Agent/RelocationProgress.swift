import AgentProtocol
import ArgumentParser
import FoundationEssentials
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

    private let migration: MigrationReporter

    init(_ output: Output) {
        self.output = output
        migration = MigrationReporter(output)
    }

    func report(_ event: RelocationEvent) {
        switch event {
        case .plan(let text, _), .recovered(let text), .note(let text): emit(event, text)
        case .waiting(let holders): waiting(holders, event)
        case .copied(let bytes, let total): copied(bytes, total)
        case .transforming(let fraction, let doing): migration.report(fraction, doing)
        case .published: clearBar()
        }
    }

    /// What an agent tells of a relocation that it does.
    func relay(_ type: String, _ object: JSONObject) {
        if output.json {
            var line: JSONObject = ["type": .string(type)]
            for member in object.members where member.key != "id" { line[member.key] = member.value }
            return output.record(line, "")
        }
        switch (type, object["text"], object["bytes"], object["of"]) {
        case ("progress", _, .integer(let bytes)?, .integer(let total)?): copied(bytes, total)
        case (_, .string(let text)?, _, _): say(text)
        default: break
        }
    }

    /// Ends with an agent's summary. Throws the exit code of one that is no success.
    func finish(_ answer: JSONObject) throws {
        clearBar()
        var summary: JSONObject = ["type": "summary"]
        for member in answer.members where member.key != "id" && member.key != "ok" {
            summary[member.key] = member.value
        }
        guard case .object(let error)? = summary["error"] else {
            if case .array(let notes)? = summary["notes"] {
                for case .string(let note) in notes { report(.note(note)) }
            }
            let from = PrintablePath(FilePath(bytes: summary.path("from") ?? []) ?? "")
            let to = PrintablePath(FilePath(bytes: summary.path("to") ?? []) ?? "")
            return output.record(summary, "\(summary.string("outcome") ?? ""): \(from) to \(to)")
        }
        if output.json { Output.write(summary.text, to: STDOUT_FILENO) }
        Output.write(
            "groupstore: \(error.string("message") ?? "") (\(error.string("hint") ?? ""))", to: STDERR_FILENO)
        describeSides(of: summary)
        throw ExitCode(Int32(clamping: error.integer("exit") ?? Int64(ExitStatus.inputOutput.rawValue)))
    }

    private func waiting(_ holders: [FileHolder], _ event: RelocationEvent) {
        let names = holders.names
        guard names != lastWaiting else { return }
        lastWaiting = names
        emit(event, "waiting for \(names)")
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
        migration.finish()
    }

    /// People read this on standard error; scripts read objects on standard output.
    private func emit(_ event: RelocationEvent, _ text: String) {
        clearBar()
        if output.json {
            if let line = event.line { output.record(line.members.typed(line.type), "") }
        } else {
            say(text)
        }
    }

    private func say(_ text: String) { if !output.quiet { Output.write(text, to: STDERR_FILENO) } }

    func finish(_ summary: RelocationSummary, seconds: Double, dryRun: Bool) {
        clearBar()
        for note in summary.notes { report(.note(note)) }
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
        case .undone: return "undone: the store is \(to) again"
        case .alreadyRelocated: return "already relocated: \(to)"
        case .migrated: return "migrated \(to)"
        case .setAside: return "set aside \(summary.setAside.map { "\(PrintablePath($0.store))" } ?? ""); \(to) is new"
        case .nothingToDo: return "nothing to do: no store at \(from)"
        }
    }

    func fail(_ failure: RelocationFailure, source: FilePath, seconds: Double) {
        clearBar()
        let summary = failure.members(source: source, seconds: seconds).typed("summary")
        if output.json { Output.write(summary.text, to: STDOUT_FILENO) }
        Output.write("groupstore: \(failure.message) (\(failure.remedy))", to: STDERR_FILENO)
        describeSides(of: summary)
    }

    /// What a person needs to choose between two stores in conflict.
    private func describeSides(of summary: JSONObject) {
        guard !output.json, case .array(let sides)? = summary["sides"] else { return }
        for case .object(let side) in sides { Output.write("  \(side.conflictSide)", to: STDERR_FILENO) }
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

extension JSONObject {
    /// One of two stores in conflict, in a line.
    fileprivate var conflictSide: String {
        let path = PrintablePath(FilePath(bytes: path("path") ?? []) ?? "")
        var facts = ["\(string("role") ?? ""): \(path)"]
        if let modified = string("modified") { facts.append("modified \(modified)") }
        facts.append("\(ByteCount(integer("bytes") ?? 0))")
        if case .object(let rows)? = self["rows"] {
            let counts = rows.members.compactMap { table, count in
                if case .integer(1...) = count { "\(table) \(rows.integer(table) ?? 0)" } else { nil }
            }
            facts.append(counts.isEmpty ? "no rows" : "rows: \(counts.joined(separator: ", "))")
        }
        if let uuid = string("store_uuid") { facts.append("store \(uuid)") }
        if case .array(let models)? = self["model"] {
            let names = models.compactMap { if case .string(let name) = $0, !name.isEmpty { name } else { nil } }
            if !names.isEmpty { facts.append("model \(names.joined(separator: ", "))") }
        }
        return facts.joined(separator: "; ")
    }
}
