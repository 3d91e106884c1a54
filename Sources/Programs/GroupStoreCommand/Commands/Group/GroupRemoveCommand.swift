import AgentProtocol
import ArgumentParser
import CommandSupport
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import SystemPackage

struct GroupRemoveCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "remove",
        abstract: "Remove a group's directory, if nothing in it has content.",
        discussion: """
            A directory with a store, an archived store or any other file that isn't empty is left alone, and what it \
            holds is printed. --delete-stores removes all of that for good. A group whose files a program has open, \
            with something mounted in it, or with an unfinished relocation, is left alone in any case.

            The directory is renamed, looked at again, and put back if anything has come or changed. After an \
            interrupted removal, run the command again: it first puts back what is left, then does as it is told.

            Example:
              groupstore group remove group.com.example.notes --dry-run
            """)

    @OptionGroup var argument: GroupArgument

    @Flag(help: "Delete the group's stores, archives and other files too. They can't be brought back.")
    var deleteStores = false

    @Flag(help: "Assert that no program has the files open, where the file system can't prove it.")
    var assumeClosed = false

    @Flag(help: "Print what would be removed, and change nothing.")
    var dryRun = false

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        try reporting(outputOptions, changing: !dryRun) { output in
            if !dryRun, try restoreInterrupted(output) { return }
            let path = try argument.existingPath()
            let removal = try GroupRemoval(argument.identifier(), path)
            let shown = try removal.look()
            let items = removal.items(shown)
            for item in items where deleteStores || dryRun {
                var row: JSONObject = ["type": "content", "bytes": .integer(item.bytes)]
                row.setPath("path", bytes: item.path.bytes)
                output.record(row, "  \(item)")
            }
            guard items.isEmpty || deleteStores || dryRun else { throw removal.notEmpty(shown) }
            if !dryRun { try removal.run(shown, deletesContent: deleteStores, assumeClosed: assumeClosed) }
            summarize(items, path, output)
        }
    }

    /// Puts back what an interrupted removal of this group has left. Returns true if that was finished but for its
    /// records: then nothing else is to be done.
    private func restoreInterrupted(_ output: Output) throws -> Bool {
        let path = try argument.path()
        guard let name = path.lastComponent, let parent = try? Directory(GroupRemoval.parent(of: path)) else {
            return false
        }
        try removeUnfinishedRecord(name, in: parent)
        var interrupted = try InterruptedRemoval.all(of: name, in: parent)
        if try parent.status(name)?.kind == .directory,
            let own = try InterruptedRemoval.inside(parent.directory(name), in: parent)
        {
            interrupted.insert(own, at: 0)
        }
        var isFinished = try InterruptedRemoval.removeEmptyRecords(of: name, in: parent) && parent.status(name) == nil
        for removal in interrupted {
            guard let lock = try removal.lock() else {
                throw CommandFailure(
                    .busy, code: "busy", "another process is removing \(argument.group)",
                    remedy: "try again when that is done")
            }
            guard removal.directory != nil else {
                try removal.finish(lock)
                isFinished = try parent.status(name) == nil
                continue
            }
            let holder = try parent.status(name)?.identity
            guard holder == nil || holder == removal.directory?.identity else {
                note(
                    "an interrupted removal has left \(PrintablePath(removal.path)): "
                        + (try GroupArgument.continuation(of: argument.identifier(), at: path)), output)
                continue
            }
            try removal.putBack()
            isFinished = false
            note("put back \(PrintablePath(path)), whose removal was interrupted", output)
            withExtendedLifetime(lock) { _ in }
        }
        if isFinished { summarize([], path, output) }
        return isFinished
    }

    /// Removes the record of a removal that was killed while it wrote it.
    private func removeUnfinishedRecord(_ name: FilePath.Component, in parent: Directory) throws {
        guard try parent.status(name)?.kind == .directory else { return }
        let directory = try parent.directory(name)
        guard RemovalRecord.isUnfinished(in: directory),
            let lock = try GroupContainer(directory: directory).lock()
        else { return }
        try withExtendedLifetime(lock) { _ in try RemovalRecord.removeUnfinished(in: directory) }
    }

    private func note(_ text: String, _ output: Output) {
        output.record(["type": "note", "text": .string(text)], text)
    }

    private func summarize(_ items: [GroupInventory.Item], _ path: FilePath, _ output: Output) {
        let needsFlag = dryRun && !deleteStores && !items.isEmpty
        var summary: JSONObject = [
            "type": "summary", "outcome": dryRun ? needsFlag ? "not_empty" : "would_remove" : "removed",
            "group": .string(argument.group), "bytes": .integer(items.reduce(0) { $0 + $1.bytes }),
        ]
        summary.setPath("directory", bytes: path.bytes)
        var lines = [
            dryRun
                ? "\(PrintablePath(path)) would \(needsFlag ? "be removed only with --delete-stores" : "be removed")"
                : "removed \(PrintablePath(path))"
        ]
        let configured = (try? Configuration.standard(environment: ProcessVariables.all))?.group(argument.group)
        if configured?.isDiscovered == false {
            lines.append("the configuration still names \(argument.group): the agent waits for its directory")
        }
        output.record(summary, lines: lines)
    }
}
