import AgentProtocol
import ArgumentParser
import CommandSupport
import FoundationEssentials
import GroupStoreAgent
import LinuxSystem
import PersistentHistory
import SQLiteStore
import SystemPackage

struct ChangesCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "changes",
        abstract: "Print the rows of a store that changed since a token.",
        discussion: """
            Reads the store's history: groupstore's own (see 'groupstore history enable'), or Core Data's. After a \
            token of 'watch --direct --rows' or --values of a store that keeps none, reads the log that the watch keeps: \
            its steps, each whole, in order. Needs no agent. The summary has the token for the next run. A page ends after --limit changes or about 4 MiB; if \
            the summary says 'more', the next page is available at once. If the token is no longer valid, prints one \
            'reset': everything read from the store before is stale.

            --values prints each changed row once, whole, as it is now, or that it is gone. Remove the deleted rows \
            first, then write the others over what is there: once the summary says no 'more', a copy that had the \
            state at --since has the state that was read. A copy from before a change of the schema must be made \
            again: name the schema that it was made under with --schema.

            Example:
              groupstore changes group.com.example.notes/Notes.sqlite --values --json
            """)

    @Argument(help: "The store: its database file, or GROUP_ID/NAME.", completion: .stores)
    var store: String

    @Option(help: "Print the changes after this token; without it, all that the history keeps.")
    var since: String?

    @Flag(help: "Print no rows, only the current token.")
    var now = false

    @OptionGroup var batch: BatchOptions

    @OptionGroup var filter: HistoryFilterOptions

    /// Limits lines to what the wire can carry. Set by the agent.
    @Flag(help: .hidden)
    var wireLines = false

    @OptionGroup var held: HeldStoreOptions

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        try reporting(outputOptions) { output in
            if let token = since.flatMap(RowToken.init) {
                return try LoggedChanges(options: batch, filter: filter, output: output).print(store, since: token)
            }
            let position = try since.map { text in
                guard let token = HistoryToken(text) else { throw HistoryAccess.badToken(text) }
                guard !token.isOfPages else {
                    throw CommandFailure(
                        .badData, code: "no_history", "\(text) is an agent's token of a store's pages",
                        remedy: "ask the agent: groupstore watch --agent --values --since "
                            + [text, store].map { ShellText.word(Array($0.utf8)) }.joined(separator: " "))
                }
                return token
            }
            guard batch.isBatch else { return try print(output, position) }
            try BatchReading(
                options: batch, filter: filter.filter, limit: filter.limit, wireLines: wireLines, output: output
            ).print(store, held: held, since: position, now: now)
        }
    }

    func validate() throws {
        if now, since != nil { throw ValidationError("--now and --since exclude each other") }
    }

    private enum Answer {
        /// The changes as lines, which may be much shorter than the rows they were read from.
        case page([HistoryPrinter.Line], StoreHistory.PageEnd)
        case reset(StoreHistory.Discontinuity, HistoryToken)
    }

    /// Reads a page. Nothing is printed while the store is read: a slow consumer of the output must not hold up a
    /// checkpoint of the store's log.
    private func answer(_ history: StoreHistory, since position: HistoryToken?, to output: Output) throws -> Answer {
        do {
            let start = try now ? history.current() : position ?? history.start()
            var lines: [HistoryPrinter.Line] = []
            let end = try history.changes(after: start, limit: filter.limit ?? 1000, filter: filter.filter) { change in
                var line = HistoryPrinter.line(change, json: output.json)
                if wireLines { line.shorten() }
                lines.append(line)
                return wireLines ? min(change.size, WireLine.maxLength) : change.size
            }
            return .page(lines, end)
        } catch {
            guard let reason = error as? StoreHistory.Discontinuity else { throw error }
            return .reset(reason, try history.current())
        }
    }

    private func print(_ output: Output, _ position: HistoryToken?) throws {
        let answer: Answer = try HistoryAccess.withHistory(store, held: held) {
            try self.answer($0, since: position, to: output)
        }
        switch answer {
        case .page(let lines, let end):
            for line in lines { line.print(output) }
            HistoryPrinter.summarize("changes", end, of: store, to: output)
        case .reset(let reason, let current):
            let token = current.description
            let reset: JSONObject = ["type": "reset", "reason": .string(reason.rawValue), "token": .string(token)]
            output.record(reset, "reset  \(reason.rawValue)  \(token)")
            if output.json { output.record(["type": "summary", "outcome": "reset", "token": .string(token)], "") }
        }
    }
}

/// Options that select changed rows.
struct RowFilterOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Only changes of these entities of a Core Data store.", valueName: "a,b"))
    var entities: String?

    @Option(help: ArgumentHelp("Only these operations: insert, update, delete.", valueName: "a,b"))
    var operations: String?

    @Option(help: ArgumentHelp("Only changes by these authors.", valueName: "a,b"))
    var authors: String?

    @Option(help: ArgumentHelp("No changes by these authors, such as a subscriber's own.", valueName: "a,b"))
    var exceptAuthors: String?

    func validate() throws {
        guard Self.names(operations).map({ $0.allSatisfy { Self.operation($0) != nil } }) ?? true else {
            throw ValidationError("--operations takes insert, update or delete")
        }
    }

    static func names(_ list: String?) -> Set<String>? {
        list.map { Set(EscapedNames.names($0).filter { !$0.isEmpty }) }
    }

    private static func operation(_ word: String) -> HistoryChange.Operation? {
        HistoryChange.Operation.allCases.first { $0.word == word && $0 != .gap }
    }

    var filter: HistoryFilter {
        var filter = HistoryFilter()
        filter.entities = Self.names(entities)
        filter.operations = Self.names(operations).map { Set($0.compactMap(Self.operation)) }
        filter.authors = Self.names(authors)
        filter.exceptAuthors = Self.names(exceptAuthors) ?? []
        return filter
    }

    /// True if no option is given.
    var isEmpty: Bool { entities == nil && operations == nil && authors == nil && exceptAuthors == nil }

    /// The filter as sent on the wire.
    var wire: HistoryOperation.Filter {
        var filter = HistoryOperation.Filter()
        filter.entities = Self.names(entities)?.sorted()
        filter.operations = Self.names(operations)?.sorted()
        filter.authors = Self.names(authors)?.sorted()
        filter.exceptAuthors = Self.names(exceptAuthors)?.sorted()
        return filter
    }
}

/// Options that select changes and limit their number.
struct HistoryFilterOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Only changes of these tables. Write a comma within a name as \\,.", valueName: "a,b"))
    var tables: String?

    @OptionGroup var rows: RowFilterOptions

    @Option(help: "Print at most this many changes; 1000 without --values.")
    var limit: Int?

    func validate() throws {
        guard limit.map({ (1...1_000_000).contains($0) }) ?? true else {
            throw ValidationError("--limit must be 1 to 1000000")
        }
    }

    var filter: HistoryFilter {
        var filter = rows.filter
        filter.tables = RowFilterOptions.names(tables).map { Set($0.map { DatabaseSchema.key(of: $0) }) }
        return filter
    }
}

/// Prints changes, a line each.
enum HistoryPrinter {
    /// A change's line in one of two forms: JSON or text.
    struct Line {
        private var json: JSONObject?
        private let text: String

        init(_ json: JSONObject) { (self.json, text) = (json, "") }
        init(_ text: String) { (json, self.text) = (nil, text) }

        /// Shortens the line to what the wire can carry.
        mutating func shorten() { json = json.map(WireLine.shortened) }

        func print(_ output: Output) { output.record(json ?? [:], text) }
    }

    static func print(_ change: HistoryChange, _ output: Output) { line(change, json: output.json).print(output) }

    static func line(_ change: HistoryChange, json: Bool) -> Line {
        // A gap isn't a row.
        if change.operation == .gap {
            let reason = StoreHistory.Discontinuity.gap.rawValue
            let token: JSONObject = [
                "type": "reset", "reason": .string(reason), "table": .string(change.table),
                "number": .integer(change.number),
            ]
            return json ? Line(token) : Line("reset  \(reason)  \(change.table)")
        }
        guard json else { return Line(line(change)) }
        var object: JSONObject = ["type": "row"]
        for member in change.json.members { object[member.key] = member.value }
        return Line(object)
    }

    private static func line(_ change: HistoryChange) -> String {
        let time = "\(LocalTime(change.time, precise: true))"
        let key = change.key.map(\.json.text)
        let author = change.author.map { "by \($0)" }
        let words: [String?] = [
            "\(change.number)", time, change.operation.word, change.entity ?? change.table,
            key.joined(separator: ","), change.columns?.joined(separator: ","), author,
        ]
        return words.compactMap { $0 }.joined(separator: "  ")
    }

    /// Returns the line that says that changes may be missing, of which tables if that is known. A schema change is no
    /// row of the history before the next `history enable`.
    static func outdated(_ store: String, _ tables: [String]) -> String {
        let more = tables.count > 5 ? " and \(Counted(tables.count - 5, "other"))" : ""
        let doubt =
            tables.isEmpty
            ? "changes may be missing"
            : "changes of \(tables.prefix(5).joined(separator: ", "))\(more) may be missing or name other rows"
        return "the schema has changed: \(doubt) until groupstore history enable \(ArgumentBytes.path(store).shellWord)"
    }

    /// Adds the same as `outdated(_:_:)` says, with all of the tables.
    static func add(outdated tables: [String], of store: String, to object: inout JSONObject) {
        object["outdated"] = true
        object["doubtful_tables"] = .array(tables.map { .string($0) })
        object["message"] = .string(outdated(store, tables))
    }

    static func summarize(_ outcome: String, _ page: StoreHistory.PageEnd, of store: String, to output: Output) {
        var summary: JSONObject = ["type": "summary", "outcome": .string(outcome)]
        summary["changes"] = .integer(Int64(page.count))
        summary["more"] = .bool(!page.isLast)
        if page.isOutdated { add(outdated: page.doubtfulTables, of: store, to: &summary) }
        if page.isReplica { summary["replica"] = true }
        summary["token"] = .string(page.token.description)
        output.record(
            summary,
            lines: (page.isOutdated ? ["outdated  \(outdated(store, page.doubtfulTables))"] : [])
                + ["token \(page.token)" + (page.isLast ? "" : ", and more")])
    }
}
