import AgentProtocol
import CLinux
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The agent as the system and other programs see it.
@Suite(.ownThreads) struct AgentTests {
    private let socketName = "agent.sock"

    @Test func exitsWithZeroOnASignal() throws {
        let places = try Places()
        let agent = try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
        let subscriber = try agent.subscribe("Notes.sqlite")
        #expect(try agent.stop().status == 0)
        #expect(throws: (any Error).self) { try subscriber.next { _ in false } }
        #expect(try Directory(places.scratch(".")).status("agent.sock") == nil, "the socket is still there")
    }

    @Test func replacesOnlyADeadAgentsSocket() throws {
        let places = try Places()
        let legacy = [places.legacy.appending("Notes.sqlite")]
        let dead = try AgentProcess(places, legacy: legacy)
        try dead.process.killAtOnce()
        #expect(try Directory(places.scratch(".")).status("agent.sock") != nil)

        let live = try AgentProcess(places, legacy: legacy)
        let third = try AgentProcess(places, legacy: legacy, ready: false).process.wait()
        #expect(third.status == 75, "\(third.errors)")
        #expect(third.errors.contains("agent.sock"))
        _ = try live.subscribe("Notes.sqlite")
        #expect(try live.stop().status == 0)
    }

    private static var usesLibinotifytools: Bool {
        #if InotifyTools
            true
        #else
            false
        #endif
    }

    /// The agent reports the error itself; the inotify library would terminate the process on a number above
    /// select(2)'s limit.
    @Test(.enabled(if: usesLibinotifytools, "inotify(7) itself has no such limit"))
    func reportsTooManyInheritedFiles() throws {
        let places = try Places()
        let script = """
            import fcntl, os, resource, sys
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            while fcntl.fcntl(0, fcntl.F_DUPFD, 3) < 1100:
                pass
            os.execv(sys.argv[1], sys.argv[1:])
            """
        let done = try run(
            "python3",
            [
                "-c", Word(script), Programs.groupstore, "agent", "--group",
                "\(AgentProcess.group)=" + Word(places.group),
                "--legacy", Word(places.legacy.appending("Notes.sqlite")),
            ], environment: AgentProcess.environment(places.scratch("agent.sock")))
        #expect(done.status == 74, "\(done.status)")
        #expect(
            done.errors.contains("inotify_init: Too many open files") && done.errors.contains("fewer open files"),
            "\(done.errors)")
    }

    @Test func onlyTheOwnerMayUseTheSocket() throws {
        let places = try Places()
        let agent = try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
        let status = try #require(try Directory(places.scratch(".")).status("agent.sock"))
        #expect(status.permissions == 0o600)
        #expect(try agent.stop().status == 0)
    }

    /// The agent sends READY (sd_notify(3)) once it serves, and STOPPING when it is asked to end.
    @Test func reportsItsStateToSystemd() throws {
        let places = try Places()
        let path = places.scratch("notify.sock")
        let notices = Descriptor(owning: gs_socket_datagram())
        try #require(path.withPlatformString { gs_socket_bind(notices.raw, $0) } == 0)
        let process = try RunningProcess(
            Programs.groupstore, ["agent", "--group", "\(AgentProcess.group)=" + Word(places.group)],
            environment: ["NOTIFY_SOCKET": path.string, "GROUPSTORE_SOCKET": places.scratch("agent.sock").string])

        try awaitNotice("READY=1", notices)
        _ = try UnixSocket.connect(to: places.scratch("agent.sock"))
        process.signal(SIGTERM)
        try awaitNotice("STOPPING=1", notices)
        #expect(try process.wait().status == 0)
    }

    private func awaitNotice(_ notice: String, _ socket: borrowing Descriptor) throws {
        let deadline = Deadline(after: .ample)
        while !deadline.hasPassed {
            var wait = pollfd(fd: socket.raw, events: Int16(POLLIN), revents: 0)
            guard poll(&wait, 1, 1000) > 0 else { continue }
            var buffer = [UInt8](repeating: 0, count: 4096)
            let count = recv(socket.raw, &buffer, buffer.count, 0)
            let text = String(decoding: buffer.prefix(max(0, count)), as: UTF8.self)
            if text.split(separator: "\n").contains(Substring(notice)) { return }
        }
        throw Unexpected("no \(notice) in time")
    }

    @Test func aHangupReloadsTheConfiguration() throws {
        let places = try Places()
        let file = places.scratch("config.yaml")
        func configuration(_ names: String...) -> String {
            """
            groups:
              - id: \(AgentProcess.group)
                directory: \(places.group)
                stores:

            """ + names.map { "      - { name: \($0), legacy: [\(places.legacy)/\($0)] }\n" }.joined()
        }
        try write(configuration("First.sqlite"), to: file)
        let agent = try AgentProcess(["--config", Word(file)], socket: places.scratch(socketName))
        let first = try agent.subscribe("First.sqlite")
        let second = try makeStore(places.legacy.appending("Second.sqlite"), rows: 10, unflushed: true)

        // A broken configuration changes nothing; the agent reports it.
        try write("groups: [", to: file)
        agent.process.signal(SIGHUP)
        try agent.process.line(.errors) { $0.contains("config.yaml") }

        try write(configuration("First.sqlite", "Second.sqlite"), to: file)
        agent.process.signal(SIGHUP)
        try awaitRetirement(of: second, agent)
        #expect(try noteCount(places.group.appending("Second.sqlite")) == 10)

        // Existing subscriptions survive.
        try makeStore(places.legacy.appending("First.sqlite"), rows: 10)
        try first.next("relocated")
        #expect(try agent.stop().status == 0)
    }

    @Test func followsDirectoriesThatAppearAndDisappear() throws {
        let places = try Places()
        let directory = places.scratch("not").appending("yet").appending("there")
        let legacy = directory.appending("Notes.sqlite")
        let published = places.group.appending("Notes.sqlite")
        let agent = try AgentProcess(places, legacy: [legacy])
        let subscriber = try agent.subscribe("Notes.sqlite")
        for round in 1...3 {
            try run("mkdir", ["-p", Word(directory)])
            try makeStore(legacy, rows: round)
            try subscriber.next("relocated")
            #expect(try noteCount(published) == round)
            try run(
                "rm",
                ["-rf", Word(places.scratch("not")), Word(published), Word(places.group.appending(".groupstore"))])
            try run("rm", ["-rf", Word(try StoreFiles(published).support)])
            try subscriber.next("reset")
        }
        #expect(try agent.stop().status == 0)
    }

    @Test func followsAGroupDirectoryThatAppears() throws {
        let places = try Places()
        let group = places.scratch("later")
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let agent = try AgentProcess(
            ["--group", "\(AgentProcess.group)=" + Word(group), "--legacy", Word(store.path)],
            socket: places.scratch(socketName))
        let subscriber = try agent.subscribe("Notes.sqlite")
        try run("mkdir", ["-p", Word(group)])
        try subscriber.next("relocated")
        #expect(try noteCount(group.appending("Notes.sqlite")) == 10)
        #expect(try agent.stop().status == 0)
    }

    /// A set that is copied in arrives file by file, its `-wal` last.
    @Test func relocatesACopiedStoreWithItsWAL() throws {
        let places = try Places()
        let original = try makeStore(places.scratch("Notes.sqlite"), rows: 100, unflushed: true)
        let agent = try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
        let subscriber = try agent.subscribe("Notes.sqlite")
        let copy = try original.copy(to: places.legacy)
        try subscriber.next("relocated")
        #expect(try noteCount(places.group.appending("Notes.sqlite")) == 100)
        #expect(try holdsLinkAlone(copy.directory, to: places.group.appending("Notes.sqlite")))
        #expect(try agent.stop().status == 0)
    }

    @Test func theCommandAsksTheAgentThatServesTheGroup() throws {
        let places = try Places()
        let agent = try AgentProcess(places, legacy: [places.scratch("elsewhere.sqlite")])
        let subscriber = try agent.subscribe("Notes.sqlite")
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let done = try groupstore(
            "relocate", Word(store.path), Word(places.group), "--json", environment: agent.environment)
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.outcome == "relocated")
        try subscriber.next("relocated")
        #expect(try noteCount(places.group.appending("Notes.sqlite")) == 10)
        #expect(try agent.stop().status == 0)
    }

    @Test func statusReportsStoresWithAndWithoutAnAgent() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let agent = try AgentProcess(places, legacy: [store.path])
        let subscriber = try agent.subscribe("Notes.sqlite")
        if FileStatus(following: store.path) != nil { try subscriber.next("relocated") }
        let asked = try groupstore("status", "--json", environment: agent.environment)
        #expect(asked.status == 0, "\(asked.errors)")
        #expect(asked.output.contains("Notes.sqlite"))
        #expect(asked.output.contains(agent.socket.string))
        #expect(asked.lines.count == asked.objects.count)
        #expect(asked.summary.type == "summary")
        #expect(try agent.stop().status == 0)

        let alone = try groupstore("status", Word(places.group), "--json", environment: agent.environment)
        #expect(alone.status == 0, "\(alone.errors)")
        #expect(alone.output.contains("Notes.sqlite"))
        #expect(try groupstore("status", environment: agent.environment).status == 69)
    }
}
