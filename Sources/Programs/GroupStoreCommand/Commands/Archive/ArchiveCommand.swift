import AgentProtocol
import ArgumentParser
import CommandSupport
import FoundationEssentials
import GroupContainers
import LinuxSystem
import SQLiteFormat
import StoreRelocation
import SystemPackage

struct ArchiveCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "archive",
        abstract: "List, show, restore and purge the stores that relocations and migrations have kept.",
        discussion: """
            A group container keeps what a relocation or a migration must not delete, and what --retire archive asks \
            for: the store that lost a conflict, the store as it was before a migration removed something, the \
            leftovers at a store's new name.
            """,
        subcommands: [
            ArchiveListCommand.self, ArchiveShowCommand.self, ArchiveRestoreCommand.self, ArchivePurgeCommand.self,
        ])
}

/// The group container whose archives a command is about.
struct ArchiveGroupArgument: ParsableArguments {
    @Argument(
        help: ArgumentHelp("The group container: its directory, or the group's identifier.", valueName: "group"),
        completion: .containers)
    var group: String

    /// The container's directory. Throws `RelocationFailure`.
    func path() throws(RelocationFailure) -> FilePath { try GroupDirectory.path(group) }

    /// Opens the container. Throws `RelocationFailure`.
    func container() throws -> GroupContainer { try Relocation.container(at: path()) }
}

/// An archived set named on the command line: its identifier or the beginning of it, or a store's name.
struct ArchiveArgument {
    let text: String

    init(_ text: String) { self.text = text }

    /// Returns the set. Throws `RelocationFailure` if there is none, and `CommandFailure` if there are several.
    func find(among sets: [ArchivedStore], in container: GroupContainer) throws -> ArchivedStore {
        if let exact = sets.first(where: { $0.id.rawValue == text }) { return exact }
        let bytes = ArgumentBytes.path(text).bytes
        let named = sets.filter { $0.entry.name?.bytes == bytes }
        let found = named.isEmpty ? sets.filter { $0.id.rawValue.hasPrefix(text) } : named
        guard let first = found.first else { throw RelocationFailure.noArchive(text, in: container) }
        guard found.count == 1 else {
            throw CommandFailure(
                .usage, code: "ambiguous", "\(found.count) archives are called \(PrintablePath(bytes: bytes))",
                reasons: found.map { "  \($0.line)" }, remedy: "name one by its identifier")
        }
        return first
    }
}

extension ArchivedStore {
    /// The members of the line of type `archive`.
    var json: JSONObject {
        var object: JSONObject = ["type": "archive", "id": .string(id.rawValue)]
        object.setPath("path", bytes: path.bytes)
        if let name = entry.name { object.setPath("name", bytes: name.bytes) }
        if let note = entry.note {
            object.setPath("from", bytes: note.from.path.bytes)
            object["at"] = .string(note.at.formatted(.iso8601))
            object["reason"] = .string(note.reason)
        }
        object["state"] = .string(state.rawValue)
        object["problem"] = problem.map { .string($0) }
        object["bytes"] = .integer(bytes)
        object["files"] = .integer(Int64(files.count))
        let restored = (entry.note?.restored ?? []).map { restoration in
            var place: JSONObject = ["at": .string(restoration.at.formatted(.iso8601))]
            place.setPath("to", bytes: restoration.to.path.bytes)
            return JSONValue.object(place)
        }
        if !restored.isEmpty { object["restored"] = .array(restored) }
        return object
    }

    /// The set in one line.
    var line: String {
        let name = entry.name.map { PrintablePath($0).description } ?? "?"
        let at = entry.note.map { "\(LocalTime($0.at.timeIntervalSince1970))" } ?? "?"
        let state = state == .complete ? "" : "  \(state.rawValue)"
        return "\(id)  \(name)  \(at)  \(ByteCount(bytes))\(state)"
    }

    /// The set in a few lines, without its files.
    var lines: [String] {
        var lines = [line]
        if let note = entry.note { lines.append("    from \(PrintablePath(note.from.path)): \(note.reason)") }
        if let problem { lines.append("    \(problem)") }
        for restoration in entry.note?.restored ?? [] {
            let at = LocalTime(restoration.at.timeIntervalSince1970)
            lines.append("    restored to \(PrintablePath(restoration.to.path)) \(at)")
        }
        return lines
    }
}

struct ArchiveListCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list",
        abstract: "List the archived stores: which, when, why, their sizes, and where they were.",
        discussion: """
            Example:
              groupstore archive list group.com.example.notes
            """)

    @OptionGroup var group: ArchiveGroupArgument
    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        try reporting(outputOptions) { output in
            let container = try group.container()
            let sets = try ArchivedStore.all(in: container)
            for set in sets { output.record(set.json, lines: set.lines) }
            let bytes = sets.reduce(0) { $0 + $1.bytes }
            var summary: JSONObject = [
                "type": "summary", "outcome": "listed", "archives": .integer(Int64(sets.count)),
                "bytes": .integer(bytes),
            ]
            summary.setPath("directory", bytes: container.directory.path.bytes)
            let count = Counted(sets.count, "archive")
            output.record(
                summary, sets.isEmpty ? "nothing is archived" : "\(count), \(ByteCount(bytes))")
        }
    }
}
