import Foundation
import GroupStore

/// A widget that only receives events: it prints what happens to a shared store, and reads nothing itself. It links no
/// database.
///
///     NotesWidget group.com.example.notes Notes.sqlite
@main
struct NotesWidget {
    static func main() async {
        let arguments = CommandLine.arguments
        guard arguments.count == 3 else {
            say("usage: NotesWidget GROUP_ID STORE_NAME", to: .standardError)
            exit(64)
        }
        do {
            let container = try GroupContainer(identifier: arguments[1])
            let store = try SharedStore(arguments[2], in: container)
            for try await change in store.changes(reportingProgress: true) { show(change) }
        } catch {
            say("NotesWidget: \(error)", to: .standardError)
            exit(1)
        }
    }

    private static func show(_ change: StoreChange) {
        switch change {
        case .changed(let tables, let isComplete, _, _):
            say("changed: \(tables?.joined(separator: ", ") ?? "something")\(isComplete ? "" : ", maybe more")")
        case .branchChanged(let pid, _, _, _): say("process \(pid) has committed what only it can see")
        case .relocating(let holders, _):
            say("relocating, waiting for \(holders.count) programs")
        case .progress(let progress, _):
            say("\(progress.work): \(Int(progress.fraction * 100)) %, \(progress.activity)")
        case .relocated(_, let url, _): say("relocated to \(url.path)")
        case .migrated(let old, let new, _): say("migrated from \(old ?? "an unknown version") to \(new)")
        case .abandoned(let outcome, let message, _): say("not relocated: \(outcome): \(message)")
        case .hazard(let hazard, _): say("in danger: \(hazard.message): \(hazard.remedy)")
        case .hazardOver(let hazard, _): say("no longer in danger: \(hazard.code)")
        case .reset(let reason, _): say("reset (\(reason)): everything must be read again")
        case .disconnected: say("no agent for now")
        case .notServed(let message): say("not served: \(message)")
        case .connected: say("connected again")
        }
    }
}

/// Writes a line at once: `print` buffers its output unless it goes to a terminal.
private func say(_ line: String, to file: FileHandle = .standardOutput) { file.write(Data((line + "\n").utf8)) }
