import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// A person's move of a directory that was killed while the directory had no name.
@Suite(.ownThreads, .enabled(if: Programs.canTrace, "strace can't trace here")) struct InterruptedAppTests {
    private let places: Places
    private let app: FilePath

    init() throws {
        places = try Places(.another)
        app = places.legacy.appending("app")
        try run("mkdir", ["-p", Word(app)])
        try makeStore(app.appending("Notes.sqlite"), rows: 9)
        // The first exchange withdraws the directory, the second call publishes the copy.
        let trace: [Word] = ["-e", "trace=renameat2", "-e", "inject=renameat2:signal=KILL:when=2"]
        let killed = try RunningProcess(
            "strace",
            ["-f", "-qq", "-o", "/dev/null"] + trace
                + [Programs.groupstore, "move-app", Word(app), Word(places.group.appending("moved"))],
            environment: AgentProcess.environment(places.scratch("killed.sock")))
        try killed.wait()
        try #require(FileStatus(following: app) == nil)
    }

    @Test func statusAndDoctorNameItUntilItIsEnded() throws {
        let environment = AgentProcess.environment(places.scratch("agent.sock"))
        let recover = "groupstore recover \(places.group)"
        func check(_ command: Word, _ options: Word...) throws -> FinishedProcess {
            try groupstore(command, Word(places.group), options: options, environment: environment)
        }
        for done in try [check("status", "--check"), check("doctor")] {
            #expect(done.status == 65, "\(done.output)\(done.errors)")
            let line = done.output.split(separator: "\n").first { $0.contains(recover) }
            #expect(line?.contains("\(app)") == true, "\(done.output)")
        }
        #expect(try check("status").output.contains(recover))
        #expect(try check("recover").status == 0)
        #expect(try noteCount(app.appending("Notes.sqlite")) == 9)
        #expect(try check("status", "--check").output == "")
        #expect(try check("doctor").status == 0)
    }

    /// The agent's configuration has no entry for it.
    @Test func anAgentOfTheGroupGivesTheDirectoryItsName() throws {
        let group: Word = "\(AgentProcess.group)=" + Word(places.group)
        let agent = try AgentProcess(["--group", group], socket: places.scratch("agent.sock"))
        try agent.process.line(.errors) { $0.contains("took back the interrupted move of \(app)") }
        #expect(try noteCount(app.appending("Notes.sqlite")) == 9)
        #expect(try groupstore("status", "--check", environment: agent.environment).status == 0)
        #expect(try agent.stop().status == 0)
        let moved = try groupstore("move-app", Word(app), Word(places.group.appending("moved")), "--json")
        #expect(moved.outcome == "moved", "\(moved.output)\(moved.errors)")
    }
}
