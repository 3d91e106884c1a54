import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `groupstore watch`.
@Suite(.ownThreads) struct WatchTests {
    private struct Scene {
        let places: Places
        let store: FilePath
        let agent: AgentProcess

        init() throws {
            places = try Places()
            store = places.group.appending("Notes.sqlite")
            try makeStore(store, rows: 1)
            agent = try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
        }

        /// Starts a `watch` and returns once it is subscribed. Its output is that of `--json`.
        func watch(_ words: Word...) throws -> RunningProcess {
            let watch = try RunningProcess(
                Programs.groupstore, ["watch", "\(AgentProcess.group)/Notes.sqlite", "--json"] + words,
                environment: agent.environment)
            try watch.line { JSONObject(line: $0)?.type == "subscribed" }
            return watch
        }

        func commit() throws { try sqlite(store, "INSERT INTO note (text) VALUES ('later')") }
    }

    @Test func saysAtOnceThatTheAgentIsGoneAndBack() throws {
        let scene = try Scene()
        let watch = try scene.watch()
        try scene.agent.process.killAtOnce()
        try watch.line(.errors) { $0.contains("the agent at \(scene.agent.socket) is gone") }
        try scene.commit()
        let agent = try AgentProcess(scene.places, legacy: [scene.places.legacy.appending("Notes.sqlite")])
        try watch.line(.errors) { $0 == "groupstore: the agent is back" }
        let reset = try watch.line { JSONObject(line: $0)?.type == "reset" }
        #expect(JSONObject(line: reset)?.string("reason") == "epoch")
        try scene.commit()
        try watch.line { JSONObject(line: $0)?.type == "change" }
        #expect(try agent.stop().status == 0)
    }

    /// Like one that is gone later: it may be restarting.
    @Test func waitsForAnAgentThatEndsWhileItConnects() throws {
        let places = try Places()
        try makeStore(places.group.appending("Notes.sqlite"), rows: 1)
        let socket = places.scratch("agent.sock")
        let listener = try UnixSocket.listen(at: socket)
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", "\(AgentProcess.group)/Notes.sqlite", "--json", "--agent"],
            environment: AgentProcess.environment(socket))
        var isReadable = pollfd(fd: listener.raw, events: Int16(POLLIN), revents: 0)
        #expect(poll(&isReadable, 1, 60_000) == 1)
        do { _ = try UnixSocket.accept(on: listener) }
        _ = consume listener
        unlink(socket.string)
        try watch.line(.errors) { $0 == "groupstore: the agent at \(socket) is gone; waiting 30 s for it" }
        let agent = try AgentProcess(places, legacy: [])
        try watch.line { JSONObject(line: $0)?.type == "subscribed" }
        #expect(try agent.stop().status == 0)
    }

    /// Like the libraries: the agent may be restarting, so its absence is waited for.
    @Test(.soak) func watchesTheFilesOnceTheAgentStaysAway() throws {
        let scene = try Scene()
        let tokens = scene.places.scratch("tokens")
        let watch = try scene.watch("--token-file", Word(tokens))
        try scene.agent.process.killAtOnce()
        try scene.commit()
        try watch.line(.errors) { $0 == "groupstore: watching \(scene.store) without the agent" }
        let reset = try #require(JSONObject(line: try watch.line { JSONObject(line: $0)?.type == "reset" }))
        #expect(reset.string("reason") == "epoch")
        #expect(reset.string("store") == "\(AgentProcess.group)/Notes.sqlite")
        try scene.commit()
        let change = try #require(JSONObject(line: try watch.line { JSONObject(line: $0)?.type == "change" }))
        #expect(change.string("store") == reset.string("store") && change.string("token") != reset.string("token"))
        watch.signal(SIGINT)
        let done = try watch.wait()
        #expect(done.status == 130 && done.summary.string("token") == change.string("token"), "\(done.output)")
    }

    /// Its rows and filters can't be had from the files alone.
    @Test(.soak) func endsIfOnlyTheAgentCouldDoWhatItIsAskedFor() throws {
        let scene = try Scene()
        let watch = try scene.watch("--agent")
        try scene.agent.process.killAtOnce()
        try watch.line(.errors) { $0.contains("is gone; waiting 30 s for it, then ending") }
        #expect(try watch.wait().status == 69)
    }

    @Test func onceEndsAfterTheFirstChange() throws {
        let scene = try Scene()
        let watch = try scene.watch("--once")
        try scene.commit()
        let done = try watch.wait()
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.objects.filter { $0.type == "change" }.count == 1)
        #expect(done.lines.count == done.objects.count)
        #expect(done.summary.type == "summary")
    }

    @Test func exitsWith75AfterATimeout() throws {
        let scene = try Scene()
        let done = try scene.watch("--once", "--timeout", "0.2").wait()
        #expect(done.status == 75, "\(done.errors)")
    }

    @Test(arguments: [SIGINT, SIGTERM]) func printsASummaryAfterASignal(_ number: CInt) throws {
        let scene = try Scene()
        let watch = try scene.watch()
        try scene.commit()
        let change = try watch.line { JSONObject(line: $0)?.type == "change" }
        watch.signal(number)
        let done = try watch.wait()
        #expect(done.status == 130, "\(done.errors)")
        #expect(done.summary.string("outcome") == "interrupted")
        #expect(done.summary.string("token") == JSONObject(line: change)?.string("token"))
    }

    @Test func execRunsACommandForAChange() throws {
        let scene = try Scene()
        let file = scene.places.scratch("file")
        let watch = try scene.watch("--once", "--exec", "echo $GROUPSTORE_EVENT > '\(file)'")
        try scene.commit()
        let done = try watch.wait()
        #expect(done.status == 0, "\(done.errors)")
        #expect(try run("cat", [Word(file)]).output == "change\n")
    }

    /// Returns a command that prints its event, then waits for its exit status from a pipe.
    private func gated(_ scene: Scene) throws -> (command: String, gate: FilePath) {
        let gate = scene.places.scratch("gate")
        try run("mkfifo", [Word(gate)])
        let names = ["EVENT", "SINCE", "TOKEN", "TABLES", "COMPLETE"].map { "$GROUPSTORE_\($0)" }
        return ("echo run \(names.joined(separator: " ")); read status < '\(gate)'; exit $status", gate)
    }

    private func open(_ gate: FilePath, status: Int) throws {
        try run("sh", ["-c", "echo \(status) > '\(gate)'"])
    }

    /// Returns the words after "run" of the next run.
    private func nextRun(_ watch: RunningProcess) throws -> [Substring] {
        let line = try watch.line { $0.hasPrefix("run ") }
        return line.split(separator: " ").dropFirst().map { $0 }
    }

    @Test func changesDuringARunCauseOneMoreRun() throws {
        let scene = try Scene()
        let (command, gate) = try gated(scene)
        let watch = try scene.watch("--exec", Word(command))
        try scene.commit()
        let first = try nextRun(watch)
        for _ in 1...20 { try scene.commit() }
        // Uses a barrier's answer, because a new subscriber may still receive the previous commit.
        let subscriber = try scene.agent.subscribe("Notes.sqlite")
        try subscriber.send(["id": "sync", "op": "sync", "store": .string("\(AgentProcess.group)/Notes.sqlite")])
        let last = try #require(try subscriber.next { $0["id"] == "sync" }.string("token"))
        // The watch receives all commits, and runs no other command meanwhile.
        try watch.line {
            #expect(!$0.hasPrefix("run "))
            return $0.contains(last)
        }
        try open(gate, status: 0)
        let second = try nextRun(watch)
        #expect(second[1] == first[2])
        #expect(second[2] == last)
        try open(gate, status: 0)
        try watch.killAtOnce(group: true)
    }

    @Test func repeatsAFailedRunWithLaterChanges() throws {
        let scene = try Scene()
        let (command, gate) = try gated(scene)
        let tokens = scene.places.scratch("token")
        let watch = try scene.watch("--exec", Word(command), "--token-file", Word(tokens))
        let start = try run("cat", [Word(tokens)]).output
        try scene.commit()
        let first = try nextRun(watch)
        #expect("\(first[1])\n" == start)
        try open(gate, status: 3)
        try watch.line(.errors) { $0.hasSuffix("exit status 3") }
        #expect(try run("cat", [Word(tokens)]).output == start)
        let again = try nextRun(watch)
        #expect(again[0] == "change")
        #expect(again[1] == first[1])
        try open(gate, status: 0)
        // The next run starts once this run's token is stored.
        try scene.commit()
        #expect(try nextRun(watch)[1] == again[2])
        #expect(try run("cat", [Word(tokens)]).output == "\(again[2])\n")
        try watch.killAtOnce(group: true)
    }

    /// A watch that is killed during a run runs the command again for the same event.
    @Test func repeatsAnUnfinishedRunInTheNextWatch() throws {
        let scene = try Scene()
        let (command, _) = try gated(scene)
        let tokens = scene.places.scratch("token")
        let killed = try scene.watch("--exec", Word(command), "--token-file", Word(tokens))
        try scene.commit()
        let first = try nextRun(killed)
        try killed.killAtOnce(group: true)
        let file = scene.places.scratch("file")
        let done = try scene.watch(
            "--once", "--exec", "echo $GROUPSTORE_EVENT $GROUPSTORE_SINCE $GROUPSTORE_TOKEN > '\(file)'",
            "--token-file", Word(tokens)
        ).wait()
        #expect(done.status == 0, "\(done.errors)")
        // The token may be a later one: an agent that is held up may report a commit twice.
        let again = try run("cat", [Word(file)]).output.split { " \n".contains($0) }
        try #require(again.count == 3)
        #expect(again[..<2] == ["change", first[1]])
        #expect(try run("cat", [Word(tokens)]).output == "\(again[2])\n")
    }

    @Test func aSignalEndsTheWatchAfterItsCommand() throws {
        let scene = try Scene()
        let (command, gate) = try gated(scene)
        let tokens = scene.places.scratch("token")
        let watch = try scene.watch("--exec", Word(command), "--token-file", Word(tokens))
        try scene.commit()
        let first = try nextRun(watch)
        watch.signal(SIGTERM)
        try watch.line(.errors) { $0.contains("a second signal doesn't") }
        try open(gate, status: 0)
        #expect(try watch.wait().status == 130)
        #expect(try run("cat", [Word(tokens)]).output == "\(first[2])\n")
    }

    @Test func onceReportsAFailedCommand() throws {
        let scene = try Scene()
        let watch = try scene.watch("--once", "--exec", "exit 9")
        try scene.commit()
        let done = try watch.wait()
        #expect(done.status == 75, "\(done.errors)")
        #expect(done.summary.object("error")?.string("code") == "command_failed")
    }

    @Test func refusesAFileWithoutAToken() throws {
        let scene = try Scene()
        let file = scene.places.scratch("token")
        try write("no token at all", to: file)
        let done = try groupstore(
            "watch", "\(AgentProcess.group)/Notes.sqlite", "--token-file", Word(file),
            environment: scene.agent.environment)
        #expect(done.status == 65, "\(done.errors)")
        #expect(try run("cat", [Word(file)]).output == "no token at all")
    }

    @Test func acceptsAPathToTheStore() throws {
        let scene = try Scene()
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", Word(scene.store), "--once"], environment: scene.agent.environment)
        try watch.line(.errors) { $0.hasPrefix("watching ") }
        try scene.commit()
        let done = try watch.wait()
        #expect(done.status == 0, "\(done.errors)")
        // The token is for programs.
        let words = done.output.split(separator: "  ")
        #expect(words.count == 4 && words[1] == "change", "\(done.output)")
    }

    @Test func tellsAPersonAtATerminalWhatToExpect() throws {
        let scene = try Scene()
        let command = "'\(Programs.groupstore)' watch --direct --once '\(scene.store)'"
        let terminal = try RunningProcess("script", ["-qec", Word(command), "/dev/null"])
        try terminal.line { $0.contains("\(scene.store): each commit by any program prints a line here; Ctrl-C ends") }
        try scene.commit()
        try terminal.line { $0.contains("  change  \(scene.store)  ") }
        #expect(try terminal.wait().status == 0)
    }

    @Test func sinceReportsMissedChanges() throws {
        let scene = try Scene()
        let subscriber = try scene.agent.subscribe("Notes.sqlite")
        try scene.commit()
        let token = try #require(try subscriber.next("change").string("token"))
        try scene.commit()
        try subscriber.next("change")
        let done = try groupstore(
            "watch", "\(AgentProcess.group)/Notes.sqlite", "--since", Word(token), "--once", "--json", "--timeout",
            "30",
            environment: scene.agent.environment)
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.objects.contains { $0.type == "change" && $0.string("token") != token })
    }

    @Test func exitsWith130AfterASignal() throws {
        let scene = try Scene()
        let watch = try scene.watch()
        watch.signal(SIGINT)
        #expect(try watch.wait().status == 130)
    }

    /// Output that can't be written is repeated for a client that passes the token.
    @Test func repeatsUnprintedEvents() throws {
        let scene = try Scene()
        let file = scene.places.scratch("token")
        let command =
            "'\(Programs.groupstore)' watch \(AgentProcess.group)/Notes.sqlite --token-file '\(file)' > /dev/full"
        let watch = try RunningProcess("sh", ["-c", Word(command)], environment: scene.agent.environment)
        try watch.line(.errors) { $0.contains("watching") }
        let token = try run("cat", [Word(file)]).output
        try scene.commit()
        let done = try watch.wait()
        #expect(done.status == 74 && done.errors.contains("standard output"), "\(done.errors)")
        #expect(try run("cat", [Word(file)]).output == token)
    }

    @Test func filtersRowsAndKeepsATokenFileAcrossAgents() throws {
        let scene = try Scene()
        try sqlite(scene.store, "PRAGMA journal_mode = WAL")
        #expect(try groupstore("history", "enable", Word(scene.store)).status == 0)
        let shell = try sqliteShell(scene.store)
        let watcher = try awaitCompleteChanges(scene.agent) {
            try shell.execute("INSERT INTO note (text) VALUES ('before')")
        }
        let tokens = Word(scene.places.scratch("token"))
        let watch = try scene.watch("--operations", "delete", "--rows", "--token-file", tokens)
        try scene.commit()
        try shell.execute("DELETE FROM note WHERE text = 'later'")
        let change = try #require(JSONObject(line: try watch.line { JSONObject(line: $0)?.type == "change" }))
        #expect(change.objects("rows").map { $0.string("op") } == ["delete"], "\(change.text)")
        withExtendedLifetime(watcher) {}
        // The watch stores the token before it waits for the next line.
        try scene.commit()
        try shell.execute("DELETE FROM note WHERE text = 'later'")
        try watch.line { JSONObject(line: $0)?.type == "change" }
        try watch.killAtOnce()
        try scene.agent.process.killAtOnce()
        let heir = try AgentProcess(scene.places, legacy: [scene.places.legacy.appending("Notes.sqlite")])
        let subscriber = try heir.subscribe("Notes.sqlite")
        let again = try scene.watch("--operations", "delete", "--rows", "--token-file", tokens)
        try scene.commit()
        try subscriber.next("change")
        try shell.execute("DELETE FROM note WHERE text = 'later'")
        let line = try again.line { ["change", "reset"].contains(JSONObject(line: $0)?.type ?? "") }
        #expect(JSONObject(line: line)?.type == "change", "\(line)")
        try again.killAtOnce()
        #expect(try groupstore("watch", "x/y", "--operations", "upsert").status == 64)
    }
}
