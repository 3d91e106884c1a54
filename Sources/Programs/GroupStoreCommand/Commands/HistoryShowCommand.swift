import AgentProtocol
import ArgumentParser
import CommandSupport
import LinuxSystem
import PersistentHistory

struct HistoryShowCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show",
        abstract: "Show the state of a store's history and its subscribers, and print the latest changes.",
        discussion: """
            Example:
              groupstore history show group.com.example.notes/Notes.sqlite --last 5
            """)

    @Argument(help: "The store: its database file, or GROUP_ID/NAME.", completion: .stores)
    var store: String

    @Option(help: ArgumentHelp("Print this many of the last changes.", valueName: "count"))
    var last = 20

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        guard (0...100_000).contains(last) else { throw ValidationError("--last must be 0 to 100000") }
    }

    func run() throws {
        try reporting(outputOptions) { output in
            let (summary, changes) = try HistoryAccess.withHistory(store) { history in
                (try history.summary(), try history.latest(last))
            }
            describe(summary, output)
            for change in changes { HistoryPrinter.print(change, output) }
            guard output.json else { return }
            output.record(["type": "summary", "outcome": "shown", "token": .string(summary.token.description)], "")
        }
    }

    private func describe(_ summary: StoreHistory.Summary, _ output: Output) {
        var object: JSONObject = ["type": "history", "kind": .string(summary.kind.rawValue)]
        object["changes"] = .integer(summary.changes)
        object["first"] = summary.first.map { .integer($0) } ?? .null
        object["trimmed"] = .integer(summary.trimmed)
        object["outdated"] = .bool(summary.isOutdated)
        if summary.isOutdated { HistoryPrinter.add(outdated: summary.doubtfulTables, of: store, to: &object) }
        object["before"] = .bool(summary.recordsImages)
        object["tables"] = .array(summary.tables.map { .string($0) })
        object["token"] = .string(summary.token.description)
        let kind = summary.kind == .coreData ? "Core Data's history" : "history"
        var table = TextTable()
        table.add(.text(kind), .text("\(Counted(summary.changes, "change")), those up to \(summary.trimmed) purged"))
        table.add(.text("token"), .text("\(summary.token)"))
        table.add(.text("tables"), .text(summary.tables.joined(separator: ", ")))
        if summary.recordsImages { table.add(.text("before"), .text("values before a change are recorded")) }
        if summary.isOutdated {
            table.add(.text("outdated"), .text(HistoryPrinter.outdated(store, summary.doubtfulTables)))
        }
        output.record(object, lines: table.lines())
        for subscriber in summary.subscribers {
            let time = LocalTime(subscriber.time, precise: true)
            output.record(
                [
                    "type": "subscriber", "name": .string(subscriber.name), "number": .integer(subscriber.number),
                    "time": .time(subscriber.time),
                ], "subscriber \(subscriber.name) acknowledged \(subscriber.number) at \(time)")
        }
    }
}
