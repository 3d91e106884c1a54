import AgentProtocol
import ArgumentParser
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
        abstract: "Record which rows of a store change, whoever writes it, and forget what nobody needs any more.",
        subcommands: [
            HistoryEnableCommand.self, HistoryDisableCommand.self, HistoryPurgeCommand.self, HistoryShowCommand.self,
            HistoryAcknowledgeCommand.self,
        ])
}

struct HistoryEnableCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "enable",
        abstract: "Record changes from now on; where it is done already, follow what became of the schema.",
        discussion: """
            Tables and triggers whose names begin with GS_ are added to the store in one transaction. A store with Core \
            Data's own persistent history is left as it is: that one is read.
            """)

    @Argument(help: "The store: its database file, or GROUP_ID/NAME.", completion: .file())
    var store: String

    @OptionGroup var held: HeldStoreOptions

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        let output = Output(outputOptions)
        try HistoryAccess.run(output, changing: true) {
            let outcome = try HistoryAccess.writing(store, held: held) { try HistoryInstallation($0).enable() }
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
                ? "Core Data keeps this store's history" : "\(outcome.kind.rawValue): \(outcome.tables.count) tables"
            output.record(summary, words)
        }
    }
}

struct HistoryDisableCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "disable", abstract: "Take a store's history out of it, with all that was recorded.")

    @Argument(help: "The store: its database file, or GROUP_ID/NAME.", completion: .file())
    var store: String

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        let output = Output(outputOptions)
        try HistoryAccess.run(output, changing: true) {
            let outcome = try HistoryAccess.writing(store) { try HistoryInstallation($0).disable() }
            output.record(
                ["type": "summary", "outcome": .string(outcome.kind.rawValue)],
                outcome.kind == .coreData ? "Core Data keeps this store's history" : outcome.kind.rawValue)
        }
    }
}

struct HistoryPurgeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "purge",
        abstract: "Forget old changes.",
        discussion: """
            What a named subscriber has not acknowledged stays, unless --force says otherwise. The last change always \
            stays.
            """)

    @Argument(help: "The store: its database file, or GROUP_ID/NAME.", completion: .file())
    var store: String

    @Option(help: ArgumentHelp("Forget what is older than this: 90s, 30m, 12h, 7d.", valueName: "age"))
    var olderThan: String?

    @Option(help: ArgumentHelp("Keep this many changes.", valueName: "count"))
    var keep: Int64?

    @Flag(help: "Forget what all named subscribers have acknowledged.")
    var acknowledged = false

    @Flag(help: "Forget also what a named subscriber has not acknowledged.")
    var force = false

    @Option(help: ArgumentHelp("Forget this subscriber first: it is gone for good.", valueName: "name"))
    var forgetSubscriber: [String] = []

    @OptionGroup var held: HeldStoreOptions

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        if let olderThan, HistoryAge.seconds(olderThan) == nil {
            throw ValidationError("--older-than takes a number and s, m, h or d, such as 7d")
        }
        if let keep, keep < 0 { throw ValidationError("--keep is 0 or more") }
        if olderThan == nil, keep == nil, !acknowledged, forgetSubscriber.isEmpty {
            throw ValidationError("say what to forget: --older-than, --keep or --acknowledged")
        }
    }

    func run() throws {
        let output = Output(outputOptions)
        try HistoryAccess.run(output, changing: true) {
            var purge = HistoryMaintenance.Purge()
            purge.age = olderThan.flatMap(HistoryAge.seconds)
            purge.count = keep
            purge.acknowledged = acknowledged
            purge.force = force
            let outcome = try HistoryAccess.writing(store, held: held) { location in
                let maintenance = HistoryMaintenance(location)
                for name in forgetSubscriber { _ = try maintenance.forget(subscriber: name) }
                return try maintenance.purge(purge)
            }
            var summary: JSONObject = ["type": "summary", "outcome": outcome.purged > 0 ? "purged" : "nothing_to_do"]
            summary["purged"] = .integer(outcome.purged)
            summary["left"] = .integer(outcome.left)
            if let holder = outcome.heldBy { summary["held_by"] = .string(holder) }
            let held = outcome.heldBy.map { "; \($0) has not acknowledged the rest" } ?? ""
            output.record(summary, "\(outcome.purged) changes forgotten, \(outcome.left) left\(held)")
        }
    }
}

struct HistoryAcknowledgeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "acknowledge",
        abstract: "Note that a named subscriber knows all up to a token: nothing after it is purged.")

    @Argument(help: "The store: its database file, or GROUP_ID/NAME.", completion: .file())
    var store: String

    @Option(help: "The subscriber; one that isn't known yet is made.")
    var subscriber: String

    @Option(help: "A token of `changes` or `history show`.")
    var token: String

    @OptionGroup var held: HeldStoreOptions

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        if subscriber.isEmpty || subscriber.utf8.count > 256 {
            throw ValidationError("--subscriber is a name of at most 256 bytes")
        }
    }

    func run() throws {
        let output = Output(outputOptions)
        try HistoryAccess.run(output, changing: true) {
            guard let position = HistoryToken(token) else { throw HistoryAccess.badToken(token) }
            try HistoryAccess.writing(store, held: held) { location in
                try HistoryMaintenance(location).acknowledge(position, by: subscriber)
            }
            output.record(["type": "summary", "outcome": "acknowledged"], "acknowledged")
        }
    }
}

/// A length of time on the command line.
enum HistoryAge {
    static func seconds(_ text: String) -> Double? {
        let units: [Character: Double] = ["s": 1, "m": 60, "h": 3600, "d": 86_400]
        guard let unit = text.last.flatMap({ units[$0] }), let number = Double(text.dropLast()), number >= 0,
            number.isFinite
        else { return nil }
        return number * unit
    }
}
