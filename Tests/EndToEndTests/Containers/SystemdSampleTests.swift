import AgentProtocol
import CLinux
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of `Samples/Containers/systemd`. They run the units' commands with the units' variables; systemd checks the
/// rest.
@Suite(.ownThreads) struct SystemdSampleTests {
    private static let samples = ContainerSampleTests.samples + "systemd/"
    private static let canTrace = (try? run("strace", ["-o", "/dev/null", "true"]))?.status == 0
    private static let canVerify = (try? run("systemd-analyze", ["--version"]))?.status == 0

    /// One unit's `KEY=VALUE` lines, with the samples' specifiers expanded.
    private struct Unit {
        let text: String
        private let lines: [(key: String, value: String)]

        init(_ path: String, home: FilePath, runtime: FilePath) throws {
            text = try ContainerSampleTests.text(path)
            var lines: [(key: String, value: String)] = []
            for line in text.split(separator: "\n") where !line.hasPrefix("#") {
                let parts = line.split(separator: "=", maxSplits: 1).map(String.init)
                guard parts.count == 2 else { continue }
                let value = parts[1].replacing("%t", with: runtime.string).replacing("%h", with: home.string)
                lines.append((parts[0], value))
            }
            self.lines = lines
        }

        subscript(_ key: String) -> [String] { lines.filter { $0.key == key }.map(\.value) }

        /// The arguments of `ExecStart=/usr/bin/groupstore …`.
        var arguments: [Word] {
            get throws {
                let words = try #require(self["ExecStart"].first).split(separator: " ").map { Word(String($0)) }
                #expect(words.first?.description == "/usr/bin/groupstore")
                return Array(words.dropFirst())
            }
        }

        var environment: [String: String] {
            Dictionary(
                self["Environment"].map { $0.split(separator: "=", maxSplits: 1).map(String.init) }
                    .map { ($0[0], $0[1]) }, uniquingKeysWith: { $1 })
        }
    }

    private let place: TemporaryDirectory
    private let home: FilePath
    private let runtime: FilePath
    private let agent: Unit
    private let widget: Unit
    private var legacy: FilePath { home.appending(".var/app/com.example.Notes/data/Notes.sqlite") }
    private var shared: FilePath { home.appending(".local/share/app-groups").appending(ContainerSampleTests.store) }
    private var socket: FilePath { runtime.appending("groupstore/agent.sock") }

    /// Makes a home with the example configuration, and the directory that `RuntimeDirectory=` creates.
    init() throws {
        place = try TemporaryDirectory()
        home = place.path.appending("home")
        runtime = place.path.appending("run")
        agent = try Unit(Self.samples + "groupstore.service", home: home, runtime: runtime)
        widget = try Unit(Self.samples + "notes-widget.service", home: home, runtime: runtime)
        let made = try #require(agent["RuntimeDirectory"].first)
        try run("mkdir", ["-p", "-m", "0700", Word(runtime.appending(made)), Word(home.appending(".local/bin"))])
        try run("mkdir", ["-p", Word(home.appending(".config/groupstore"))])
        for path in [legacy, shared] { try run("mkdir", ["-p", Word(path.removingLastComponent())]) }
        try write(
            ContainerSampleTests.text("Agent/config.example.yaml"),
            to: home.appending(".config/groupstore/config.yaml"))
    }

    private func environment(_ unit: Unit) -> [String: String] {
        let user = [
            "HOME": home.string, "XDG_RUNTIME_DIR": runtime.string, "XDG_CONFIG_HOME": "", "XDG_DATA_HOME": "",
            "GROUPSTORE_CONTAINERS": "",
        ]
        return user.merging(unit.environment) { $1 }
    }

    @Test func theUnitsWorkTogether() throws {
        let notices = Descriptor(owning: gs_socket_datagram())
        let path = place.path.appending("notify")
        try #require(path.withPlatformString { gs_socket_bind(notices.raw, $0) } == 0)
        #expect(agent["Type"] == ["notify"])
        let process = try RunningProcess(
            Programs.groupstore, agent.arguments,
            environment: environment(agent).merging(["NOTIFY_SOCKET": path.string]) { $1 })
        var ready = pollfd(fd: notices.raw, events: Int16(POLLIN), revents: 0)
        try #require(poll(&ready, 1, 30_000) == 1, "the agent didn't say that it is ready")

        // `After=` lets the widget start now; it must not have to wait.
        let changed = home.appending(".local/bin/notes-changed")
        try write("#!/bin/sh\necho \"$GROUPSTORE_EVENT\"\n", to: changed)
        try run("chmod", ["+x", Word(changed)])
        let listener = try RunningProcess(Programs.groupstore, widget.arguments, environment: environment(widget))
        try listener.line(.errors) { $0.hasPrefix("watching") }
        try makeStore(legacy, rows: 10, unflushed: true)
        try listener.line { $0 == "relocated" }
        try sqlite(shared, "INSERT INTO note (text) VALUES ('later')")
        try listener.line { $0 == "change" }
        #expect(try noteCount(shared) == 11)
        process.signal(SIGTERM)
        #expect(try process.wait().status == 0)
    }

    @Test func theUnitsUseTheSameValues() throws {
        #expect(agent.environment["GROUPSTORE_SOCKET"] == socket.string)
        #expect(widget.environment == agent.environment)
        #expect(widget["Wants"] == ["groupstore.service"])
        #expect(widget["After"] == ["groupstore.service"])
        // A sandbox keeps the directory that it has mounted.
        #expect(agent["RuntimeDirectoryPreserve"] == ["yes"])
    }

    @Test(
        .enabled(if: canVerify, "systemd-analyze is not installed"),
        arguments: [
            samples + "groupstore.service", samples + "notes-widget.service", "Agent/systemd/groupstore.service",
            "Agent/systemd/groupstore.socket",
        ])
    func systemdAcceptsTheUnit(_ path: String) throws {
        // The unit needs its own name: systemd-analyze searches the directory for the others.
        for sample in Set([Self.samples + "groupstore.service", Self.samples + "notes-widget.service", path]) {
            let text = try ContainerSampleTests.text(sample)
            guard let name = FilePath(sample).lastComponent else { continue }
            try write(
                text.replacing("=/usr/bin/groupstore", with: "=\(Programs.groupstore)"), to: place.path.appending(name))
        }
        let name = try #require(FilePath(path).lastComponent)
        let verified = try run(
            "systemd-analyze", ["--user", "verify", Word(place.path.appending(name))],
            environment: ["XDG_RUNTIME_DIR": runtime.string, "HOME": home.string])
        // systemd-analyze warns about an unknown key.
        #expect(verified.status == 0 && verified.errors.isEmpty, "\(verified.errors)")
    }

    /// The agent makes no system call that the unit forbids while it relocates and serves.
    @Test(.enabled(if: canTrace && canVerify, "strace can't trace here, or systemd-analyze is not installed"))
    func theHardeningAllowsTheAgentsSystemCalls() throws {
        let record = place.path.appending("calls")
        let strace = try RunningProcess(
            "strace", ["-f", "-qq", "-o", Word(record), Programs.groupstore] + agent.arguments,
            environment: environment(agent))
        let subscriber = try ContainerSampleTests.subscriber(to: socket, of: strace)
        try subscriber.send(["id": 2, "op": "status"])
        let pid = try #require(try subscriber.next { $0["id"] == .integer(2) && $0["ok"] != nil }.integer("pid"))
        try makeStore(legacy, rows: 10, unflushed: true)
        try subscriber.next("relocated")
        try sqlite(shared, "INSERT INTO note (text) VALUES ('later')")
        try subscriber.next("change")
        kill(pid_t(pid), SIGTERM)
        try strace.wait()

        // A line reads `PID  name(arguments…`. Resumed calls and signals have no such name.
        let calls = try run("cat", [Word(record)]).lines.compactMap { line -> (name: String, line: String)? in
            let rest = line.drop { $0.isNumber }.drop { $0 == " " }
            let name = rest.prefix { $0.isLetter || $0.isNumber || $0 == "_" }
            return rest.dropFirst(name.count).first == "(" ? (String(name), line) : nil
        }
        #expect(calls.count > 500)
        for name in ["inotify_add_watch", "renameat2", "fcntl"] { #expect(calls.contains { $0.name == name }) }
        #expect(calls.contains { $0.line.contains("F_SETLEASE, F_WRLCK") })

        #expect(agent["SystemCallFilter"] == ["@system-service"])
        let allowed = try Self.calls(in: ["@default", "@system-service"])
        #expect(Set(calls.map(\.name)).subtracting(allowed).isEmpty)
        #expect(agent["RestrictAddressFamilies"] == ["AF_UNIX"])
        #expect(calls.allSatisfy { $0.name != "socket" || $0.line.contains("AF_UNIX") })
        #expect(agent["MemoryDenyWriteExecute"] == ["yes"])
        #expect(!calls.contains { $0.line.contains("PROT_WRITE|PROT_EXEC") })
        #expect(!calls.contains { $0.name == "mprotect" && $0.line.contains("PROT_EXEC") })
    }

    /// Returns the system calls of systemd's named sets and their nested sets.
    private static func calls(in sets: Set<String>) throws -> Set<String> {
        var known: [String: Set<String>] = [:]
        var current = ""
        for line in try run("systemd-analyze", ["syscall-filter"]).lines {
            let word = String(line.drop { $0 == " " })
            if line.hasPrefix("@") {
                current = word
            } else if line.hasPrefix(" "), !word.hasPrefix("#") {
                known[current, default: []].insert(word)
            }
        }
        var found: Set<String> = []
        var pending = sets
        while let next = pending.popFirst() {
            guard found.insert(next).inserted else { continue }
            pending.formUnion(known[next] ?? [])
        }
        return found
    }
}
