import AgentProtocol
import ArgumentParser
import CommandSupport
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
            Receives events from an agent that serves the stores, or watches them itself if there is none. --agent and \
            --direct choose. Watched directly, a store need not exist yet, and its token says whether the store was \
            written since, but not how often.

            If the agent goes away, says so and waits for it for 10 s; then watches the stores itself, which begins with \
            a reset. With --agent, --progress, rows, row filters or --durable, or if the files aren't readable from \
            here, waits for 30 s and then exits with 69. Events that can't be made up for are reported as a reset. \
            --exec sets GROUPSTORE_STORE, GROUPSTORE_PATH, GROUPSTORE_EVENT, \
            GROUPSTORE_TABLES (a line each; all of them if GROUPSTORE_COMPLETE is 1), GROUPSTORE_BRANCH (the process \
            that has committed to files which only it has), GROUPSTORE_SINCE and GROUPSTORE_TOKEN. One command runs at a time; events during a run cause one more run, for all of them. A \
            failed run is repeated together with later events, after 1 s and up to 60 s. --token-file keeps the \
            position up to which all is done, so that each event is handled at least once, even if the command or \
            this program is killed. With --tables, a change is reported if it may affect one of them: if it names one, \
            or if not all of its tables are known. --entities, --authors and --except-authors need a store that keeps \
            a history; a change whose rows the history doesn't know is reported.

            With --rows or --values, a store that keeps no history and that no agent serves is watched through a copy \
            of its pages in $XDG_STATE_HOME or ~/.local/state, which makes the token durable. 'groupstore rows \
            disable' removes the copy.

            Example:
              groupstore watch group.com.example.notes/Notes.sqlite --exec ./upload
            """)

    @Argument(
        help: ArgumentHelp("The stores: database files, or GROUP_ID/NAME.", valueName: "store"), completion: .stores)
    var stores: [String]

    @Option(help: ArgumentHelp("Run this with /bin/sh for each event, one run at a time.", valueName: "command"))
    var exec: String?

    @Option(
        help: ArgumentHelp(
            "Continue from the token in this file, and update it as events are printed or, with --exec, handled.",
            valueName: "file"), completion: .file())
    var tokenFile: String?

    @Option(help: "Begin with the events after this token.")
    var since: String?

    @Flag(help: "Exit after the first event that requires the store to be read again.")
    var once = false

    @Option(
        help: ArgumentHelp(
            "Exit with code 75 if there is no event for so long.", valueName: "time"),
        transform: DurationArgument.init)
    var timeout: DurationArgument?

    @Option(help: ArgumentHelp("Report only changes of these tables.", valueName: "a,b"))
    var tables: String?

    @OptionGroup var rowFilter: RowFilterOptions

    @Flag(help: "Print the changed rows too. With an agent: if the store's history knows them and they are few.")
    var rows = false

    @Flag(
        help: """
            Before each change, print its rows whole: a change batch, as 'changes --values' does. With an agent, the \
            store must keep a history, or have 'rows: true' in the agent's configuration.
            """)
    var values = false

    @Flag(
        help: """
            Print rows with their former values too; implies --values. A history has them after 'history enable \
            --before'.
            """)
    var before = false

    @Option(
        help: ArgumentHelp(
            "The form of the rows: standard, or debezium for an envelope a line; implies --values. Debezium's is for "
                + "stores without a history, watched directly.", valueName: "form"))
    var format: BatchFormat = .standard

    @Flag(help: "Request tokens that outlive the agent, if the store keeps a history.")
    var durable = false

    @Flag(
        help: """
            Also print how far a relocation or migration of the store is, at most ten times a second. An agent says it.
            """)
    var progress = false

    @Flag(help: "Receive events from the agent only.")
    var agent = false

    @Flag(help: "Watch the files directly, even if an agent serves them.")
    var direct = false

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        try timeout?.validate("--timeout", in: 0...31_536_000)
        if progress, direct {
            throw ValidationError("--progress and --direct exclude each other: an agent tells how far a relocation is")
        }
        if agent, direct { throw ValidationError("--agent and --direct exclude each other") }
        if stores.count > 1, since != nil || tokenFile != nil {
            throw ValidationError("--since and --token-file take one store: a token is one store's")
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
            try Interruption.requestAtEndOfReader()
            let tokens = tokenFile.map { TokenFile(path: ArgumentBytes.path($0)) }
            let feed = try feed(since: since ?? tokens?.read(), output)
            let batches = try wantsValues ? self.batches(feed, output) : nil
            if let store = feed.stores.first { try tokens?.write(store.token) }
            for store in feed.stores { announce(store, feed.openingType, output) }
            ProgramMemory.releaseUnused()
            try follow(feed, batches, tokens: tokens, to: output)
        }
    }

    private var wantsValues: Bool { values || before || format != .standard }

    private func batches(_ feed: any WatchedFeed, _ output: Output) throws -> WatchedBatches? {
        if format == .debezium, feed is AgentFeed {
            throw CommandFailure(
                .usage, code: "no_envelopes", "--format debezium: these rows come from an agent or from a history",
                remedy: "use 'changes --format debezium' for a history; add --direct for a store without one")
        }
        var filter = rowFilter.wire
        filter.tables = tables.map(tableNames)
        return try (feed as? AgentFeed).map { try WatchedBatches($0, filter: filter, output: output) }
    }

    /// Returns the agent's feed if it serves the stores, else one of this process.
    private func feed(since token: String?, _ output: Output) throws -> any WatchedFeed {
        let paths = stores.map(ArgumentBytes.path)
        guard !direct else { return try directFeed(paths, since: token, output) }
        do throws(AgentConnectionError) {
            var hasSaid = output.quiet
            let wait = { (refusal: WireError) in
                if !hasSaid { WatchedBatches.sayWaiting(refusal) }
                hasSaid = true
            }
            return try AgentFeed(
                paths, since: token, waiting: wantsValues ? wait : nil, absence: absence(output), configure)
        } catch {
            guard !agent, error.leavesFilesToWatch else { throw error }
            return try directFeed(paths, since: token, output)
        }
    }

    /// Returns the place to watch, where there need not be a store yet.
    private static func place(_ given: FilePath) throws -> FilePath {
        if let failure = try MissingStore(given).groupFailure(mayAppear: true) { throw failure }
        let path = given.absolute(in: FilePath(workingDirectory()))
        let directory = path.removingLastComponent()
        if FileStatus(following: directory)?.kind == .directory {
            // Nothing could be told of its commits.
            let isReadable = path.withPlatformString { faccessat(AT_FDCWD, $0, R_OK, AT_EACCESS) } == 0
            if !isReadable, errno == EACCES { throw SystemError.last("open", path: path) }
            return path
        }
        // To make a directory of a group's name here would hide the group.
        let store = try StoreArgument.groupStore(given)
        let place = store?.removingLastComponent() ?? directory
        if let store, FileStatus(following: place)?.kind == .directory { return store }
        throw CommandFailure(
            .badData, code: "no_directory", "there is no directory \(PrintablePath(place))",
            remedy: "make it, or name GROUP_ID/NAME: mkdir -p \(place.shellWord)")
    }

    private func directFeed(
        _ given: [FilePath], since token: String?, _ output: Output
    ) throws -> any WatchedFeed {
        let paths = try given.map(Self.place)
        guard needsHistory else {
            return try KernelFeed(paths, since: token, tables: filter)
        }
        if rows || wantsValues, try DirectRows.areFromPages(paths, rowFilter) {
            let operations = rowFilter.wire.operations.map(Set.init)
            return try KernelFeed(paths, since: token, tables: filter) { path in
                let name = path.lastComponent?.string ?? ""
                let form = StepLines.Form(
                    store: path.bytes, values: wantsValues, operations: operations,
                    envelope: format == .debezium ? DebeziumEnvelope(database: name) : nil)
                let printer = StepPrinter(form, output, tables: filter)
                return try DirectRows(path, since: token, printer, output)
            }
        }
        return try AgentFeed(PrivateAgent(paths), since: token, absence: absence(output), configure)
    }

    /// True if the kernel's events alone don't suffice.
    private var needsHistory: Bool { rows || wantsValues || durable || !rowFilter.isEmpty }

    private func absence(_ output: Output) -> AgentAbsence {
        let needsAgent = agent || progress || needsHistory
        return AgentAbsence(
            isQuiet: output.quiet, follow: needsAgent ? nil : { try KernelFeed(takingOver: $0, tables: filter) })
    }

    private func configure(_ subscription: inout SubscribeOperation) {
        subscription.tables = filter
        subscription.filter = rowFilter.wire
        subscription.wantsRows = rows
        subscription.wantsDurableTokens = durable || wantsValues
        subscription.wantsProgress = progress
    }

    private var filter: TableFilter? { tables.map { TableFilter(tableNames($0)) } }

    private func follow(
        _ feed: any WatchedFeed, _ batches: WatchedBatches?, tokens: TokenFile?, to output: Output
    ) throws {
        let runners = feed.stores.map { store in
            exec.map { EventCommand($0, from: store.token, tokenFile: tokens) }
        }
        defer { try? tokens?.synchronize() }
        // With several stores, the summary's token is the first one's.
        func done(_ number: Int) -> String {
            let store = feed.stores[number]
            // An agent's event is received before its rows are printed.
            return runners[number]?.done ?? (batches == nil ? store.token : store.told)
        }
        do {
            try print(feed, batches, runners: runners, tokens: exec == nil ? tokens : nil, to: output)
        } catch AgentConnectionError.interrupted {
            for runner in runners { runner?.stop(isQuiet: output.quiet) }
            summarize("interrupted", token: done(0), to: output)
            throw ExitStatus.interrupted.code
        } catch {
            for runner in runners { _ = runner?.finish() }
            throw error
        }
        let failed = runners.compactMap { $0?.finish() }.first { $0 != 0 }
        guard let failed else { return summarize("event", token: done(0), to: output) }
        throw CommandFailure(
            .busy, code: "command_failed", "\(exec ?? "") ended with exit status \(failed)",
            remedy: "check the command's output; the event is repeated when you continue from the last completed token")
    }

    /// Prints events. With `--once`, returns after the first event that requires the store to be read again.
    private func print(
        _ feed: any WatchedFeed, _ batches: WatchedBatches?, runners: [EventCommand?], tokens: TokenFile?,
        to output: Output
    ) throws {
        // Options are looked up once, not between a commit and its line.
        let (endsAfterFirst, runsCommand, isEncoded) = (once, exec != nil, output.json)
        let onlyPrints = isEncoded && !runsCommand && !endsAfterFirst && tokens == nil && batches == nil
        (feed as? KernelFeed)?.writesLines = onlyPrints
        var isDone = false
        /// Returns false if nothing is to follow.
        func tell(_ event: FeedEvent) throws -> Bool {
            if event.isBookmark {
                try advance(past: event, feed, batches, runners, tokens)
                return true
            }
            // Little may be between the lines of rows and their token: a kill there repeats them.
            let token = event.isProgress ? nil : event.token
            let prepared = event.isTold ? try token.flatMap { try tokens?.prepare($0) } : nil
            if isEncoded, let line = event.line { Output.write(encoded: line[...]) } else { record(event, output) }
            // An event that couldn't be printed isn't done: the token stays unchanged.
            try Output.checkDelivered()
            if event.isProgress { return true }
            if runsCommand, let index = feed.stores.firstIndex(where: { $0 === event.store }) {
                try runners[index]?.run(EventCommandInput(event))
            }
            if let prepared { try prepared.publish() } else if let token { try tokens?.write(token) }
            if let token { event.store.told = token }
            isDone = endsAfterFirst && event.requiresReading
            return !isDone
        }
        while !isDone {
            let deadline = timeout.map { Deadline(after: $0.duration) } ?? .none
            let hasMore = batches?.hasMore ?? false
            let hasReceived = try feed.receive(until: hasMore ? Deadline(after: .zero) : deadline) { event in
                // Several events may come at once.
                guard !isDone else { return }
                guard let batches, !event.isBookmark else { return _ = try tell(event) }
                if let event = try batches.print(before: event, tell) { _ = try tell(event) }
            }
            if !hasReceived, hasMore {
                try batches?.printMore(tell)
                continue
            }
            guard hasReceived else {
                let names = feed.stores.map(\.name).joined(separator: ", ")
                throw CommandFailure(
                    .busy, code: "timed_out", "no event of \(names) within \(timeout.map { "\($0.seconds)" } ?? "0") s",
                    remedy: "use a longer --timeout, or none")
            }
        }
    }

    /// Advances the position past what needn't be told.
    private func advance(
        past bookmark: FeedEvent, _ feed: any WatchedFeed, _ batches: WatchedBatches?, _ runners: [EventCommand?],
        _ tokens: TokenFile?
    ) throws {
        let received = bookmark.token ?? bookmark.store.token
        let token = batches?.position(bookmark.store, notBefore: received) ?? received
        defer { bookmark.store.told = token }
        guard bookmark.isTold else { return try tokens?.write(token) ?? () }
        try tokens?.prepare(token).publish()
        if let index = feed.stores.firstIndex(where: { $0 === bookmark.store }) {
            try runners[index]?.skip(to: token)
        }
    }

    private func record(_ event: FeedEvent, _ output: Output) {
        if format == .debezium, !output.json {
            // A consumer of envelopes must not take the absence of lines for the absence of changes.
            if case .reset = event.event { Output.write(json: event.object) }
            return
        }
        output.record(
            event.object,
            ["\(LocalTime.now(precise: true))", event.type, event.store.name, event.words].compactMap(\.self)
                .joined(separator: "  "))
    }

    /// Reports that no later event is missed. For people on standard error, because it isn't an event.
    private func announce(_ store: WatchedStore, _ type: String, _ output: Output) {
        let exists = FileStatus(following: store.path) != nil
        if output.json {
            var line: JSONObject = ["type": .string(type)]
            line.setPath("store", bytes: store.bytes)
            line.setPath("path", bytes: store.path.bytes)
            if !exists { line["exists"] = false }
            line["token"] = .string(store.token)
            output.record(line, "")
        } else if !output.quiet {
            let absence = exists ? "" : ", which doesn't exist yet; waiting for it"
            let help = isatty(STDERR_FILENO) == 1 ? explanation : ""
            Output.write("watching \(PrintablePath(store.path))\(absence)\(help)", to: STDERR_FILENO)
        }
    }

    /// What follows, for a person who waits at a terminal.
    private var explanation: String {
        exec == nil
            ? ": each commit by any program prints a line here; Ctrl-C ends"
            : ": each commit by any program runs the command; Ctrl-C ends"
    }

    private func summarize(_ outcome: String, token: String, to output: Output) {
        guard output.json else { return }
        output.record(["type": "summary", "outcome": .string(outcome), "token": .string(token)], "")
    }
}
