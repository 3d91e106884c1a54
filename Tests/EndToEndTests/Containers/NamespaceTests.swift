import AgentProtocol
import EndToEndSupport
import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of agent and app in containers. Each has its own user, mount and PID namespaces; they share one group
/// directory and one socket.
@Suite(.ownThreads, .enabled(if: Namespaces.areAvailable, "needs unshare(1) and the right to make user namespaces"))
struct NamespaceTests {
    private func unshared(_ program: Word, _ arguments: [Word], environment: [String: String]) throws -> RunningProcess
    {
        try RunningProcess("unshare", Namespaces.flags + [program] + arguments, environment: environment)
    }

    private func agent(_ places: Places, legacy: [Word] = []) throws -> (RunningProcess, FilePath) {
        let socket = places.scratch("agent.sock")
        let agent = try unshared(
            Programs.groupstore, ["agent", "--group", "\(AgentProcess.group)=" + Word(places.group)] + legacy,
            environment: AgentProcess.environment(socket))
        try agent.line(.errors) { $0.contains("serving") }
        return (agent, socket)
    }

    private func app(_ places: Places, _ store: FilePath, _ socket: FilePath, rows: Int) throws -> RunningProcess {
        let app = try unshared(
            Programs.notesApp,
            [
                "\(AgentProcess.group)", "--directory", Word(places.group), "--legacy", Word(store), "--rows",
                "\(rows)", "--rate", "200",
            ], environment: AgentProcess.environment(socket))
        try app.line { $0.hasPrefix("open ") }
        return app
    }

    private func store(_ places: Places) throws -> FilePath {
        let store = places.legacy.appending("Notes.sqlite")
        try sqlite(store, "PRAGMA journal_mode = WAL; CREATE TABLE note (id INTEGER PRIMARY KEY, title TEXT)")
        return store
    }

    /// A mount raises no event in the directory that it hides.
    @Test func noticesAFileSystemMountedOverTheGroup() throws {
        let places = try Places()
        let socket = places.scratch("agent.sock")
        try sqlite(places.group.appending("Notes.sqlite"), "CREATE TABLE note (id INTEGER PRIMARY KEY)")
        let script = """
            '\(Programs.groupstore)' agent --group '\(AgentProcess.group)=\(places.group)' &
            read line; mount -t tmpfs tmpfs '\(places.group)'
            read line; sqlite3 '\(places.group)/Notes.sqlite' 'CREATE TABLE other (id)'
            read line; umount -l '\(places.group)'
            read line; kill $!; wait
            """
        let shell = try unshared("sh", ["-c", Word(script)], environment: AgentProcess.environment(socket))
        try shell.line(.errors) { $0.contains("serving") }
        let subscriber = try WireConnection(socket)
        try subscriber.send(["id": 1, "op": "subscribe", "store": .string("\(AgentProcess.group)/Notes.sqlite")])
        try subscriber.next { $0["id"] == .integer(1) }
        for reason in ["vanished", "appeared", "replaced"] {
            shell.send("go on")
            #expect(try subscriber.next("reset").string("reason") == reason)
        }
        shell.send("go on")
        try shell.wait()
    }

    /// Of two programs with lost files, the first has more than the disk can take twice.
    @Test func copiesTheBranchesThatFitOnTheDisk() throws {
        let places = try Places()
        let program = """
            import os, signal, sqlite3, subprocess, sys
            path, program = sys.argv[1:]
            for size in (3 << 20, 1000):
                ready, done = os.pipe()
                if os.fork() == 0:
                    store = sqlite3.connect(path, isolation_level=None)
                    for mode in ("journal_mode = WAL", "wal_autocheckpoint = 0"):
                        store.execute("PRAGMA " + mode).fetchall()
                    store.execute("CREATE TABLE t (v)")
                    store.execute("INSERT INTO t VALUES (zeroblob(?))", (size,))
                    os.write(done, b".")
                    signal.pause()
                os.read(ready, 1)
                for suffix in ("", "-wal", "-shm"):
                    os.unlink(path + suffix)
            print("exit", subprocess.run([program, "rescue", "--copy-only", path], stderr=subprocess.STDOUT).returncode)
            """
        let script = "mount -t tmpfs -o size=8m tmpfs '\(places.group)' && exec python3 -c \"$1\" \"$2\" \"$3\""
        let shell = try unshared(
            "sh",
            [
                "-c", Word(script), "sh", Word(program), Word(places.group.appending("Notes.sqlite")),
                Programs.groupstore,
            ], environment: [:])
        try shell.line { $0.contains("has committed is copied to") && $0.contains("branch-1") }
        try shell.line { $0.contains("has open is not copied") && $0.contains("full") }
        try shell.line { $0.hasPrefix("exit 74") }
        try shell.wait()
    }

    /// Raising a limit causes no event.
    @Test(.enabled(if: Namespaces.canLimitWatches, "a namespace's watches can't be limited here"))
    func retriesAnUnwatchableDirectory() throws {
        let places = try Places()
        let legacy = places.legacy.appending("Notes.sqlite")
        let socket = places.scratch("agent.sock")
        // The agent's own file takes the only watch.
        let script = """
            limit=/proc/sys/user/max_inotify_watches
            echo 1 > $limit
            '\(Programs.groupstore)' agent --group '\(AgentProcess.group)=\(places.group)' --legacy '\(legacy)' &
            read line; echo 1000 > $limit
            read line; kill $!; wait
            """
        let shell = try unshared("sh", ["-c", Word(script)], environment: AgentProcess.environment(socket))
        try shell.line(.errors) { $0.contains("legacy can't be watched") }
        try shell.line(.errors) { $0.contains("serving") }
        try makeStore(legacy, rows: 10)
        shell.send("go on")
        try shell.line(.errors) { $0.contains("relocated") }
        let subscriber = try WireConnection(socket)
        try subscriber.send(["id": 1, "op": "subscribe", "store": .string("\(AgentProcess.group)/Notes.sqlite")])
        #expect(try subscriber.next { $0["id"] == .integer(1) }.bool("ok") == true)
        shell.send("go on")
        try shell.wait()
    }

    /// `docker run -v FILE:FILE` makes the store a mount point, which can't be renamed.
    @Test(arguments: Places.FileSystem.allCases) func leavesAMountedStoreInPlace(_ fileSystem: Places.FileSystem) throws
    {
        let places = try Places(fileSystem)
        let store = try makeStore(places.scratch("Notes.sqlite"), rows: 10)
        let legacy = places.legacy.appending("Notes.sqlite")
        let script = """
            touch '\(legacy)'; mount --bind '\(store.path)' '\(legacy)' || exit 1
            '\(Programs.groupstore)' relocate '\(legacy)' '\(places.group)' --json
            """
        let refused = try unshared("sh", ["-c", Word(script)], environment: [:]).wait()
        #expect(refused.status == 74, "\(refused.errors)")
        #expect(refused.outcome == "refused")
        #expect(refused.errors.contains("mounted there"), "\(refused.errors)")
        #expect(try noteCount(store.path) == 10)
        #expect(try Directory(places.legacy).names() == ["Notes.sqlite"])
        #expect(try Directory(places.group).names().isEmpty)
    }

    @Test func presentsRelocatesAndNotifiesAcrossNamespaces() throws {
        let places = try Places()
        let store = try store(places)
        let (agent, socket) = try agent(places)
        defer { agent.signal(SIGTERM) }
        let subscriber = try WireConnection(socket)
        try subscriber.send(["id": 1, "op": "subscribe", "store": .string("\(AgentProcess.group)/Notes.sqlite")])
        try subscriber.next { $0["id"] == .integer(1) }
        let app = try app(places, store, socket, rows: 600)
        let done = try groupstore(
            "relocate", Word(store), Word(places.group), "--json", environment: AgentProcess.environment(socket))
        #expect(done.outcome == "relocated", "\(done.output)\(done.errors)")
        try subscriber.next("relocated")
        try subscriber.next("change")
        let ended = try app.wait()
        #expect(ended.output.contains("moved to "), "\(ended.output.suffix(300))")
        let rows = ended.lines.filter { $0.hasPrefix("row ") }.count
        #expect(rows == 600)
        #expect(try noteCount(places.group.appending("Notes.sqlite")) == rows)
    }

    @Test func namesAHolderInAnotherNamespace() throws {
        let places = try Places()
        let store = try store(places)
        let (agent, socket) = try agent(places)
        defer { agent.signal(SIGTERM) }
        let app = try app(places, store, socket, rows: 2000)
        // The app is the child of unshare(1), whose PID `app` has.
        let children = try run("pgrep", ["-P", "\(app.pid)"]).output.split(separator: "\n").compactMap { pid_t($0) }
        let child = try #require(children.first)
        kill(child, SIGSTOP)
        defer { kill(child, SIGKILL) }
        let refused = try groupstore(
            "relocate", Word(store), Word(places.group), "--deadline", "0.5", "--json",
            environment: AgentProcess.environment(socket))
        #expect(refused.status == 75, "\(refused.output)")
        #expect(refused.errors.contains("NotesApp (pid 1, in another PID namespace)"), "\(refused.errors)")
        #expect(refused.summary.objects("holders").first?.bool("elsewhere") == true, "\(refused.output)")
    }

    /// A holder that presents nothing can't be named from another PID namespace. The command reports that it is out of
    /// sight.
    @Test func reportsAnInvisibleHolder() throws {
        let places = try Places()
        let store = try store(places)
        let shell = try sqliteShell(store)
        let refused = try run(
            "unshare",
            Namespaces.flags + [
                Programs.groupstore, "relocate", Word(store), Word(places.group), "--deadline", "0.2", "--json",
            ], environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        #expect(refused.status == 75, "\(refused.output)")
        #expect(refused.errors.contains("in another PID namespace"), "\(refused.errors)")
        shell.closeInput()
        try shell.wait()
    }
}
