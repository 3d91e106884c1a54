import AgentProtocol
import ArgumentParser
import CommandSupport
import LinuxSystem
import RowShadow
import StoreWatching
import SystemPackage

struct RowsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "rows",
        abstract: "Keep, or remove, the copy of a store's pages from which 'watch --values' tells its rows.",
        subcommands: [RowsEnableCommand.self, RowsDisableCommand.self])
}

struct RowsEnableCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "enable",
        abstract: "Copy a store's pages for 'watch --direct --values'.",
        discussion: """
            'watch' makes the copy by itself, unless the store has more than 1 GiB and the file system can't clone it. \
            The copy is in the user's state directory. Nothing is written to the store or beside it.

            Example:
              groupstore rows enable Notes.sqlite
            """)

    @Argument(help: "The store's database file.", completion: .stores)
    var store: String

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        let output = Output(outputOptions)
        try reporting(output) {
            let (path, place) = try RowsPlace.of(store)
            let follower = try RowFollower(path, try place.takeSlot(epoch: nil), limit: .max)
            let shadow = follower.shadow
            try shadow.close()
            var summary: JSONObject = ["type": "summary", "outcome": "enabled", "bytes": .integer(shadow.size)]
            summary.setPath("path", bytes: shadow.path.bytes)
            output.record(summary, "rows come from \(PrintablePath(shadow.path)) (\(ByteCount(shadow.size)))")
        }
    }
}

struct RowsDisableCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "disable",
        abstract: "Remove the copies of a store's pages and the logs of its rows.",
        discussion: """
            Tokens of 'watch --values' end with them: whoever continues from one gets a reset.

            Example:
              groupstore rows disable Notes.sqlite
            """)

    @Argument(help: "The store's database file.", completion: .stores)
    var store: String

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        let output = Output(outputOptions)
        try reporting(output) {
            let (_, place) = try RowsPlace.of(store)
            guard try place.removeAll() == 0 else {
                throw CommandFailure(
                    .busy, code: "in_use", "a program tells rows from a copy in \(PrintablePath(place.path))",
                    remedy: "end 'groupstore watch' of the store, and try again")
            }
            output.record(
                ["type": "summary", "outcome": "disabled"], "removed what was in \(PrintablePath(place.path))")
        }
    }
}

/// The place of a store's shadows, by the command's argument.
private enum RowsPlace {
    static func of(_ argument: String) throws -> (FilePath, ShadowPlace) {
        let named = ArgumentBytes.path(argument).absolute(in: FilePath(workingDirectory()))
        guard let path = StorePlace(named)?.path else { throw DirectFeedError.notAStore(named) }
        return (path, ShadowPlace(of: path, stateDirectory: try DirectRows.stateDirectory()))
    }
}
