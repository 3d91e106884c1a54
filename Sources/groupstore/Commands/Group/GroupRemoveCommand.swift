import AgentProtocol
import ArgumentParser
import CommandSupport
import Glibc
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
            holds is printed. --delete-stores removes all of that for good. A group whose stores a program has open, or \
            with an unfinished relocation, is left alone in any case.
            """)

    @OptionGroup var argument: GroupArgument

    @Flag(help: "Delete the group's stores, archives and other files too. They can't be brought back.")
    var deleteStores = false

    @Flag(help: "Print what would be removed, and change nothing.")
    var dryRun = false

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        let output = Output(outputOptions)
        try reporting(output, changing: !dryRun) {
            let path = try argument.existingPath()
            let removal = try GroupRemoval(argument.identifier(), path)
            for item in removal.items {
                var row: JSONObject = ["type": "content", "bytes": .integer(item.bytes)]
                row.setPath("path", bytes: item.path.bytes)
                if deleteStores || dryRun { output.record(row, "  \(item)") }
            }
            guard removal.items.isEmpty || deleteStores || dryRun else {
                throw CommandFailure(
                    .conflict, code: "not_empty", "\(argument.group) is not removed: \(PrintablePath(path)) holds",
                    reasons: removal.items.map { "  \($0)" },
                    remedy:
                        "move it away first; groupstore group remove \(argument.group) --delete-stores deletes it for good"
                )
            }
            if !dryRun { try removal.run() }
            summarize(removal, path, output)
        }
    }

    private func summarize(_ removal: GroupRemoval, _ path: FilePath, _ output: Output) {
        let needsFlag = dryRun && !deleteStores && !removal.items.isEmpty
        var summary: JSONObject = [
            "type": "summary", "outcome": dryRun ? needsFlag ? "not_empty" : "would_remove" : "removed",
            "group": .string(argument.group), "bytes": .integer(removal.items.reduce(0) { $0 + $1.bytes }),
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

/// The removal of a group's directory.
struct GroupRemoval {
    /// A file or directory with content, which is deleted only if somebody asks for that.
    struct Item: CustomStringConvertible {
        let path: FilePath
        let bytes: Int64
        var description: String { "\(PrintablePath(path))  \(ByteCount(bytes))" }
    }

    private let group: GroupIdentifier
    private let parent: Directory
    private let name: FilePath.Component
    private let directory: Directory
    /// Everything in the directory with content, archived stores too; in the order of the paths.
    let items: [Item]

    /// Reads the directory. Changes nothing.
    init(_ group: GroupIdentifier, _ path: FilePath) throws {
        guard let name = path.lastComponent else { throw SystemError("rmdir", .invalidArgument, path: path) }
        self.group = group
        self.name = name
        parent = try Directory(path.removingLastComponent())
        guard try parent.status(name)?.kind == .directory else {
            throw CommandFailure(
                .inputOutput, code: "not_a_directory", "\(PrintablePath(path)) is a symbolic link",
                remedy: "remove the link with rm, or name its target with --directory")
        }
        directory = try parent.directory(name)
        let container = GroupContainer(directory: directory)
        guard try container.journals().isEmpty else {
            throw CommandFailure(
                .busy, code: "interrupted", "a relocation in \(PrintablePath(path)) is under way or was interrupted",
                remedy: "run: groupstore recover \(PrintablePath(path))")
        }
        var items: [Item] = []
        for name in try directory.names() where name != GroupContainer.bookkeepingName {
            items.append(Item(path: path.appending(name), bytes: try Self.size(of: name, in: directory)))
        }
        if let bookkeeping = try container.existingBookkeeping() {
            // The lock, the receipts and the claims are records of stores, not stores.
            for name in try bookkeeping.names() where Self.recordNames.contains(name.string) == false {
                let size = try Self.size(of: name, in: bookkeeping)
                items.append(Item(path: bookkeeping.path.appending(name), bytes: size))
            }
        }
        self.items = items.filter { $0.bytes > 0 }.sorted {
            $0.path.bytes.lexicographicallyPrecedes($1.path.bytes)
        }
    }

    private static let recordNames: Set<String> = ["lock", "receipts", "claims"]

    /// Returns the bytes in a file, or in all files of a directory. A link counts as nothing: its target stays.
    private static func size(of name: FilePath.Component, in directory: Directory) throws(SystemError) -> Int64 {
        guard let status = try directory.status(name) else { return 0 }
        switch status.kind {
        case .regular: return status.size
        case .symbolicLink, .other: return 0
        case .directory:
            let inside = try directory.directory(name)
            var sum: Int64 = 0
            for name in try inside.names() { sum += try size(of: name, in: inside) }
            return sum
        }
    }

    /// Removes the directory. First it loses its name, so that no program can open a store while the files go, and a
    /// process that dies meanwhile leaves no half a group.
    func run() throws {
        let container = GroupContainer(directory: directory)
        guard let lock = try container.lock() else {
            throw CommandFailure(
                .busy, code: "busy", "\(group) is in use: \(container.lockHolder().firstLine)",
                remedy: "try again when that is done")
        }
        try checkClosed()
        guard let hidden = FilePath.Component(bytes: Array(".\(group).removed".utf8)) else { return }
        // Left by a removal that was killed.
        try parent.removeTree(hidden)
        try parent.rename(name, to: hidden, in: parent, .refuse)
        do {
            // Somebody may have opened a store since.
            try checkClosed()
        } catch {
            try parent.rename(hidden, to: name, in: parent, .refuse)
            throw error
        }
        try parent.removeTree(hidden)
        try parent.synchronize()
        withExtendedLifetime(lock) { _ in }
    }

    /// Throws if a program has a file of the group open. The agent, which follows stores, lets go of what is gone.
    private func checkClosed() throws {
        FileLease.ignoreBreakSignal()
        let agent = (try? AgentStatus(environment: ProcessVariables.all))?.summary.integer("pid")
        for name in try directory.names() {
            guard let status = try directory.status(name), status.kind == .regular,
                let file = try? directory.open(name, flags: O_RDONLY), !Self.isGranted(file)
            else { continue }
            let holders = FileHolder.of(status.identity)
            guard holders.isEmpty || holders.contains(where: { Int64($0.pid) != agent }) else { continue }
            throw CommandFailure(
                .busy, code: "busy",
                "\(PrintablePath(directory.path.appending(name))) is open in \(holders.names)",
                remedy: "close it there, then run this again")
        }
    }

    /// Tries for 10 ms: a lease can be refused for an instant after the last close.
    private static func isGranted(_ file: borrowing Descriptor) -> Bool {
        for _ in 0..<100 {
            if FileLease.isGranted(file) { return true }
            pause(.microseconds(100))
        }
        return false
    }
}

extension String {
    fileprivate var firstLine: String { split(separator: "\n").first.map(String.init) ?? self }
}
