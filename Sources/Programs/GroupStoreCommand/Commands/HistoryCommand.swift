import AgentProtocol
import ArgumentParser
import CommandSupport
import FileCoordination
import GroupContainers
import GroupStore
import GroupStoreAgent
import LinuxSystem
import PersistentHistory
import SystemPackage

struct HistoryCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "history",
        abstract: "Record which rows of a store change, whichever program writes it, and purge old changes.",
        subcommands: [
            HistoryEnableCommand.self, HistoryDisableCommand.self, HistoryPurgeCommand.self, HistoryShowCommand.self,
            HistoryAcknowledgeCommand.self,
        ])
}

struct HistoryEnableCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "enable",
        abstract: "Record a store's changes from now on, or update the recording to the current schema.",
        discussion: """
            Adds tables and triggers whose names begin with GS_ to the store, in one transaction. A store with Core \
            Data's own persistent history stays unchanged; groupstore reads that history.

            --before also records what a row held before it was updated, deleted or replaced, for 'changes --values'; \
            it makes such writes slower and the history larger. It stays on until --no-before, which gives up what \
            was recorded so.

            Example:
              groupstore history enable group.com.example.notes/Notes.sqlite
            """)

    @Argument(help: "The store: its database file, or GROUP_ID/NAME.", completion: .stores)
    var store: String

    @Flag(inversion: .prefixedNo, help: "Also record what rows held before.")
    var before: Bool?

    @OptionGroup var held: HeldStoreOptions

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        try reporting(outputOptions, changing: true) { output in
            let outcome = try HistoryAccess.withWritableStore(store, held: held) {
                try HistoryInstallation($0).enable(images: before)
            }
            for (table, reason) in outcome.unrecorded.sorted(by: { $0.key < $1.key }) {
                output.record(
                    ["type": "unrecorded", "table": .string(table), "reason": .string(reason)],
                    "\(table) is not recorded: \(reason)")
            }
            for table in outcome.gaps {
                output.record(
                    ["type": "gap", "table": .string(table)], "\(table): changes may have gone unrecorded until now")
            }
            var summary: JSONObject = ["type": "summary", "outcome": .string(outcome.kind.rawValue)]
            summary["tables"] = .array(outcome.tables.map { .string($0) })
            let words =
                outcome.kind == .coreData
                ? "Core Data keeps this store's history"
                : "\(outcome.kind.rawValue): \(Counted(outcome.tables.count, "table"))"
            output.record(summary, words)
        }
    }
}

struct HistoryDisableCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "disable", abstract: "Remove a store's history and all recorded changes.",
        discussion: """
            Example:
              groupstore history disable group.com.example.notes/Notes.sqlite
            """)

    @Argument(help: "The store: its database file, or GROUP_ID/NAME.", completion: .stores)
    var store: String

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        try reporting(outputOptions, changing: true) { output in
            let outcome = try HistoryAccess.withWritableStore(store) { try HistoryInstallation($0).disable() }
            output.record(
                ["type": "summary", "outcome": .string(outcome.kind.rawValue)],
                outcome.kind == .coreData ? "Core Data keeps this store's history" : outcome.kind.rawValue)
        }
    }
}

struct HistoryPurgeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "purge",
        abstract: "Purge old changes from a store's history.",
        discussion: """
            Changes that a named subscriber hasn't acknowledged stay, unless --force is given. The last change always \
            stays.

            Example:
              groupstore history purge group.com.example.notes/Notes.sqlite --older-than 30d
            """)

    @Argument(help: "The store: its database file, or GROUP_ID/NAME.", completion: .stores)
    var store: String

    @Option(
        help: ArgumentHelp("Purge changes older than this, such as 12h or 7d.", valueName: "age"),
        transform: DurationArgument.age)
    var olderThan: DurationArgument?

    @Option(help: ArgumentHelp("Purge all but this many changes.", valueName: "count"))
    var keep: Int64?

    @Flag(help: "Purge the changes that all named subscribers have acknowledged.")
    var acknowledged = false

    @Flag(help: "Purge changes even if a named subscriber hasn't acknowledged them.")
    var force = false

    @Option(
        help: ArgumentHelp(
            "Remove this subscriber first, because it is gone for good. May be repeated.", valueName: "name"))
    var forgetSubscriber: [String] = []

    @OptionGroup var held: HeldStoreOptions

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        if let keep, keep < 0 { throw ValidationError("--keep must be 0 or more") }
        if olderThan == nil, keep == nil, !acknowledged, forgetSubscriber.isEmpty {
            throw ValidationError("choose the changes to purge: --older-than, --keep or --acknowledged")
        }
    }

    func run() throws {
        try reporting(outputOptions, changing: true) { output in
            var purge = HistoryMaintenance.Purge()
            purge.age = olderThan?.seconds
            purge.count = keep
            purge.acknowledged = acknowledged
            purge.force = force
            let outcome = try HistoryAccess.withWritableStore(store, held: held) { location in
                let maintenance = HistoryMaintenance(location)
                for name in forgetSubscriber { _ = try maintenance.forget(subscriber: name) }
                return try maintenance.purge(purge)
            }
            var summary: JSONObject = ["type": "summary", "outcome": outcome.purged > 0 ? "purged" : "nothing_to_do"]
            summary["purged"] = .integer(outcome.purged)
            summary["left"] = .integer(outcome.left)
            if let holder = outcome.heldBy { summary["held_by"] = .string(holder) }
            let held = outcome.heldBy.map { "; \($0) hasn't acknowledged the rest" } ?? ""
            output.record(summary, "\(Counted(outcome.purged, "change")) purged, \(outcome.left) left\(held)")
        }
    }
}

struct HistoryAcknowledgeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "acknowledge",
        abstract: "Record that a named subscriber knows all changes up to a token; later ones aren't purged.",
        discussion: """
            Example:
              groupstore history acknowledge Notes.sqlite --subscriber upload --token TOKEN
            """)

    @Argument(help: "The store: its database file, or GROUP_ID/NAME.", completion: .stores)
    var store: String

    @Option(help: "The subscriber's name. A new subscriber is created.")
    var subscriber: String

    @Option(help: "A token printed by 'changes' or 'history show'.")
    var token: String

    @OptionGroup var held: HeldStoreOptions

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        if subscriber.isEmpty || subscriber.utf8.count > 256 {
            throw ValidationError("--subscriber takes a name of at most 256 bytes")
        }
    }

    func run() throws {
        try reporting(outputOptions, changing: true) { output in
            guard let position = HistoryToken(token) else { throw HistoryAccess.badToken(token) }
            try HistoryAccess.withWritableStore(store, held: held) { location in
                try HistoryMaintenance(location).acknowledge(position, by: subscriber)
            }
            output.record(["type": "summary", "outcome": "acknowledged"], "acknowledged")
        }
    }
}
