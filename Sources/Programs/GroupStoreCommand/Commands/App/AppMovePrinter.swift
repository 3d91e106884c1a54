import AgentProtocol
import AppRelocation
import CommandSupport
import Glibc
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import StoreRelocation
import SystemPackage

/// Prints a directory's move: JSON lines, or text for people with a progress bar if standard error is a terminal.
final class AppMovePrinter {
    private let output: Output
    private let isTerminal = isatty(STDERR_FILENO) == 1
    private var copy: CopyProgress?
    private var lastReported: Int64 = 0
    private var stopped: [ManagedProgram] = []
    private var started: [ManagedProgram] = []

    init(_ output: Output) { self.output = output }

    func report(_ event: AppMoveEvent) {
        switch event {
        case .waiting(let holders):
            emit(RelocationEvent.waiting(for: holders).line?.members, "waiting", "waiting for \(holders.names)")
        case .recovered(let text): emit(["text": .string(text)], "recovered", text)
        case .note(let text): emit(["text": .string(text)], "note", text)
        case .stopping(let programs):
            stopped += programs
            emit(["programs": programs.json], "stopping", "stopping \(programs.list)")
        case .started(let programs):
            started += programs
            emit(["programs": programs.json], "started", "started \(programs.startedAgain.list)")
        case .copied(let files, let allFiles, let bytes, let allBytes):
            copied(files, allFiles, bytes, allBytes)
        }
    }

    private func copied(_ files: Int, _ allFiles: Int, _ bytes: Int64, _ allBytes: Int64) {
        if output.json {
            guard bytes - lastReported >= 64 << 20 || files == allFiles || bytes < lastReported else { return }
            lastReported = bytes
            let line: JSONObject = [
                "files": .integer(Int64(files)), "of_files": .integer(Int64(allFiles)), "bytes": .integer(bytes),
                "of": .integer(allBytes),
            ]
            emit(line, "progress", "")
        } else if isTerminal, !output.quiet {
            if copy == nil { copy = CopyProgress(total: allBytes) }
            copy?.show(bytes)
        }
    }

    private func clearBar() {
        copy?.clear()
        copy = nil
    }

    private func emit(_ members: JSONObject?, _ type: String, _ text: String) {
        clearBar()
        if output.json {
            output.record((members ?? [:]).typed(type), "")
        } else if !output.quiet {
            Output.write(text, to: STDERR_FILENO)
        }
    }

    // MARK: - The end

    func finish(_ summary: AppMoveSummary, seconds: Double) {
        clearBar()
        for note in summary.notes { report(.note(note)) }
        show(summary.rewritten)
        summary.left.forEach(show)
        for table in summary.checked {
            var line: JSONObject = ["type": "check", "table": .string(table.check.table), "rows": .integer(table.rows)]
            line.setPath("store", bytes: table.check.store.bytes)
            let place = "\(PrintablePath(table.check.store)): \(table.check.table)"
            output.record(line, "\(place): \(Counted(Int(table.rows), "row")) as before")
        }
        var members: JSONObject = ["type": "summary", "outcome": .string(summary.outcome.rawValue)]
        members.setPath("from", bytes: summary.from.bytes)
        members.setPath("to", bytes: summary.to.bytes)
        if let method = summary.method { members["method"] = .string(method.rawValue) }
        if let contents = summary.contents { members.add(contents) }
        if summary.resumedFiles > 0 { members["resumed_files"] = .integer(Int64(summary.resumedFiles)) }
        if !summary.notes.isEmpty { members["notes"] = .array(summary.notes.map { .string($0) }) }
        if !summary.rewritten.isEmpty {
            members["rewritten"] = .integer(Int64(summary.rewritten.reduce(0) { $0 + $1.count }))
        }
        if !summary.left.isEmpty { members["left"] = .integer(Int64(summary.left.reduce(0) { $0 + $1.count })) }
        if !stopped.isEmpty { members["stopped"] = stopped.json }
        if !started.isEmpty { members["started"] = started.json }
        members["seconds"] = .number(seconds)
        if summary.outcome == .nothingToUndo { members["hint"] = .string(Self.search(summary.to)) }
        output.record(members, sentence(summary))
    }

    private func sentence(_ summary: AppMoveSummary) -> String {
        let (from, to) = (PrintablePath(summary.from), PrintablePath(summary.to))
        let size = summary.contents.map { ", \($0.sentence)" } ?? ""
        let method = summary.method.map { " (\($0.rawValue)\(size))" } ?? ""
        return switch summary.outcome {
        case .moved: "moved \(from) to \(to)\(method)"
        case .undone: "moved \(from) back to \(to)\(method)"
        case .alreadyMoved: "\(from) is at \(to) already"
        case .nothingToUndo: Self.nothingToUndo(summary.to)
        }
    }

    private static func nothingToUndo(_ place: FilePath) -> String {
        "nothing is left to undo: \(PrintablePath(place)) is "
            + (FileStatus(following: place) == nil ? "absent" : "a directory")
            + ", and no move of it is recorded (\(search(place)))"
    }

    /// Returns a hint with the command that prints where a directory is now, if something has taken the link's place:
    /// the record lies beside the new place, which may be anywhere.
    private static func search(_ place: FilePath) -> String {
        // A path with other bytes has another spelling in JSON.
        let isPlain = place.utf8?.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x22 && $0 != 0x5C } ?? false
        let isOfPlace = "-exec grep -qF \(ShellText.word(Array("\"source\" : \"\(place.utf8 ?? "")\"".utf8))) {} ';' "
        return "if a move's link was removed or replaced, undo the move by its new path, which this finds: "
            + "find / -path '*/.groupstore/app-receipts/*.json' \(isPlain ? isOfPlace : "")"
            + "-exec grep -hF '\"destination\"' {} +"
    }

    private func show(_ columns: [RewrittenColumn]) {
        for column in columns {
            var line: JSONObject = ["type": "rewrite"]
            line.setPath("store", bytes: column.store.bytes)
            line["table"] = .string(column.table)
            line["column"] = .string(column.column)
            line["count"] = .integer(Int64(column.count))
            line["samples"] = .array(
                column.samples.map { .object(["old": .string($0.old), "new": .string($0.new)]) })
            let place = "\(PrintablePath(column.store)): \(column.table).\(column.column)"
            let samples = column.samples.map { "  \($0.old) -> \($0.new)" }
            output.record(line, lines: ["\(place): \(Counted(column.count, "path"))"] + samples)
        }
    }

    private func show(_ left: LeftCells) {
        var line: JSONObject = ["type": "left"]
        line.setPath("store", bytes: left.store.path.bytes)
        line["table"] = .string(left.table)
        line["column"] = .string(left.column)
        line["count"] = .integer(Int64(left.count))
        line["reason"] = .string(left.reason.rawValue)
        let place = "\(PrintablePath(left.store.path)): \(left.table).\(left.column)"
        output.record(line, "\(place): \(Counted(left.count, "path")) left as found: \(left.reason.words)")
    }

    /// Prints what would be started again.
    func show(_ stopped: StoppedPrograms) {
        let programs = stopped.startable
        if !programs.isEmpty {
            output.record(
                ["type": "stopped", "programs": programs.json], "to be started: \(programs.startedAgain.list)")
        }
        if let refusal = stopped.refusal { output.record(["type": "note", "text": .string(refusal)], refusal) }
    }

    func show(_ preview: AppPreview) {
        let contents = preview.contents
        for store in contents.stores ?? [] {
            var line: JSONObject = ["type": "store"]
            line.setPath("path", bytes: store.bytes)
            output.record(line, "store: \(PrintablePath(store))")
        }
        show(preview.rewritten)
        for note in preview.notes { output.record(["type": "note", "text": .string(note)], note) }
        var members: JSONObject = [
            "type": "summary", "outcome": .string(preview.outcome.rawValue), "dry_run": true,
        ]
        members.setPath("from", bytes: preview.from.bytes)
        members.setPath("to", bytes: preview.to.bytes)
        let (from, to) = (PrintablePath(preview.from), PrintablePath(preview.to))
        let sentence: String
        switch preview.outcome {
        case .alreadyMoved: return output.record(members, "\(from) is at \(to) already")
        case .nothingToUndo:
            members["hint"] = .string(Self.search(preview.to))
            return output.record(members, Self.nothingToUndo(preview.to))
        case .wouldMove: sentence = "would move \(from) to \(to)"
        case .wouldUndo: sentence = "would move \(from) back to \(to)"
        }
        members["method"] = .string(preview.method.rawValue)
        members.add(contents)
        let waiting = RelocationEvent.waiting(for: preview.holders).line?.members["holders"]
        members["holders"] = preview.holders.isEmpty ? nil : waiting
        if !preview.stopped.isEmpty { members["stopped"] = preview.stopped.json }
        let use = preview.holders.isEmpty ? "" : "; in use by \(preview.holders.list)"
        let stops = preview.stopped.isEmpty ? "" : ", after stopping \(preview.stopped.list), which is started again"
        output.record(members, "\(sentence) (\(preview.method.rawValue), \(contents.sentence))\(use)\(stops)")
    }

    func fail(_ failure: RelocationFailure, source: FilePath, seconds: Double) {
        clearBar()
        if output.json { Output.write(json: failure.members(source: source, seconds: seconds).typed("summary")) }
        Output.write("groupstore: \(failure.message) (\(failure.remedy))", to: STDERR_FILENO)
    }
}

extension [ManagedProgram] {
    var json: JSONValue {
        .array(
            map { program in
                var line: JSONObject = ["manager": .string(program.manager.rawValue)]
                if let user = program.user { line["user"] = .integer(Int64(user)) }
                line["name"] = .string(program.name)
                line["starts"] = .bool(program.isStartedAgain)
                return .object(line)
            })
    }
}

extension AppContents {
    fileprivate var sentence: String {
        let size = bytes.map { ", \(ByteCount($0))" } ?? ""
        let count = stores.map { ", \(Counted($0.count, "store"))" } ?? ""
        return "\(Counted(files, "file"))\(count)\(size)"
    }
}

extension LeftCells.Reason {
    fileprivate var words: String {
        switch self {
        case .store: "the store is gone, or can't be opened"
        case .table: "the table is gone, or has another name"
        case .column: "the column is gone, or has another name"
        case .ambiguous: "the table has no key, and other rows have the same value"
        case .changed: "the program has changed it, or removed its row"
        }
    }
}

extension JSONObject {
    fileprivate mutating func add(_ contents: AppContents) {
        self["files"] = .integer(Int64(contents.files))
        self["directories"] = .integer(Int64(contents.directories))
        if let bytes = contents.bytes { self["bytes"] = .integer(bytes) }
        if let stores = contents.stores { self["stores"] = .integer(Int64(stores.count)) }
    }
}
