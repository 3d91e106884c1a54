import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The rows that are told from pages when files move under whoever follows them, or events are lost.
@Suite(.ownThreads) struct LostRowEventTests {
    private static let table = "PRAGMA journal_mode = WAL; CREATE TABLE t (id INTEGER PRIMARY KEY, x TEXT)"

    /// A `watch --values` of a scene's store.
    private final class Watch {
        let process: RunningProcess
        /// The types of the lines that were read; the reason of a reset.
        private(set) var found: [String] = []

        init(_ scene: RowsScene, _ words: Word..., environment: [String: String] = [:]) throws {
            process = try RunningProcess(
                Programs.groupstore, ["watch", "--values", "--json"] + words,
                environment: scene.agent.environment.merging(environment) { $1 })
            _ = try next("subscribed", "watching")
            found = []
        }

        /// Returns the next line of one of the types, or a reset with one of the reasons.
        @discardableResult
        func next(_ types: String...) throws -> JSONObject {
            var last = JSONObject()
            try process.line {
                guard let line = JSONObject(line: $0) else { return false }
                last = line
                let type = line.type == "reset" ? line.string("reason") : line.type
                found.append(type ?? "")
                return types.contains(type ?? "")
            }
            return last
        }
    }

    private static func copyName(_ line: JSONObject) -> String? {
        line.string("token").flatMap { SubscriptionToken($0)?.history }?.split(separator: ".").dropFirst().first
            .map { String($0) }
    }

    /// Nothing may be made where the directory is to come back, and no answer may end a subscriber.
    @Test func tellsTheRowsOfAGroupThatIsMovedAwayAndBack() throws {
        let scene = try RowsScene(Self.table)
        let watch = try Watch(scene, "--agent", Word(scene.name))
        let writer = try sqliteShell(scene.store)
        try writer.execute("INSERT INTO t VALUES (1, 'a')")
        #expect(try watch.next("row")["key"] == 1)
        let (group, away) = (scene.places.group, scene.places.scratch("away"))
        try #require(rename(group.string, away.string) == 0)
        try watch.next("vanished")
        try writer.execute("INSERT INTO t VALUES (2, 'b')")
        for _ in 1...3 {
            let reply = try scene.ask(["op": "changes"]).reply
            #expect(reply.object("error")?.string("code") == "no_such_store", "\(reply.text)")
        }
        #expect(FileStatus(following: group) == nil)
        #expect(try groupstore("status", "--check", environment: scene.agent.environment).status == 0)
        try #require(rename(away.string, group.string) == 0)
        try watch.next("appeared")
        #expect(try watch.next("row", "epoch")["key"] == 2)
        try writer.execute("INSERT INTO t VALUES (3, 'c')")
        #expect(try watch.next("row", "epoch")["key"] == 3)
        writer.closeInput()
        try writer.wait()
        try watch.process.killAtOnce()
    }

    /// What follows is of another store, and belongs neither into the former one's log nor beside it.
    @Test func aGroupThatTakesThePlaceOfAnotherHasACopyOfItsOwn() throws {
        let scene = try RowsScene("\(Self.table); INSERT INTO t VALUES (1, 'a')")
        let token = try scene.token()
        let (group, away) = (scene.places.group, scene.places.scratch("away"))
        let other = scene.places.scratch("other")
        try #require(mkdir(other.string, 0o755) == 0)
        try sqlite(other.appending("Notes.sqlite"), "\(Self.table); INSERT INTO t VALUES (7, 'secret')")
        try #require(rename(group.string, away.string) == 0 && rename(other.string, group.string) == 0)
        let (lines, reply) = try scene.ask(["op": "changes", "values": true, "since": .string(token)])
        #expect(lines.map { $0.string("reason") } == ["epoch"], "\(reply.text)")
        #expect(FileStatus(following: group.appending(".groupstore/rows/Notes.sqlite/0/pages")) != nil)
        #expect(try run("grep", ["-rq", "secret", Word(away)]).status == 1)
    }

    /// Rows lead on from the reset that says so, in the copy of the file that came.
    @Test func anotherFileIsOneResetWithATokenOfItsCopy() throws {
        let scene = try RowsScene("\(Self.table); INSERT INTO t VALUES (1, 'a')")
        let before = try scene.token()
        let watch = try Watch(scene, "--agent", Word(scene.name))
        let other = scene.places.group.appending("other.db")
        try sqlite(other, "\(Self.table); INSERT INTO t VALUES (2, 'b')")
        try #require(rename(other.string, scene.store.string) == 0)
        let reset = try watch.next("replaced", "epoch")
        #expect(try Self.copyName(reset) == Self.copyName(["token": .string(scene.token())]))
        #expect(Self.copyName(reset) != Self.copyName(["token": .string(before)]))
        try sqlite(scene.store, "INSERT INTO t VALUES (3, 'c')")
        #expect(try watch.next("row", "epoch")["key"] == 3)
        #expect(try Self.copyName(watch.next("change")) == Self.copyName(reset))
        #expect(watch.found == ["replaced", "batch", "table", "row", "change"])
        try watch.process.killAtOnce()
    }

    /// An agent whose store's file was replaced, and that sends the second of two resets after another commit.
    private static let lateAgent = #"""
        import json, socket, sys, threading
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(sys.argv[1])
        listener.listen()
        print("ready", flush=True)
        def serve(connection):
            lines = connection.makefile("rw")
            def send(**line): print(json.dumps(line), file=lines, flush=True)
            def answer(**members): send(id=request["id"], **members)
            def event(reason, token): send(type="reset", store=request["store"], reason=reason, token=token)
            send(type="hello", proto=1, agent="test", max_line=32768)
            for text in lines:
                request = json.loads(text)
                since = request.get("since")
                if request["op"] == "status":
                    answer(type="group", group="g", directory="/")
                    answer(ok=True)
                elif request["op"] == "subscribe":
                    answer(ok=True, token="e-0/h1.pages-a.0.0", path="/g/Notes.sqlite", history=True)
                    event("replaced", "e-1/h1.pages-a.0.0")
                    event("epoch", "e-1/h1.pages-b.1.1.f")
                elif since == "h1.pages-a.0.0":
                    answer(type="reset", reason="epoch", token="h1.pages-b.0.0")
                    answer(ok=True, type="summary", outcome="reset", token="h1.pages-b.0.0")
                else:
                    if since == "h1.pages-b.0.0":
                        answer(type="row", number=1, table="t", op="insert", key=1, values=[1])
                    answer(ok=True, type="summary", outcome="changes", more=False, token="h1.pages-b.1.1.f")
        while True: threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
        """#

    /// The reset that isn't told again has a position after rows that weren't told yet.
    @Test func aResetThatIsNotToldAgainPassesNoRow() throws {
        let places = try Places()
        let (socket, tokenFile) = (places.scratch("agent.sock"), places.scratch("token"))
        let agent = try RunningProcess("/usr/bin/env", ["python3", "-c", Word(Self.lateAgent), Word(socket)])
        #expect(try agent.line() == "ready")
        let watch = try RunningProcess(
            Programs.groupstore,
            ["watch", "--agent", "--values", "--json", "--token-file", Word(tokenFile), "g/Notes.sqlite"],
            environment: AgentProcess.environment(socket))
        var lines: [JSONObject] = []
        while lines.last?.type != "change" { lines.append(try #require(JSONObject(line: watch.line() ?? ""))) }
        #expect(lines.map(\.type) == ["subscribed", "reset", "row", "change"])
        #expect(lines[1].string("token") == "e-1/h1.pages-b.0.0")
        #expect(lines[3].string("token") == "e-1/h1.pages-b.1.1.f")
        try watch.killAtOnce()
        try agent.killAtOnce()
    }

    /// Renames a file until the kernel's queue is full.
    private func overflowQueue(in directory: FilePath) throws {
        let path: FilePath = "/proc/sys/fs/inotify/max_queued_events"
        let text = try Descriptor(opening: path, flags: O_RDONLY).read(count: 32, at: 0)
        let limit = try #require(Int(String(decoding: text.prefix { $0 != 0x0A }, as: UTF8.self)))
        let (one, other) = (directory.appending("one").string, directory.appending("two").string)
        _ = try Directory(directory).open("one", flags: O_WRONLY | O_CREAT, mode: 0o600)
        for _ in 0...(limit / 4 + 25) { #expect(rename(one, other) == 0 && rename(other, one) == 0) }
    }

    /// The pages tell what was missed, as after a time without a watch.
    @Test(arguments: [true, false]) func lostEventsOfTheKernelAreNoReset(hasAgent: Bool) throws {
        let scene = try RowsScene(Self.table)
        let state = ["XDG_STATE_HOME": scene.places.scratch("state").string]
        let watch =
            try hasAgent
            ? Watch(scene, "--agent", Word(scene.name))
            : Watch(scene, "--direct", Word(scene.store), environment: state)
        let follower = hasAgent ? scene.agent.process : watch.process
        try follower.suspend()
        try overflowQueue(in: scene.places.group)
        try sqlite(scene.store, "INSERT INTO t VALUES (1, 'a')")
        follower.signal(SIGCONT)
        #expect(try watch.next("row", "overflow")["key"] == 1)
        try watch.next("change", "overflow")
        #expect(watch.found.filter { !["batch", "table", "row"].contains($0) } == ["change"])
        try watch.process.killAtOnce()
    }
}
