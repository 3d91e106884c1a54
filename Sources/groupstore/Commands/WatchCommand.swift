import AgentProtocol
import ArgumentParser
import Glibc
import GroupStore
import GroupStoreAgent
import LinuxSystem
import SystemPackage

struct WatchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch",
        abstract: "Print a line for each change of a store.",
        discussion: """
            Receives events from the agent. If the agent goes away, waits for it for up to 30 s; events that can't be \
            made up for are reported as a reset. --exec sets GROUPSTORE_STORE, GROUPSTORE_PATH, GROUPSTORE_EVENT, \
            GROUPSTORE_TABLES (a line each; all of them if GROUPSTORE_COMPLETE is 1), GROUPSTORE_SINCE and \
            GROUPSTORE_TOKEN. One command runs at a time; events during a run cause one more run, for all of them. A \
            failed run is repeated together with later events, after 1 s and up to 60 s. --token-file keeps the \
            position up to which all is done, so that each event is handled at least once, even if the command or \
            this program is killed. With --tables, a change is reported if it may affect one of them: if it names one, \
            or if not all of its tables are known. --entities, --operations, --authors and --except-authors need a \
            store that keeps a history; a change whose rows the history doesn't know is reported.
            """)

    @Argument(help: "The store: its database file, or GROUP_ID/NAME.", completion: .file())
    var store: String

    @Option(help: "Begin with the events after this token.")
    var since: String?

    @Option(help: ArgumentHelp("Report only changes of these tables.", valueName: "a,b"))
    var tables: String?

    @OptionGroup var rowFilter: RowFilterOptions

    @Flag(help: "Print the changed rows too, if the store's history knows them and they are few.")
    var rows = false

    @Flag(help: "Request tokens that outlive the agent, if the store keeps a history.")
    var durable = false

    @Option(help: ArgumentHelp("Run this with /bin/sh for each event, one run at a time.", valueName: "command"))
    var exec: String?

    @Option(
        help: ArgumentHelp(
            "Continue from the token in this file, and update it as events are printed or, with --exec, handled.",
            valueName: "file"), completion: .file())
    var tokenFile: String?

    @Flag(help: "Exit after the first event that requires the store to be read again.")
    var once = false

    @Option(help: "Exit with code 75 if there is no event for this many seconds.")
    var timeout: Double?

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        if let timeout, !(0...31_536_000).contains(timeout) {
            throw ValidationError("--timeout must be 0 to 31536000 seconds")
        }
        if let tables, tableNames(tables).contains("") {
            throw ValidationError("--tables takes names separated by commas, such as ZNOTE,ZTAG")
        }
    }

    private func tableNames(_ list: String) -> [String] {
        EscapedNames.names(list)
    }

    func run() throws {
        let output = Output(outputOptions)
        Interruption.installHandlers(endsWithOutput: true)
        try reporting(output) {
            let tokens = tokenFile.map { TokenFile(path: ArgumentBytes.path($0)) }
            let feed = try StoreFeed(store, since: since ?? tokens?.read()) { subscription in
                subscription.tables = tables.map { TableFilter(tableNames($0)) }
                subscription.filter = rowFilter.wire
                subscription.wantsRows = rows
                subscription.wantsDurableTokens = durable
            }
            try tokens?.write(feed.token)
            announce(feed, output)
            try follow(feed, tokens: tokens, to: output)
        }
    }

    private func follow(_ feed: StoreFeed, tokens: TokenFile?, to output: Output) throws {
        let runner = exec.map { EventCommand($0, from: feed.token, tokenFile: tokens) }
        do {
            try print(feed, runner: runner, tokens: runner == nil ? tokens : nil, to: output)
        } catch AgentConnectionError.interrupted {
            // The command isn't waited for: the next run from that token repeats an interrupted run.
            summarize("interrupted", token: runner?.done ?? feed.token, to: output)
            throw ExitStatus.interrupted.code
        } catch {
            _ = runner?.finish()
            throw error
        }
        guard let status = runner?.finish(), status != 0 else {
            return summarize("event", token: feed.token, to: output)
        }
        throw CommandFailure(
            .busy, code: "command_failed", "\(exec ?? "") ended with exit status \(status)",
            remedy: "check the command's output; the event is repeated when you continue from the last completed token")
    }

    /// Prints events. With `--once`, returns after the first event that requires the store to be read again.
    private func print(_ feed: StoreFeed, runner: EventCommand?, tokens: TokenFile?, to output: Output) throws {
        while true {
            let deadline = timeout.map { Deadline(after: .milliseconds(Int64($0 * 1000))) } ?? .none
            guard let event = try feed.next(deadline: deadline) else {
                throw CommandFailure(
                    .busy, code: "timed_out", "no event of \(feed.name) within \(timeout.map { "\($0)" } ?? "0") s",
                    remedy: "use a longer --timeout, or none")
            }
            if event.isBookmark {
                try tokens?.write(feed.token)
                continue
            }
            output.record(event.object, "\(Self.timeOfDay())  \(event.type)  \(feed.name)  \(event.words)")
            // An event that couldn't be printed isn't done: the token stays unchanged.
            try Output.checkDelivered()
            try runner?.run(EventRun(event, feed))
            if let token = event.token { try tokens?.write(token) }
            if once, event.requiresReading { return }
        }
    }

    /// Reports that no later event is missed. For people on standard error, because it isn't an event.
    private func announce(_ feed: StoreFeed, _ output: Output) {
        if output.json {
            var line: JSONObject = ["type": "subscribed"]
            line.setPath("store", bytes: feed.address.bytes)
            line.setPath("path", bytes: feed.path.bytes)
            line["token"] = .string(feed.token)
            output.record(line, "")
        } else if !output.quiet {
            Output.write("watching \(PrintablePath(feed.path)), token \(feed.token)", to: STDERR_FILENO)
        }
    }

    private func summarize(_ outcome: String, token: String, to output: Output) {
        guard output.json else { return }
        output.record(["type": "summary", "outcome": .string(outcome), "token": .string(token)], "")
    }

    /// Returns the local time with milliseconds.
    private static func timeOfDay() -> String {
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        var parts = tm()
        localtime_r(&now.tv_sec, &parts)
        func padded(_ value: Int, _ width: Int) -> String {
            let digits = String(value)
            return String(repeating: "0", count: max(0, width - digits.count)) + digits
        }
        let clock = [parts.tm_hour, parts.tm_min, parts.tm_sec].map { padded(Int($0), 2) }.joined(separator: ":")
        return clock + "." + padded(now.tv_nsec / 1_000_000, 3)
    }
}
