import AgentProtocol
import ArgumentParser
import CommandSupport
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import SystemPackage

struct GroupCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "group",
        abstract: "Create, list, show and remove group containers, the directories that apps share.",
        subcommands: [
            GroupCreateCommand.self, GroupListCommand.self, GroupShowCommand.self, GroupRemoveCommand.self,
        ])
}

/// A group named on the command line, and its directory.
struct GroupArgument: ParsableArguments {
    @Argument(help: "The group's identifier, such as group.com.example.notes.", completion: .groups)
    var group: String

    @Option(
        help: "The group's directory, if it is neither the configured nor the standard one.", completion: .directory)
    var directory: String?

    /// Returns the identifier. Throws `CommandFailure`.
    func identifier() throws -> GroupIdentifier {
        guard let identifier = GroupIdentifier(group) else {
            throw CommandFailure(
                .usage, code: "bad_identifier", "\(group) isn't a group identifier",
                remedy: "use letters, digits, '.', '-' and '_', not beginning with '.'")
        }
        return identifier
    }

    /// Returns the named directory, else the configured one, else the standard one. It may not exist.
    func path() throws -> FilePath {
        let identifier = try identifier()
        if let directory { return ArgumentBytes.path(directory).absolute(in: FilePath(workingDirectory())) }
        guard let path = try identifier.standardDirectory(environment: ProcessVariables.all) else {
            throw CommandFailure(
                .configuration, code: "no_container", "the directory of \(identifier) is unknown: HOME is not set",
                remedy: "set HOME or GROUPSTORE_CONTAINERS, or name it with --directory")
        }
        return path
    }

    /// The command that makes the group in this place.
    private var creation: String {
        guard let identifier = GroupIdentifier(group) else { return "name a group" }
        let place = directory.map { " --directory \(ArgumentBytes.path($0).shellWord)" } ?? ""
        return NamedGroup.creation(of: identifier) + place
    }

    /// Returns the directory, which must exist.
    func existingPath() throws -> FilePath {
        let path = try path()
        guard FileStatus(following: path)?.kind == .directory else {
            if let name = path.lastComponent, let parent = try? Directory(GroupRemoval.parent(of: path)),
                let interrupted = try InterruptedRemoval.all(of: name, in: parent).first
            {
                throw CommandFailure(
                    .conflict, code: "interrupted",
                    "a removal of \(group) was interrupted: what is left is in \(PrintablePath(interrupted.path))",
                    remedy: try Self.continuation(of: identifier(), at: path))
            }
            throw CommandFailure(
                .inputOutput, code: NamedGroup.missingCode,
                try NamedGroup.missing(identifier(), orAt: "directory \(PrintablePath(path))"),
                remedy: creation)
        }
        return path
    }
}

struct GroupCreateCommand: ProcIndependentCommand {
    static let configuration = CommandConfiguration(
        commandName: "create",
        abstract: "Create a group's directory, with permissions for its owner alone.",
        discussion: """
            The directory is that of the agent's standard configuration, else app-groups/ID under $XDG_DATA_HOME or \
            ~/.local/share. It gets mode 0700, as do its missing parents. If it exists, nothing is changed. --owner and \
            --mode share it with other users, or give it to a service's user.

            Example:
              groupstore group create group.com.example.notes
              groupstore group create group.com.example.net --directory /srv/net --owner vnstat --mode 2770
            """)

    @OptionGroup var argument: GroupArgument

    @Option(
        help: ArgumentHelp("The directory's owner, and its group (default: the owner's).", valueName: "user[:group]"))
    var owner: String?

    @Option(help: ArgumentHelp("The directory's mode, such as 0700 (default) or 2770.", valueName: "mode"))
    var mode: String?

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        try reporting(outputOptions, changing: true) { output in
            let path = try argument.path()
            let rights = try GroupRights(owner: owner, mode: mode)
            try rights?.check(path)
            let isNew = try GroupContainer.create(path)
            if isNew { try rights?.give(to: path) }
            var summary: JSONObject = [
                "type": "summary", "outcome": isNew ? "created" : "exists", "group": .string(argument.group),
            ]
            summary.setPath("directory", bytes: path.bytes)
            output.record(summary, "\(isNew ? "created" : "exists already:") \(PrintablePath(path))")
        }
    }
}

struct GroupListCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list",
        abstract: "List the configured groups and the group containers in the standard place.",
        discussion: """
            Example:
              groupstore group list
            """)

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        try reporting(outputOptions) { output in
            let environment = ProcessVariables.all
            var configuration = try Configuration.standard(environment: environment) ?? Configuration()
            configuration.containers = GroupIdentifier.defaultDirectories(environment: environment)
            configuration.discoverGroups()
            var table = TextTable()
            for group in configuration.groups {
                let contents = try? GroupDirectoryStatus(group.directory)
                var row: JSONObject = ["type": "group", "group": .string(group.identifier.rawValue)]
                row.setPath("directory", bytes: group.directory.bytes)
                row["exists"] = .bool(FileStatus(following: group.directory) != nil)
                row["configured"] = .bool(!group.isDiscovered)
                row["stores"] = contents.map { .integer(Int64($0.storeCount)) }
                row["apps"] = contents.map { .integer(Int64($0.appCount)) }
                if output.json { output.record(row, "") }
                let state =
                    contents.map(\.counts)
                    ?? (FileStatus(following: group.directory) == nil ? "not there yet" : "unreadable")
                table.add(
                    .text(group.identifier.rawValue), .text(PrintablePath(group.directory).description), .text(state),
                    .text(group.isDiscovered ? "" : "configured"))
            }
            let count = configuration.groups.count
            output.record(
                ["type": "summary", "outcome": "listed", "groups": .integer(Int64(count))],
                lines: count == 0 ? ["there are no groups (groupstore group create ID)"] : table.lines())
        }
    }
}

struct GroupShowCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show",
        abstract: "Show a group's directory, its stores, past relocations, and configuration.",
        discussion: """
            Example:
              groupstore group show group.com.example.notes
            """)

    @OptionGroup var argument: GroupArgument
    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        try reporting(outputOptions) { output in
            let path = try argument.existingPath()
            let contents = try GroupDirectoryStatus(path)
            for row in contents.rows { output.record(row.object, lines: row.lines) }
            let configured = try Configuration.standard(environment: ProcessVariables.all)?.group(argument.group)
            for store in configured?.stores ?? [] {
                var row: JSONObject = ["type": "configured"]
                row.setPath("name", bytes: store.name.database.bytes)
                row["legacy"] = .array(
                    store.legacy.map { path in
                        var object = JSONObject()
                        object.setPath("path", bytes: path.bytes)
                        return .object(object)
                    })
                let legacy = store.legacy.map { "    legacy \(PrintablePath($0))" }
                output.record(row, lines: ["  configured: \(PrintablePath(store.name.database))"] + legacy)
            }
            for app in configured?.apps ?? [] {
                var row: JSONObject = ["type": "configured_app"]
                row.setPath("name", bytes: app.name.bytes)
                row.setPath("path", bytes: app.source.bytes)
                output.record(row, "  configured: app \(PrintablePath(app.source)) to \(PrintablePath(app.name))")
            }
            let status = FileStatus(following: path)
            var summary: JSONObject = ["type": "summary", "outcome": "read", "group": .string(argument.group)]
            summary.setPath("directory", bytes: path.bytes)
            summary["stores"] = .integer(Int64(contents.storeCount))
            summary["apps"] = .integer(Int64(contents.appCount))
            summary["interrupted"] = .bool(contents.isInterrupted)
            summary["mode"] = status.map { .string("0" + String($0.permissions, radix: 8)) }
            summary["owner"] = status.map { .integer(Int64($0.owner)) }
            let mode = status.map { "mode 0\(String($0.permissions, radix: 8)), owner \($0.owner)" } ?? ""
            output.record(summary, "\(contents.counts), \(mode)")
        }
    }
}
