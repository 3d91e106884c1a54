import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// An agent with the configuration that apps' packages, the system and the user put together.
@Suite(.ownThreads) struct StandardConfigurationTests {
    private let user: UserAccount

    init() throws { user = try UserAccount() }

    private func drop(_ name: String, _ text: String) throws { try write(text, to: user.vendorDropIns.appending(name)) }

    private func groups() throws -> [String] {
        try user.command("status", "--json").objects.filter { $0.type == "group" }.compactMap { $0.string("group") }
    }

    private func reload(_ agent: RunningProcess) throws {
        agent.signal(SIGHUP)
        try agent.line(.errors) { $0.contains("] serving ") }
    }

    private func stop(_ agent: RunningProcess) throws -> FinishedProcess {
        agent.signal(SIGTERM)
        return try agent.wait()
    }

    // MARK: Drop-ins

    @Test func aDropInOfAPackageIsServed() throws {
        let old = user.home.pushing(".var/app/com.example.Notes/data")
        try run("mkdir", ["-p", Word(old), Word(user.containers.appending("group.notes"))])
        try makeStore(old.appending("Notes.sqlite"), rows: 3)
        try drop(
            "notes.yaml",
            """
            groups:
              - id: group.notes
                stores: [{ name: Notes.sqlite, legacy: ["flatpak:com.example.Notes/data/Notes.sqlite"] }]
            """)
        let agent = try user.agent()
        try agent.line(.errors) { $0.contains("relocated ") }
        #expect(try noteCount(user.containers.pushing("group.notes/Notes.sqlite")) == 3)
        #expect(try stop(agent).status == 0)
    }

    @Test func aBrokenDropInIsReportedAndTakesDownNoOther() throws {
        for number in 0..<10 { try drop("app\(number).yaml", "groups: [{ id: g\(number) }]\n") }
        try drop("app3.yaml", "groups:\n  - id: g3\n    oops: 1\n")
        try run("ln", ["-s", "nowhere", Word(user.vendorDropIns.appending("dangling.yaml"))])
        let agent = try RunningProcess(Programs.groupstore, ["agent"], environment: user.environment)
        try agent.line(.errors) { $0.contains("app3.yaml:3: unknown key oops") }
        try agent.line(.errors) { $0.contains("serving 9 groups") }
        #expect(try groups() == (0..<10).filter { $0 != 3 }.map { "g\($0)" })
        let status = try user.command("status")
        #expect(status.status == 78 && status.output.contains("app3.yaml:3: unknown key oops"), "\(status.output)")
        #expect(status.output.contains("dangling.yaml"))
        let doctor = try user.command("doctor", "--json")
        let checks = doctor.objects.filter { $0.string("verdict") == "problem" }.compactMap { $0.string("check") }
        #expect(checks.contains("configuration") && checks.contains("agent_configuration"), "\(doctor.output)")
        // Corrected and reloaded, all is well.
        try drop("app3.yaml", "groups: [{ id: g3 }]\n")
        try run("rm", [Word(user.vendorDropIns.appending("dangling.yaml"))])
        try reload(agent)
        #expect(try user.command("status").status == 0)
        #expect(try groups().count == 10)
        #expect(try stop(agent).status == 0)
    }

    @Test func aDropInThatBreaksLaterIsServedAsBefore() throws {
        try drop("a.yaml", "groups: [{ id: a, stores: [{ name: One }] }]\n")
        try drop("b.yaml", "groups: [{ id: b }]\n")
        let agent = try user.agent()
        try drop("a.yaml", "groups: [{ id: a, stores: [{ na")
        try drop("c.yaml", "groups: [{ id: c }]\n")
        agent.signal(SIGHUP)
        try agent.line(.errors) { $0.contains("a.yaml") && $0.contains("stays in effect") }
        try agent.line(.errors) { $0.contains("serving 3 groups, 1 store") }
        #expect(try groups() == ["a", "b", "c"])
        #expect(try user.command("status").status == 78)
        // Told again at the next reload, as somebody may have tried to correct it.
        agent.signal(SIGHUP)
        try agent.line(.errors) { $0.contains("a.yaml") && $0.contains("stays in effect") }
        #expect(try stop(agent).status == 0)
    }

    @Test func aFailedReloadOfTheMainFileIsShown() throws {
        try write("groups: [{ id: mine }]\n", to: user.mainFile)
        let agent = try user.agent()
        try write("groups: [{ id: mine, x: y }]\n", to: user.mainFile)
        try reload(agent)
        for command in ["status", "doctor"] as [Word] {
            let shown = try user.command(command)
            #expect(shown.status != 0 && shown.output.contains("keeps its old configuration"), "\(shown.output)")
        }
        #expect(try groups() == ["mine"])
        #expect(try stop(agent).status == 0)
    }

    @Test func theUsersFileDoesNotHideADropIn() throws {
        try drop("a.yaml", "groups: [{ id: vendor, stores: [{ name: S }] }]\n")
        try write("groups: [{ id: mine }]\n", to: user.mainFile)
        let agent = try user.agent()
        #expect(try groups() == ["vendor", "mine"])
        #expect(try stop(agent).status == 0)
    }

    private static let canBecomeAnother =
        geteuid() == 0
        && (try? run("setpriv", anotherUser + [Programs.groupstore, "--version"]))?.status == 0
    private static let anotherUser: [Word] = ["--reuid", "54321", "--regid", "54321", "--clear-groups"]

    /// The system's configuration may have groups that aren't for everybody.
    @Test(.enabled(if: canBecomeAnother, "needs root and setpriv(1)"))
    func aGroupThatTheUserMayNotUseIsLeftOut() throws {
        let secret = user.scratch("secret")
        try run("chmod", ["755", Word(secret.removingLastComponent())])
        try run("mkdir", ["-m", "0700", Word(secret)])
        try drop("a.yaml", "groups: [{ id: secret, directory: \(secret) }, { id: open }]\n")
        let check = try run(
            "setpriv", Self.anotherUser + [Programs.groupstore, "agent", "--check", "--json"],
            environment: user.environment)
        #expect(check.status == 0 && check.outcome == "valid", "\(check.output)\(check.errors)")
        #expect(check.objects.filter { $0.type == "group" }.compactMap { $0.string("group") } == ["open"])
        #expect(check.objects.first { $0.type == "note" }?.string("path")?.hasSuffix("a.yaml") == true)
        // Of a user's own file it is an error.
        try write("groups: [{ id: secret, directory: \(secret) }]\n", to: user.mainFile)
        let refused = try run(
            "setpriv", Self.anotherUser + [Programs.groupstore, "agent", "--check"], environment: user.environment)
        #expect(refused.status == 77, "\(refused.output)\(refused.errors)")
    }

    /// Two agents of one group would each relocate its stores.
    @Test(.enabled(if: canBecomeAnother, "needs root and setpriv(1)"))
    func aGroupOfTheSystemIsLeftToItsAgentUnlessTheUserAsksForIt() throws {
        let system = user.scratch("system-group")
        try run("chmod", ["755", Word(system.removingLastComponent())])
        try run("mkdir", ["-m", "0777", Word(system)])
        try drop("a.yaml", "groups: [{ id: system, directory: \(system) }, { id: open }]\n")
        func groups() throws -> [String] {
            let check = try run(
                "setpriv", Self.anotherUser + [Programs.groupstore, "agent", "--check", "--json"],
                environment: user.environment)
            #expect(check.status == 0, "\(check.output)\(check.errors)")
            return check.objects.filter { $0.type == "group" }.compactMap { $0.string("group") }
        }
        #expect(try groups() == ["open"])
        // Root's agent is the system's.
        let roots = try user.command("agent", "--check", "--json")
        #expect(roots.objects.filter { $0.type == "group" }.count == 2, "\(roots.output)")
        try write("groups: [{ id: system }]\n", to: user.userDropIns.appending("mine.yaml"))
        #expect(try groups() == ["system", "open"])
    }

    /// A file that can't be read is a problem, and of one app only.
    @Test(.enabled(if: canBecomeAnother, "needs root and setpriv(1)"))
    func anUnreadableDropInTakesDownNoOther() throws {
        try run("chmod", ["755", Word(user.scratch("x").removingLastComponent())])
        try drop("a.yaml", "groups: [{ id: a }]\n")
        try drop("b.yaml", "groups: [{ id: b }]\n")
        try run("chmod", ["000", Word(user.vendorDropIns.appending("a.yaml"))])
        let check = try run(
            "setpriv", Self.anotherUser + [Programs.groupstore, "agent", "--check", "--json"],
            environment: user.environment)
        #expect(check.status == 78)
        #expect(check.objects.filter { $0.type == "group" }.compactMap { $0.string("group") } == ["b"])
        let problem = check.objects.first { $0.type == "problem" }
        #expect(problem?.string("hint") == "make it readable for this user", "\(check.output)")
    }

    // MARK: No configuration

    @Test func servesContainersWithoutAConfigurationAndNewOnesAtOnce() throws {
        let agent = try user.agent()
        #expect(try groups().isEmpty)
        // The standard place itself is made only now.
        #expect(try user.command("group", "create", "group.one").status == 0)
        #expect(try groups() == ["group.one"])
        try agent.line(.errors) { $0.contains("serving 1 group") }
        // Without a request, by the watch alone.
        try run("mkdir", ["-m", "0700", Word(user.containers.appending("group.two"))])
        try agent.line(.errors) { $0.contains("serving 2 groups") }
        let store = user.containers.pushing("group.two/Notes.sqlite")
        try makeStore(store, rows: 1)
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", "--agent", "--json", "group.two/Notes.sqlite"], environment: user.environment
        )
        try watch.line { $0.contains("\"type\":\"subscribed\"") }
        try sqlite(store, "INSERT INTO note (text) VALUES ('new')")
        try watch.line { $0.contains("\"type\":\"change\"") }
        watch.signal(SIGTERM)
        try watch.wait()
        #expect(try stop(agent).status == 0)
    }

    /// A client must not have to wait until the agent has noticed.
    @Test func aContainerCanBeUsedAtOnce() throws {
        let agent = try user.agent()
        for number in 0..<20 {
            try user.command("group", "create", "group.n\(number)")
            let connection = try WireConnection(user.socket)
            try connection.send(["id": 1, "op": "subscribe", "store": .string("group.n\(number)/S")])
            let reply = try connection.next { $0["id"] == .integer(1) }
            #expect(reply.bool("ok") == true, "\(reply.text)")
        }
        #expect(try stop(agent).status == 0)
    }

    /// A program that asked too early is told to ask again.
    @Test func aRefusedClientIsToldOfTheNewContainer() throws {
        let agent = try user.agent()
        let connection = try WireConnection(user.socket)
        try connection.send(["id": 1, "op": "subscribe", "store": "group.later/S"])
        #expect(try connection.next { $0["id"] == .integer(1) }.bool("ok") == false)
        try run("mkdir", ["-p", Word(user.containers.appending("group.later"))])
        try connection.next(AgentConfigured.type)
        try connection.send(["id": 2, "op": "subscribe", "store": "group.later/S"])
        #expect(try connection.next { $0["id"] == .integer(2) }.bool("ok") == true)
        #expect(try stop(agent).status == 0)
    }

    /// The file that says what is served may come and go.
    @Test func containersAreServedWheneverThereIsNoMainFile() throws {
        try run("mkdir", ["-p", Word(user.containers.appending("group.a"))])
        try write("groups: [{ id: mine }]\n", to: user.mainFile)
        let agent = try user.agent()
        #expect(try groups() == ["mine"])
        try run("rm", [Word(user.mainFile)])
        try reload(agent)
        #expect(try groups() == ["group.a"])
        // Noticed without a request.
        try run("mkdir", [Word(user.containers.appending("group.b"))])
        try agent.line(.errors) { $0.contains("serving 2 groups") }
        try write("groups: [{ id: mine }]\n", to: user.mainFile)
        try reload(agent)
        try run("mkdir", [Word(user.containers.appending("group.c"))])
        #expect(try groups() == ["mine"])
        #expect(try stop(agent).status == 0)
    }

    /// The answer is one line of at most 32 KiB, whatever the files contain.
    @Test func aThousandBrokenDropInsFitIntoTheStatus() throws {
        let key = String(repeating: "e\u{301}\u{302}", count: 2000)
        for number in 0..<1000 { try drop("\(number).yaml", "groups: [{ \"\(key)\": 1 }]\n") }
        try drop("good.yaml", "groups: [{ id: good }]\n")
        let agent = try user.agent()
        let status = try user.command("status", "--json")
        #expect(
            status.status == 78 && status.summary.integer("configuration_problem_count") == 1000, "\(status.errors)")
        #expect(status.summary.objects("configuration_problems").count == 10)
        #expect(try user.command("status").output.contains("990 more files"))
        #expect(try stop(agent).status == 0)
    }

    // MARK: Missing directories

    @Test func aMissingDirectoryIsLoggedOnceWithTheCommandThatMakesIt() throws {
        let directory = user.scratch("it's here")
        try drop(
            "a.yaml",
            "groups: [{ id: group.a }, { id: group.b, directory: \"\(directory)\" }]\n")
        let agent = try RunningProcess(Programs.groupstore, ["agent"], environment: user.environment)
        var commands: [String] = []
        for _ in 0..<2 {
            let line = try agent.line(.errors) { $0.contains("does not exist yet") }
            let start = try #require(line.range(of: "(groupstore "))
            commands.append(String(line[start.upperBound...].dropLast()))
        }
        try agent.line(.errors) { $0.contains("serving 2 groups") }
        try reload(agent)
        // The commands do it, in a shell.
        for command in commands {
            let made = try run(
                "sh", ["-c", "\(Programs.groupstore) " + Word(command)], environment: user.environment)
            #expect(made.status == 0, "\(command): \(made.errors)")
        }
        let rows = try user.command("status", "--json").objects.filter { $0.type == "group" }
        #expect(rows.map { $0.bool("exists") } == [true, true])
        #expect(FileStatus(following: directory)?.permissions == 0o700)
        let log = try stop(agent).errors
        #expect(log.split(separator: "\n").filter { $0.contains("does not exist yet") }.count <= 2, "\(log)")
    }

    // MARK: Checking

    @Test func checkPrintsWhatWouldBeServed() throws {
        try drop("a.yaml", "groups: [{ id: a, stores: [{ name: S, legacy: ['snap:notes/common/S'] }] }]\n")
        try write("groups: [{ id: mine }]\n", to: user.mainFile)
        let good = try user.command("agent", "--check", "--json")
        #expect(good.status == 0 && good.outcome == "valid", "\(good.output)\(good.errors)")
        #expect(good.objects.filter { $0.type == "group" }.compactMap { $0.string("group") } == ["a", "mine"])
        #expect(good.objects.filter { $0.type == "file" }.count == 2)
        let legacy = good.objects.first { $0.type == "store" }?.objects("legacy").first?.string("path")
        #expect(legacy == user.home.pushing("snap/notes/common/S").string)
        #expect(good.summary.string("socket") == user.socket.string)
        let text = try user.command("agent", "--check")
        #expect(text.output.contains("a  ") && text.output.contains("group create a"), "\(text.output)")
        #expect(FileStatus(following: user.socket) == nil)

        try drop("b.yaml", "groups: [{ id: b, x: y }]\n")
        let partly = try user.command("agent", "--check", "--json")
        #expect(partly.status == 78 && partly.outcome == "problems")
        #expect(partly.objects.first { $0.type == "problem" }?.integer("line") == 1)
        #expect(partly.objects.filter { $0.type == "group" }.count == 2)

        try write("groups: [{ id: mine, x: y }]\n", to: user.mainFile)
        let bad = try user.command("agent", "--check", "--json")
        #expect(bad.status == 78 && bad.outcome == "failed" && bad.errors.contains("config.yaml:1:"), "\(bad.errors)")
        // One named file stands alone.
        try write("groups: [{ id: other }]\n", to: user.scratch("other.yaml"))
        let named = try user.command("agent", "--check", "--json", "--config", Word(user.scratch("other.yaml")))
        #expect(named.status == 0)
        #expect(named.objects.filter { $0.type == "group" }.compactMap { $0.string("group") } == ["other"])
    }
}
