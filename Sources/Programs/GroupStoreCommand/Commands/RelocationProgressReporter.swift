import AgentProtocol
import ArgumentParser
import CommandSupport
import FoundationEssentials
import Glibc
import GroupStoreAgent
import LinuxSystem
import SQLiteStore
import StoreRelocation
import SystemPackage

/// Reports a relocation: JSON lines, or text for people with a progress bar if standard error is a terminal.
final class RelocationProgressReporter {
    private let output: Output
    private let isTerminal = isatty(STDERR_FILENO) == 1
    private var copy: CopyProgress?
    private var lastReported: Int64 = 0
    private var lastWaiting: String?
    /// The last plan. A relocation that waits checks again and decides the same, which isn't reported again.
    private var lastPlan: String?
    private var lastMerge: MergeReport?

    private let migration: MigrationReporter

    init(_ output: Output) {
        self.output = output
        migration = MigrationReporter(output)
    }

    func report(_ event: RelocationEvent) {
        switch event {
        case .plan(let text, _):
            if isNewPlan(text) { emit(event, text) }
        case .recovered(let text), .note(let text): emit(event, text)
        case .waiting(let holders): waiting(holders, event)
        case .copied(let bytes, let total): copied(bytes, total)
        case .transforming(let fraction, let doing): migration.report(fraction, doing)
        case .published: clearBar()
        case .merging(let report): merging(report)
        }
    }

    /// Prints the plan of a merge, unless a repeated attempt has made the same one.
    private func merging(_ report: MergeReport) {
        guard lastMerge != report else { return }
        lastMerge = report
        clearBar()
        if output.json {
            for line in report.lines { output.record(line, "") }
        } else {
            for line in report.sentences { say(line) }
        }
    }

    /// Reports a message from an agent that performs the relocation.
    func relay(_ type: String, _ object: JSONObject) {
        if type == "plan", !isNewPlan(object.string("text") ?? "") { return }
        if type == "waiting", !isNewWait(object.objects("holders").map(FileHolder.init)) { return }
        if output.json {
            var line: JSONObject = ["type": .string(type)]
            for member in object.members where member.key != "id" { line[member.key] = member.value }
            return output.record(line, "")
        }
        switch (type, object["text"], object["bytes"], object["of"]) {
        case ("progress", _, .integer(let bytes)?, .integer(let total)?): copied(bytes, total)
        case ("fault", _, _, _):
            if let fault = InvalidContent.Fault(object) { output.record([:], "fault: \(fault.sentence)") }
        case ("waiting", _, _, _): say("waiting for \(object.objects("holders").map(FileHolder.init).names)")
        case (_, .string(let text)?, _, _): say(text)
        default: break
        }
    }

    /// Prints an agent's summary. Throws the exit code if it isn't a success.
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
            return output.record(summary.addingNearest, sentence(summary))
        }
        if output.json { Output.write(json: summary) }
        Output.write(
            "groupstore: \(error.string("message") ?? "") (\(error.string("hint") ?? ""))", to: STDERR_FILENO)
        describeSides(of: summary)
        throw ExitCode(Int32(clamping: error.integer("exit") ?? Int64(ExitStatus.inputOutput.rawValue)))
    }

    private func waiting(_ holders: [FileHolder], _ event: RelocationEvent) {
        if isNewWait(holders) { emit(event, "waiting for \(holders.names)") }
    }

    private func isNewPlan(_ text: String) -> Bool {
        defer { lastPlan = text }
        return lastPlan != text
    }

    private func isNewWait(_ holders: [FileHolder]) -> Bool {
        defer { lastWaiting = holders.names }
        return lastWaiting != holders.names
    }

    private func copied(_ bytes: Int64, _ total: Int64) {
        if output.json {
            guard bytes - lastReported >= 64 << 20 || bytes == total || bytes < lastReported else { return }
            lastReported = bytes
            emit(.copied(bytes: bytes, of: total), "")
        } else if isTerminal, !output.quiet {
            if copy == nil { copy = CopyProgress(total: total) }
            copy?.show(bytes)
        }
    }

    private func clearBar() {
        copy?.clear()
        copy = nil
        migration.finish()
    }

    /// Prints an event: text for people on standard error, JSON for scripts on standard output.
    private func emit(_ event: RelocationEvent, _ text: String) {
        clearBar()
        if output.json {
            if let line = event.line { output.record(line.members.typed(line.type), "") }
        } else {
            say(text)
        }
    }

    private func say(_ text: String) { if !output.quiet { Output.write(text, to: STDERR_FILENO) } }

    /// Prints the summary with `further` members.
    func finish(_ summary: RelocationSummary, seconds: Double, dryRun: Bool, _ further: JSONObject = [:]) {
        clearBar()
        for note in summary.notes { report(.note(note)) }
        var members = summary.members(seconds: seconds, dryRun: dryRun).typed("summary")
        for (key, value) in further.members { members[key] = value }
        output.record(members.addingNearest, sentence(members))
    }

    /// Returns the summary in words. The name of a source without a store may be mistyped.
    private func sentence(_ summary: JSONObject) -> String {
        guard let missing = summary.missingSource, summary.bool("dry_run") != true else {
            return RelocationSentence.text(of: summary)
        }
        let isInGroup = summary.path("to").flatMap { FilePath(bytes: $0) }.flatMap { FileStatus(following: $0) } != nil
        let used = isInGroup ? "; the group has \(summary.printablePath("to"))" : ""
        return "nothing to do: \(missing.sentence)\(used)"
    }

    /// Throws `RelocationFailure` if the relocation found nothing to do because there is no store at either place: the
    /// name is probably mistyped.
    func checkStoreExists(_ summary: JSONObject) throws(RelocationFailure) {
        guard let missing = summary.missingSource, let group = summary.path("to").flatMap({ FilePath(bytes: $0) }),
            !Relocation.mayBeStore(group)
        else { return }
        throw RelocationFailure(
            .unusablePlace, code: "no_store",
            "\(missing.fact), and no store at \(PrintablePath(group))\(missing.suggestion)",
            remedy: missing.nearest.map { "name it: \($0.shellWord)" }
                ?? "name the store's file, or leave this out if there is none yet")
    }

    func fail(_ failure: RelocationFailure, source: FilePath, seconds: Double) {
        clearBar()
        var summary = failure.members(source: source, seconds: seconds).typed("summary")
        if failure.code == "no_store", let nearest = MissingSource(source)?.nearest {
            summary.setPath("nearest", bytes: nearest.bytes)
        }
        if output.json { Output.write(json: summary) }
        Output.write("groupstore: \(failure.message) (\(failure.remedy))", to: STDERR_FILENO)
        describeSides(of: summary)
    }

    /// Prints what a person needs to choose between two stores in conflict.
    private func describeSides(of summary: JSONObject) {
        guard !output.json, case .array(let sides)? = summary["sides"] else { return }
        for case .object(let side) in sides { Output.write("  \(side.conflictSide)", to: STDERR_FILENO) }
    }
}

extension JSONObject {
    /// The source of a relocation that found nothing to do, if no file has its name.
    fileprivate var missingSource: MissingSource? {
        guard string("outcome") == RelocationSummary.Outcome.nothingToDo.rawValue else { return nil }
        return path("from").flatMap { FilePath(bytes: $0) }.flatMap(MissingSource.init)
    }

    /// Returns the summary with the file that may be meant by a mistyped source.
    fileprivate var addingNearest: JSONObject {
        var summary = self
        if let nearest = missingSource?.nearest { summary.setPath("nearest", bytes: nearest.bytes) }
        return summary
    }

    /// Returns the members preceded by a `type`.
    func typed(_ type: String) -> JSONObject {
        var object: JSONObject = ["type": .string(type)]
        for (key, value) in members { object[key] = value }
        return object
    }
}

extension JSONObject {
    /// One of two stores in conflict, as a line.
    fileprivate var conflictSide: String {
        let path = PrintablePath(FilePath(bytes: path("path") ?? []) ?? "")
        var facts = ["\(string("role") ?? ""): \(path)"]
        if let modified = string("modified") { facts.append("modified \(LocalTime(modified))") }
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

extension FileHolder {
    /// Creates a holder from its wire form.
    init(_ object: JSONObject) { self.init(StoreEvent.Holder(object)) }
}
