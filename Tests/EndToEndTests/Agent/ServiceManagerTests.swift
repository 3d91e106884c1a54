import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The agent under a service manager: a socket that was made for it, and a log that goes to a journal.
@Suite(.ownThreads) struct ServiceManagerTests {
    private let places: Places
    private var socket: FilePath { places.scratch("agent.sock") }

    init() throws { places = try Places() }

    /// Makes the socket as systemd does, prints a line, and becomes the agent with the socket as descriptor 3.
    private static let activate = """
        import os, socket, sys
        path, mode, kind = sys.argv[1], int(sys.argv[2], 8), sys.argv[3]
        if kind == "stream":
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        if not os.path.exists(path):
            listener.bind(path)
            os.chmod(path, mode)
        if kind == "stream":
            listener.listen(8)
        os.dup2(listener.fileno(), 3)
        os.set_inheritable(3, True)
        os.environ["LISTEN_PID"] = str(os.getpid())
        os.environ["LISTEN_FDS"] = "1"
        os.execv(sys.argv[4], sys.argv[4:])
        """

    private func activated(mode: String = "600", kind: String = "stream", _ options: [Word] = []) throws
        -> RunningProcess
    {
        try RunningProcess(
            "python3",
            [
                "-c", Word(Self.activate), Word(socket), Word(mode), Word(kind), Programs.groupstore, "agent",
                "--group",
                "\(AgentProcess.group)=" + Word(places.group),
            ] + options, environment: ["XDG_RUNTIME_DIR": places.scratch("none").string])
    }

    @Test func servesAndKeepsTheSocketOfTheServiceManager() throws {
        let agent = try activated()
        try agent.line(.errors) { $0.contains("serving 1 group") }
        let before = FileStatus(following: socket)
        // The agent's path is the socket's, not that of the environment.
        let status = try groupstore("status", "--json", environment: AgentProcess.environment(socket))
        #expect(status.status == 0 && status.summary.string("socket") == socket.string, "\(status.output)")
        let second = try groupstore(
            "agent", "--group", "\(AgentProcess.group)=" + Word(places.group),
            environment: AgentProcess.environment(socket))
        #expect(second.status == 75, "\(second.errors)")
        agent.signal(SIGTERM)
        #expect(try agent.wait().status == 0)
        #expect(FileStatus(following: socket)?.identity == before?.identity)
        #expect(FileStatus(following: socket)?.permissions == 0o600)
        #expect(FileStatus(following: places.scratch("agent.sock.private")) == nil)
    }

    @Test func refusesADescriptorThatDoesNotListen() throws {
        let done = try activated(kind: "datagram").wait()
        #expect(done.status == 78)
        #expect(done.errors.contains("descriptor 3 is not a listening stream socket"), "\(done.errors)")
        #expect(FileStatus(following: socket) != nil)
    }

    @Test func saysThatTheSocketsModeShutsOutAllowedUsers() throws {
        let file = places.scratch("config.yaml")
        try write(
            "socket: { allow-uids: [12345] }\ngroups: [{ id: a.b, directory: \(places.group) }]\n", to: file)
        let agent = try RunningProcess(
            "python3",
            [
                "-c", Word(Self.activate), Word(socket), "600", "stream", Programs.groupstore, "agent", "--config",
                Word(file),
            ])
        try agent.line(.errors) { $0.contains("mode 0600") && $0.contains("SocketMode=0666") }
        agent.signal(SIGTERM)
        #expect(try agent.wait().status == 0)
    }

    @Test func aConfiguredSocketElsewhereIsAnError() throws {
        let file = places.scratch("config.yaml")
        try write(
            "socket: { path: \(places.scratch("x.sock")) }\ngroups: [{ id: a.b, directory: \(places.group) }]\n",
            to: file)
        let done = try RunningProcess(
            "python3",
            [
                "-c", Word(Self.activate), Word(socket), "600", "stream", Programs.groupstore, "agent", "--config",
                Word(file),
            ]
        ).wait()
        #expect(done.status == 78 && done.errors.contains("x.sock"), "\(done.errors)")
    }

    /// The variables go no further than the agent.
    @Test func ignoresASocketForAnotherProcess() throws {
        let agent = try RunningProcess(
            Programs.groupstore, ["agent", "--group", "\(AgentProcess.group)=" + Word(places.group)],
            environment: ["GROUPSTORE_SOCKET": socket.string, "LISTEN_PID": "1", "LISTEN_FDS": "1"])
        try agent.line(.errors) { $0.contains("serving 1 group") }
        agent.signal(SIGTERM)
        #expect(try agent.wait().status == 0)
        #expect(FileStatus(following: socket) == nil)
    }

    // MARK: The log

    /// Starts the agent with its standard error at a pipe that `JOURNAL_STREAM` names, and passes on what it logs.
    private static let journal = """
        import os, sys
        readable, writable = os.pipe()
        found = os.fstat(writable)
        offset = int(sys.argv[1])
        if os.fork() == 0:
            os.environ["JOURNAL_STREAM"] = "%d:%d" % (found.st_dev, found.st_ino + offset)
            os.dup2(writable, 2)
            os.close(readable)
            os.execv(sys.argv[2], sys.argv[2:])
        os.close(writable)
        for line in os.fdopen(readable, errors="replace"):
            print(line, end="", flush=True)
        """

    private func logged(inodeOffset: Int, _ options: [Word]) throws -> FinishedProcess {
        try run(
            "python3",
            ["-c", Word(Self.journal), "\(inodeOffset)", Programs.groupstore, "agent"] + options,
            environment: AgentProcess.environment(socket))
    }

    @Test func aFailureToStartReachesTheJournalWithItsPriority() throws {
        let file = places.scratch("config.yaml")
        try write("groups: [{ no: such key }]\n", to: file)
        let journal = try logged(inodeOffset: 0, ["--config", Word(file)]).lines
        #expect(journal.count == 1 && journal.first?.hasPrefix("<2>\(file):1: unknown key no") == true, "\(journal)")
        // Standard error was redirected elsewhere.
        let text = try logged(inodeOffset: 1, ["--config", Word(file)]).lines
        #expect(text.first?.hasPrefix("groupstore: \(file):1: unknown key no") == true, "\(text)")
        let chosen = try logged(inodeOffset: 0, ["--config", Word(file), "--log-format", "text"]).lines
        #expect(chosen.first?.hasPrefix("groupstore: ") == true, "\(chosen)")
    }

    @Test(arguments: ["json", "journal"])
    func writesTheChosenFormat(_ format: String) throws {
        let agent = try AgentProcess(
            ["--group", "\(AgentProcess.group)=" + Word(places.group), "--log-format", Word(format)], socket: socket)
        let line = try agent.process.line(.errors) { $0.contains("serving 1 group") }
        if format == "json" {
            let object = try #require(JSONObject(line: line))
            #expect(object.string("level") == "info")
            #expect(object.object("metadata")?.string("socket") == socket.string)
        } else {
            #expect(line == "<6>serving 1 group, 0 stores socket=\(socket)")
        }
        #expect(try agent.stop().status == 0)
    }

    @Test func logsOnlyTheChosenLevel() throws {
        let options: [Word] = ["--group", "\(AgentProcess.group)=" + Word(places.group)]
        let quiet = try AgentProcess(options + ["--log-level", "error"], socket: socket).stop()
        #expect(quiet.errors.isEmpty, "\(quiet.errors)")
        let loud = try AgentProcess(options + ["--quiet", "--log-level", "info"], socket: socket).stop()
        #expect(loud.errors.contains("serving 1 group"))
        let wrong = try groupstore("agent", "--log-level", "loud", environment: AgentProcess.environment(socket))
        #expect(wrong.status == 64)
    }
}
