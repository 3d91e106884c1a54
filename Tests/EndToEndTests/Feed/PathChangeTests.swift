import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The agent notices every change on the way to a configured path, and follows the store that is there afterwards.
@Suite(.ownThreads) struct PathChangeTests {
    private static let store = "\(AgentProcess.group)/Notes.sqlite"
    private let root: TemporaryDirectory

    init() throws { root = try TemporaryDirectory() }

    private func path(_ relative: String) -> FilePath { root.path.pushing(FilePath(relative)) }

    private func script(_ commands: String) throws {
        let done = try run("sh", ["-e", "-c", Word("cd '\(root.path)'\n" + commands)])
        guard done.status == 0 else { throw Unexpected("sh: \(done.errors)") }
    }

    private func makeNotes(_ directories: String...) throws {
        for directory in directories {
            try script("mkdir -p \(directory)")
            try sqlite(path(directory).appending("Notes.sqlite"), "CREATE TABLE note (id INTEGER PRIMARY KEY, text)")
        }
    }

    private func agent(_ group: String, legacy: [Word] = []) throws -> AgentProcess {
        try AgentProcess(
            ["--group", "\(AgentProcess.group)=" + Word(path(group))] + legacy, socket: path("agent.sock"))
    }

    /// Expects the agent to follow the store that is at the configured path now.
    private func expectIsFollowed(_ group: String, _ subscriber: WireConnection) throws {
        try sqlite(path(group).appending("Notes.sqlite"), "INSERT INTO note (text) VALUES ('a commit')")
        try subscriber.next("change")
    }

    /// Expects one reset, or two if the agent checked between two moves, when no store was there. On a busy machine,
    /// the commit before them may be told twice.
    private func expectIsReplaced(_ subscriber: WireConnection) throws {
        let reason = try subscriber.next("reset").string("reason")
        guard reason == "vanished" else { return #expect(reason == "replaced") }
        #expect(try subscriber.next("reset").string("reason") == "appeared")
    }

    @Test(
        arguments: [
            ("x/y/z/group", "mv x old; mv new x"), ("x/y/z/group", "mv x/y/z old; mv new/y/z x/y/z"),
            ("link/y/z/group", "ln -s new t; mv -T t link"), ("link/y/z/group", "mv x old; mv new x"),
        ], [false, true])
    func reportsAChangeOfAParentAsAReset(_ way: (group: String, change: String), isOpen: Bool) throws {
        let (group, change) = way
        try makeNotes("x/y/z/group", "new/y/z/group")
        try script("ln -s x link")
        // An app that keeps the store open keeps its log, wherever the store is moved.
        let app = isOpen ? try sqliteShell(path(group).appending("Notes.sqlite")) : nil
        try app?.execute("PRAGMA journal_mode = WAL; SELECT count(*) FROM note")
        let agent = try agent(group)
        let subscriber = try agent.subscribe("Notes.sqlite")
        try expectIsFollowed(group, subscriber)
        try script(change)
        try expectIsReplaced(subscriber)
        try expectIsFollowed(group, subscriber)
        let status = try groupstore("status", "--json", environment: agent.environment)
        #expect(status.output.contains(#""state":"following""#))
        try app?.killAtOnce()
    }

    @Test func relocatesALegacyStoreInAReplacedDirectory() throws {
        try script("mkdir -p group home/.var/app/data backup/app/data")
        let legacy = path("home/.var/app/data/Notes.sqlite")
        let agent = try agent("group", legacy: ["--legacy", Word(legacy)])
        try makeStore(path("backup/app/data/Notes.sqlite"), rows: 10)
        try script("mv home/.var home/old; mv backup home/.var")
        try agent.process.line(.errors) { $0.contains("relocated") }
        #expect(try noteCount(path("group/Notes.sqlite")) == 10)
    }

    /// Starts a shell in its own namespace with an agent, and subscribes to the store.
    private func subscribedShell(_ script: String) throws -> (RunningProcess, WireConnection) {
        let socket = path("agent.sock")
        let shell = try RunningProcess(
            "unshare", Namespaces.flags + ["sh", "-c", Word(script)], environment: AgentProcess.environment(socket))
        try shell.line(.errors) { $0.contains("serving") }
        let subscriber = try WireConnection(socket)
        try subscriber.send(["id": 1, "op": "subscribe", "store": .string(Self.store)])
        try subscriber.next { $0["id"] == .integer(1) }
        return (shell, subscriber)
    }

    /// `docker run -v FILE:FILE` mounts a file like this. A write raises its events in the directory that the file
    /// comes from.
    @Test(.enabled(if: Namespaces.areAvailable, "needs unshare(1) and the right to make user namespaces"))
    func followsAStoreMountedByItself() throws {
        try makeNotes("elsewhere")
        try script("mkdir group; touch group/Notes.sqlite")
        let (store, mounted) = (path("elsewhere/Notes.sqlite"), path("group/Notes.sqlite"))
        let commits = ["MEMORY", "OFF", "DELETE", "TRUNCATE", "PERSIST"].map { mode in
            "read line; sqlite3 '\(mounted)' 'PRAGMA journal_mode = \(mode); INSERT INTO note (text) VALUES (1)'"
        }
        let script = """
            mount --bind '\(store)' '\(mounted)'
            '\(Programs.groupstore)' agent --group '\(AgentProcess.group)=\(path("group"))' &
            \(commits.joined(separator: "\n"))
            read line; kill $!; wait
            """
        let (shell, subscriber) = try subscribedShell(script)
        for _ in commits {
            shell.send("go on")
            try subscriber.next("change")
        }
        shell.send("go on")
        try shell.wait()
    }

    /// A mount inside a directory isn't visible in a mount over that directory, even if both mounts show the same
    /// directory.
    @Test(
        .enabled(if: Namespaces.areAvailable, "needs unshare(1) and the right to make user namespaces"),
        arguments: ["group", "."])
    func noticesADirectoryMountedOverItself(_ covered: String) throws {
        try makeNotes("group", "elsewhere")
        let (store, other) = (path("group/Notes.sqlite"), path("elsewhere/Notes.sqlite"))
        let place = covered == "." ? root.path : path(covered)
        let script = """
            mount --bind '\(other)' '\(store)'
            '\(Programs.groupstore)' agent --group '\(AgentProcess.group)=\(path("group"))' &
            read line; mount --bind '\(place)' '\(place)'
            read line; sqlite3 '\(store)' "INSERT INTO note (text) VALUES ('below')"
            read line; umount -l '\(place)'
            read line; kill $!; wait
            """
        let (shell, subscriber) = try subscribedShell(script)
        for expected in ["reset", "change", "reset"] {
            shell.send("go on")
            #expect(try subscriber.next("reset", "change").type == expected)
        }
        shell.send("go on")
        try shell.wait()
    }

    /// The kernel doesn't report changes to an overlay's layers or by other machines. SIGHUP makes the agent check
    /// anyway.
    @Test func aHangupRechecksAllPaths() throws {
        try makeNotes("group")
        let agent = try agent("group")
        let subscriber = try agent.subscribe("Notes.sqlite")
        agent.process.signal(SIGHUP)
        try agent.process.line(.errors) { $0.contains("rechecking all paths") }
        try expectIsFollowed("group", subscriber)
    }

    /// A disk may be mounted above both later.
    @Test func waitsForADirectoryWhoseParentIsMissing() throws {
        let group = path("none").pushing("parent/group")
        let socket = path("agent.sock")
        let agent = try AgentProcess(["--group", "\(AgentProcess.group)=" + Word(group)], socket: socket)
        let create = "groupstore group create \(AgentProcess.group) --directory \(group)"
        try agent.process.line(.errors) { $0.contains(create) }
        let subscriber = try agent.subscribe("Notes.sqlite")
        try run("mkdir", ["-p", Word(group)])
        try makeStore(group.appending("Notes.sqlite"), rows: 1)
        #expect(try subscriber.next("reset").string("reason") == "appeared")
        try sqlite(group.appending("Notes.sqlite"), "INSERT INTO note (text) VALUES ('later')")
        _ = try subscriber.next("change")
        #expect(try agent.stop().status == 0)
    }

    /// `status` and `doctor` report a store in a directory that can't be watched.
    @Test(.enabled(if: Namespaces.canLimitWatches, "a namespace's watches can't be limited here"))
    func reportsAnUnwatchedStoreAsNotFollowed() throws {
        try makeNotes("group")
        try write(
            """
            groups:
              - id: \(AgentProcess.group)
                directory: \(path("group"))
                stores: [{ name: Notes.sqlite }]
            """, to: path("config.yaml"))
        let script = """
            echo 1 > /proc/sys/user/max_inotify_watches
            '\(Programs.groupstore)' agent --config '\(path("config.yaml"))' &
            read line; kill $!; wait
            """
        let socket = path("agent.sock")
        let shell = try RunningProcess(
            "unshare", Namespaces.flags + ["sh", "-c", Word(script)], environment: AgentProcess.environment(socket))
        try shell.line(.errors) { $0.contains("can't be watched") && $0.contains("ENOSPC") }
        try shell.line(.errors) { $0.contains("serving") }
        let status = try groupstore("status", "--json", environment: AgentProcess.environment(socket))
        #expect(status.output.contains(#""state":"unwatched""#), "\(status.output)")
        let doctor = try groupstore("doctor", environment: AgentProcess.environment(socket))
        #expect(doctor.status == 78)
        #expect(doctor.output.contains("not followed (unwatched)"), "\(doctor.output)")
        shell.send("go on")
        try shell.wait()
    }
}
