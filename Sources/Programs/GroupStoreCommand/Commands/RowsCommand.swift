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
        abstract: "Keep, show or remove the copy of a store's pages from which 'watch --values' tells its rows.",
        subcommands: [RowsEnableCommand.self, RowsShowCommand.self, RowsDisableCommand.self])
}

struct RowsEnableCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "enable",
        abstract: "Copy a store's pages for 'watch --direct --values'.",
        discussion: """
            'watch' makes the copy by itself, unless the store has more than 1 GiB and the file system can't clone it. \
            The copy is in the user's state directory. Nothing is written to the store or beside it.

            --dry-run says what it takes: disk space, and the time that is estimated from copying a part of the store \
            to a file without a name.

            Example:
              groupstore rows enable Notes.sqlite --dry-run
            """)

    @Argument(help: "The store's database file.", completion: .stores)
    var store: String

    @Flag(help: "Only say how much space and time the copy takes.")
    var dryRun = false

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        try reporting(outputOptions) { output in
            let rows = try RowsPlace(store)
            let (path, place) = (rows.store, rows.own)
            if !dryRun { try place.removeUnusable() }
            let estimate = try ShadowEstimate(of: path, in: place, measures: dryRun)
            guard estimate.fits else {
                throw CommandFailure(
                    .inputOutput, code: "no_space",
                    "\(PrintablePath(place.path)) has \(ByteCount(estimate.available)) left, and a copy of "
                        + "\(PrintablePath(path)) has \(ByteCount(estimate.size))",
                    remedy: "free space there, or set XDG_STATE_HOME to a directory with more")
            }
            if dryRun { return describe(estimate, place, output) }
            let slot = try place.takeSlot(epoch: nil)
            let follower = try RowFollower(path, slot, limit: .max, within: .seconds(30), readsMap: false)
            DirectRows.sayDamage(of: follower, output)
            let shadow = follower.shadow
            try shadow.close()
            var summary: JSONObject = ["type": "summary", "outcome": "enabled", "bytes": .integer(shadow.size)]
            summary.setPath("path", bytes: shadow.path.bytes)
            output.record(summary, "rows come from \(PrintablePath(shadow.path)) (\(ByteCount(shadow.size)))")
        }
    }

    private func describe(_ estimate: ShadowEstimate, _ place: ShadowPlace, _ output: Output) {
        let measurement = estimate.measurement
        var summary: JSONObject = [
            "type": "summary", "outcome": "planned", "bytes": .integer(estimate.size),
            "available": .integer(Int64(clamping: estimate.available)),
            "log_limit": .integer(ShadowEstimate.logLimit),
            "reflink": estimate.isCloned.map { .bool($0) } ?? .null,
            "seconds": measurement.map { .number($0.seconds) } ?? .null,
        ]
        summary.setPath("path", bytes: place.path.bytes)
        let way = estimate.isCloned == true ? "a clone, which takes space only as the store changes" : "a copy"
        var time = "not estimated: this file system has no files without names"
        if let measurement {
            let tenths = Int64((measurement.seconds * 10).rounded(.up))
            time = "about \(tenths / 10).\(tenths % 10) s, by the measure of \(ByteCount(measurement.part))"
        }
        var table = TextTable()
        table.add(.text("place"), .text("\(PrintablePath(place.path))"))
        table.add(.text("pages"), .text("\(ByteCount(estimate.size)), \(way)"))
        table.add(.text("log"), .text("grows to about \(ByteCount(ShadowEstimate.logLimit))"))
        table.add(.text("free"), .text("\(ByteCount(estimate.available))"))
        table.add(.text("time"), .text(time))
        output.record(summary, lines: table.lines())
    }
}

struct RowsDisableCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "disable",
        abstract: "Remove the copies of a store's pages and the logs of its rows.",
        discussion: """
            Tokens of 'watch --values' end with them: whoever continues from one gets a reset. The store may be gone; \
            'groupstore rows show' lists those that have left copies.

            Example:
              groupstore rows disable Notes.sqlite
            """)

    @Argument(help: "The store's database file. It may be gone.", completion: .stores)
    var store: String

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        try reporting(outputOptions) { output in
            let rows = try RowsPlace(store)
            // The places may be there without a store, or the store without a copy.
            let isKnown =
                try FileStatus(following: rows.store) != nil || rows.own.exists() || rows.agents(for: "disable") != nil
            guard isKnown else {
                throw CommandFailure(
                    .inputOutput, code: "not_found",
                    "there is no store \(PrintablePath(rows.store)), and no copy of one",
                    remedy: "list the copies: groupstore rows show")
            }
            let own = try rows.own.removeAll()
            let removed = "removed \(ByteCount(own.bytes)) from \(PrintablePath(rows.own.path))"
            guard own.usedCount == 0 else {
                throw CommandFailure(
                    .busy, code: "in_use", "a program tells rows from a copy in \(PrintablePath(rows.own.path))",
                    reasons: own.bytes > 0 ? ["  \(removed), which no program used"] : [],
                    remedy: "end 'groupstore watch' of the store, and try again")
            }
            let agents = try rows.agents(for: "disable", after: removed)
            let agentsRemoval = try agents?.removeAll()
            if let agents, let agentsRemoval, agentsRemoval.usedCount > 0 {
                throw CommandFailure(
                    .busy, code: "in_use", "an agent tells rows from a copy in \(PrintablePath(agents.path))",
                    reasons: own.bytes > 0 ? ["  \(removed)"] : [],
                    remedy: "remove 'rows: true' from its configuration, reload it (SIGHUP), and try again")
            }
            let bytes = own.bytes + (agentsRemoval?.bytes ?? 0)
            var summary: JSONObject = ["type": "summary", "outcome": "disabled", "bytes": .integer(bytes)]
            summary.setPath("path", bytes: rows.own.path.bytes)
            let places = ([rows.own] + (agents.map { [$0] } ?? [])).map { "\(PrintablePath($0.path))" }
                .joined(separator: " and ")
            output.record(summary, "removed \(ByteCount(bytes)) from \(places)")
        }
    }
}

/// The places of a store's shadows, by the command's argument: a path or `GROUP_ID/NAME`.
struct RowsPlace {
    /// The absolute path of the database, which need not exist.
    let store: FilePath
    /// The place in the user's state directory.
    let own: ShadowPlace
    /// The place in the group's directory, where an agent follows the store.
    private let inGroup: ShadowPlace

    init(_ argument: String) throws {
        let given = ArgumentBytes.path(argument)
        var named = given.absolute(in: FilePath(workingDirectory()))
        if FileStatus(following: named) == nil, let path = try StoreArgument.groupStore(given) { named = path }
        guard let path = StorePlace(named)?.path, let name = path.lastComponent else {
            throw DirectFeedError.notAStore(named)
        }
        store = path
        own = ShadowPlace(of: path, stateDirectory: try DirectRows.stateDirectory())
        inGroup = ShadowPlace(of: name, inGroup: path.removingLastComponent())
    }

    /// Returns the place of an agent's copies; nil if there is none. Throws `CommandFailure` if this user can't know.
    ///
    /// - Parameters:
    ///   - command: The word after `rows` that a user who may enter the place would run.
    ///   - done: What the command has done, for the error's message.
    func agents(for command: String, after done: String? = nil) throws -> ShadowPlace? {
        do throws(SystemError) { return try inGroup.exists() ? inGroup : nil } catch {
            let rows = inGroup.path.removingLastComponent()
            let directories = [rows.removingLastComponent(), rows, inGroup.path]
            guard error.isPermission, let closed = directories.first(where: { (try? Directory($0)) == nil }),
                let owner = FileStatus(following: closed)?.owner
            else { throw error }
            let user = PeerCredentials.name(ofUser: owner) ?? "'#\(owner)'"
            throw CommandFailure(
                .notPermitted, code: error.errorCode,
                "an agent of the user \(user) may have a copy of \(PrintablePath(store)), with the values of deleted rows: "
                    + "only that user may enter \(PrintablePath(closed))",
                reasons: done.map { ["  \($0)"] } ?? [],
                remedy: "sudo -u \(user) groupstore rows \(command) \(store.shellWord)",
                underlying: error)
        }
    }
}
