import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The Python package in `Clients/python`, in both of its forms.
@Suite(.ownThreads, .timeLimit(.minutes(60))) struct PythonClientTests {
    private let places: Places
    private let store: FilePath

    init() throws {
        places = try Places()
        store = places.group.appending("Notes.sqlite")
        try sqlite(store, "PRAGMA journal_mode = WAL; CREATE TABLE ZNOTE (text); CREATE TABLE ZTAG (text)")
    }

    private func agent() throws -> AgentProcess {
        try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
    }

    private func client(_ socket: FilePath, _ words: [Word]) throws -> RunningProcess {
        try RunningProcess(
            "python3", ["-m", "groupstore"] + words + ["\(AgentProcess.group)/Notes.sqlite"],
            environment: environment(socket))
    }

    private func environment(_ socket: FilePath) -> [String: String] {
        AgentProcess.environment(socket).merging(Programs.pythonClient) { $1 }
    }

    /// Returns the next line for the event.
    @discardableResult
    private func next(_ client: RunningProcess, _ event: String) throws -> JSONObject {
        let line = try client.line { JSONObject(line: $0)?.string("event") == event }
        return try #require(JSONObject(line: line))
    }

    private func commit(_ table: String = "ZNOTE") throws {
        try sqlite(store, "INSERT INTO \(table) VALUES ('later')")
    }

    @Test(arguments: [[], ["--async"]] as [[Word]])
    func receivesChangesAndReconnects(_ form: [Word]) throws {
        var agent = try agent()
        let client = try client(agent.socket, form)
        #expect(try next(client, "Reset").string("reason") == "subscribed")
        try commit()
        #expect(try next(client, "Changed").string("token") != nil)

        // The agent can't report a commit that happened while it was down. It reports that gap.
        try agent.process.killAtOnce()
        try next(client, "Disconnected")
        try commit()
        agent = try self.agent()
        #expect(try next(client, "Reset").string("reason") == "epoch")
        try commit()
        try next(client, "Changed")
        try client.killAtOnce()
    }

    @Test(arguments: [[], ["--async"]] as [[Word]])
    func continuesFromAToken(_ form: [Word]) throws {
        let agent = try agent()
        let subscriber = try agent.subscribe("Notes.sqlite")
        try commit()
        let token = try #require(try subscriber.next("change").string("token"))
        try commit("ZTAG")
        try subscriber.next("change")
        try commit()
        let last = try #require(try subscriber.next("change").string("token"))
        let client = try client(agent.socket, form + ["--tables", "ZNOTE", "--since", Word(token)])
        let event = try next(client, "Changed")
        #expect(event.string("token") == last)
        try client.killAtOnce()
    }

    /// Starts a program that uses the client.
    private func program(_ text: String, _ socket: FilePath, _ words: [Word] = []) throws -> RunningProcess {
        let preamble = """
            import asyncio, os, socket, sys, threading, time
            import groupstore
            STORE = "\(AgentProcess.group)/Notes.sqlite"

            """
        let source = places.scratch("program.py")
        try write(preamble + text, to: source)
        return try RunningProcess(
            "/usr/bin/env", ["python3", Word(source)] + words, environment: environment(socket))
    }

    /// The stopped agent accepts no connections: its backlog is full.
    @Test func enforcesTimeoutsWithAStoppedAgent() throws {
        let agent = try agent()
        try agent.process.suspend()
        let client = try program(
            """
            waiting = []
            while True:
                one = socket.socket(socket.AF_UNIX)
                one.setblocking(False)
                try:
                    one.connect(os.environ["GROUPSTORE_SOCKET"])
                    waiting.append(one)
                except BlockingIOError:
                    break
            changes = groupstore.Changes(STORE)
            print(changes.next(timeout=0.2), changes.next(timeout=0.2), flush=True)
            thread = threading.Thread(target=changes.next)
            thread.start()
            changes.close()
            thread.join()
            print("closed", flush=True)
            """, agent.socket)
        #expect(try client.line() == "Disconnected() None")
        #expect(try client.line() == "closed")
        agent.process.signal(SIGCONT)
        #expect(try client.wait().status == 0)
    }

    /// The peer sends answers that no agent would send. Each request ends with a documented error, in time.
    @Test func reportsAPeerThatIsNoAgent() throws {
        let client = try program(
            #"""
            LIES = [
                b"", b"nonsense\n", b"\xff\xfe\n", b"[1]\n", b"[" * 20000 + b"\n", b"x" * 40000,
                b'{"id":1,"ok":false,"error":7}\n', b'{"id":1,"ok":false,"error":{"holders":[7]}}\n',
                b'{"type":"relocating","token":"t","waiting_for":[7]}\n', b'{"ok":true,"token":[]}\n', None,
            ]
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(sys.argv[1])
            listener.listen()

            def lie(text, times):
                for _ in range(times):
                    connection = listener.accept()[0]
                    try:
                        if text is not None:
                            connection.sendall(text)
                        else:
                            while True:  # never a whole line, and never silent
                                connection.sendall(b" ")
                                threading.Event().wait(0.01)
                        connection.shutdown(socket.SHUT_WR)
                        connection.recv(65536)
                    except OSError:
                        pass
                    connection.close()

            said = []
            for text in LIES:
                thread = threading.Thread(target=lie, args=(text, 2))
                thread.start()
                try:
                    said.append(str(groupstore.ask("status", timeout=0.5, path=sys.argv[1])[0]["ok"]))
                except (groupstore.NoAgent, groupstore.Refused) as error:
                    said.append(type(error).__name__)
                changes = groupstore.Changes(STORE, path=sys.argv[1], wait=True)
                try:
                    said.append(str(changes.next(timeout=0.5)))
                except groupstore.Refused as error:
                    said.append(type(error).__name__)
                changes.close()
                thread.join()
            print(sorted(set(said)), flush=True)
            """#, places.scratch("liar.sock"), [Word(places.scratch("liar.sock"))])
        #expect(try client.line() == "['Disconnected()', 'NoAgent', 'None', 'True']")
        #expect(try client.wait().status == 0)
    }

    @Test func survivesATimedOutWaitAndClosesSilently() throws {
        let agent = try agent()
        let client = try program(
            """
            async def main():
                changes = groupstore.AsyncChanges(STORE)
                print(type(await changes.__anext__()).__name__, flush=True)
                try:
                    await asyncio.wait_for(changes.__anext__(), 0.1)
                except asyncio.TimeoutError:
                    print("none", flush=True)
                print(type(await changes.__anext__()).__name__, flush=True)
                async def rest():
                    return [event async for event in changes]
                task = asyncio.create_task(rest())
                await asyncio.sleep(0)
                await changes.aclose()
                print(await task, flush=True)
            asyncio.run(main())
            """, agent.socket)
        #expect(try client.line() == "Reset")
        #expect(try client.line() == "none")
        try commit()
        #expect(try client.line() == "Changed")
        #expect(try client.line() == "[]")
        #expect(try client.wait().status == 0)
    }

    @Test(arguments: [[], ["--async"]] as [[Word]])
    func connectsToAnAgentThatStartsLater(_ form: [Word]) throws {
        let client = try client(places.scratch("agent.sock"), form + ["--wait"])
        try next(client, "Disconnected")
        let agent = try agent()
        #expect(try next(client, "Reset").string("reason") == "subscribed")
        try commit()
        try next(client, "Changed")
        try client.killAtOnce()
        withExtendedLifetime(agent) {}
    }

    @Test(arguments: [[], ["--async"]] as [[Word]])
    func aRefusalEndsTheClient(_ form: [Word]) throws {
        let agent = try agent()
        let done = try run(
            "python3", ["-m", "groupstore"] + form + ["group.nobody/Notes.sqlite"],
            environment: environment(agent.socket))
        #expect(done.status == 1)
        #expect(done.errors.hasPrefix("groupstore: the agent does not serve group"), "\(done.errors)")
    }

    /// Closing from another thread, time-outs and cancellation leave nothing open.
    @Test func closesEverythingAtItsEnd() throws {
        let agent = try agent()
        let script = """
            import asyncio, os, sys, threading
            import groupstore
            store = sys.argv[1]
            opened = lambda: len(os.listdir("/proc/self/fd"))
            before = opened()
            for _ in range(20):
                with groupstore.Changes(store) as changes:
                    assert changes.next(timeout=30).reason == "subscribed"
                    assert changes.next(timeout=0.01) is None
            waiting = groupstore.Changes(store)
            waiting.next(timeout=30)
            timer = threading.Timer(0.05, waiting.close)
            timer.start()
            assert next(waiting, "ended") == "ended"
            timer.join()
            async def cancelled():
                async def listen():
                    async for _ in groupstore.AsyncChanges(store): pass
                tasks = [asyncio.create_task(listen()) for _ in range(20)]
                async def subscribed():
                    while groupstore.ask("status")[0]["subscribers"] < 20: await asyncio.sleep(0)
                await asyncio.wait_for(subscribed(), 30)
                for task in tasks: task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            asyncio.run(cancelled())
            assert opened() == before, (before, os.listdir("/proc/self/fd"))
            assert threading.active_count() == 1
            reply, rows = groupstore.ask("status")
            assert [row["type"] for row in rows][0] == "group"
            try:
                groupstore.ask("fly")
            except groupstore.Refused as refusal:
                assert refusal.code == "unknown_op"
            print("clean")
            """
        let done = try run(
            "python3", ["-c", Word(script), "\(AgentProcess.group)/Notes.sqlite"],
            environment: environment(agent.socket))
        #expect(done.output == "clean\n", "\(done.errors)")
    }

    @Test(arguments: [[], ["--async"]] as [[Word]])
    func filtersRowsAndKeepsTokensAcrossAgents(_ form: [Word]) throws {
        #expect(try groupstore("history", "enable", Word(store)).status == 0)
        let shell = try sqliteShell(store)
        var agent = try agent()
        let watcher = try awaitCompleteChanges(agent) { try shell.execute("INSERT INTO ZTAG VALUES ('before')") }
        let wishes: [Word] = ["--except-authors", "me", "--rows"]
        let client = try client(agent.socket, form + wishes)
        #expect(try next(client, "Reset").string("reason") == "subscribed")
        try shell.execute(
            "BEGIN; UPDATE GS_AUTHOR SET name = 'me'; INSERT INTO ZTAG VALUES ('mine'); UPDATE GS_AUTHOR SET name = NULL; COMMIT"
        )
        try shell.execute("INSERT INTO ZNOTE VALUES ('theirs')")
        let change = try next(client, "Changed")
        #expect(change.objects("rows").map { $0.string("table") } == ["ZNOTE"], "\(change.text)")
        withExtendedLifetime(watcher) {}
        // After the client reconnects to another agent, it receives the rows written meanwhile, without a reset.
        try agent.process.killAtOnce()
        try next(client, "Disconnected")
        try shell.execute("INSERT INTO ZTAG VALUES ('meanwhile')")
        agent = try self.agent()
        let line = try client.line { ["Changed", "Reset"].contains(JSONObject(line: $0)?.string("event") ?? "") }
        #expect(JSONObject(line: line)?.objects("rows").map { $0.string("table") } == ["ZTAG"], "\(line)")
        try client.killAtOnce()
    }
}
