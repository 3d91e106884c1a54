import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport

/// An agent that admits another user. It serves a group with `Notes.sqlite` for everybody and `Secret.sqlite` for the
/// agent alone, and a second group whose directory is closed.
final class AllowedUsers {
    enum AgentUser: String, CaseIterable, Sendable { case root, another }

    static let user = "65533"
    static let group = "group.com.example.open"
    static let closed = "group.com.example.closed"

    let places: Places
    let socket: FilePath
    private let agent: RunningProcess
    private let agentUser: AgentUser
    let configuration: FilePath

    var notes: FilePath { places.group.appending("Notes.sqlite") }
    var secret: FilePath { places.group.appending("Secret.sqlite") }
    var closedGroup: FilePath { places.scratch("closed") }

    /// Starts the agent. `may` lists the roles in configuration syntax, `configured` the names of the group's stores.
    init(_ agentUser: AgentUser, may: String, configured: [String] = ["Notes.sqlite", "Secret.sqlite"]) throws {
        self.agentUser = agentUser
        places = try Places()
        let run = places.scratch("run")
        socket = run.appending("agent.sock")
        configuration = places.scratch("config.yaml")
        for name in ["run", "closed", "theirs"] { try TestSupport.run("mkdir", [Word(places.scratch(name))]) }
        try makeStore(places.group.appending("Notes.sqlite"), rows: 3)
        try makeStore(places.group.appending("Secret.sqlite"), rows: 5)
        try makeStore(places.scratch("closed").appending("Notes.sqlite"), rows: 5)
        try makeStore(places.legacy.appending("Old.sqlite"), rows: 2)
        let owner: Word = agentUser == .root ? "0:0" : "65534:65534"
        try TestSupport.run("chown", ["-R", owner] + [places.group, run, places.scratch("closed")].map { Word($0) })
        try TestSupport.run("chown", ["-R", Word(Self.user + ":" + Self.user), Word(places.scratch("theirs"))])
        try TestSupport.run("chmod", ["755", Word(places.scratch(".")), Word(run)])
        try TestSupport.run("chmod", ["600", Word(places.group.appending("Secret.sqlite"))])
        try TestSupport.run("chmod", ["700", Word(places.scratch("closed"))])
        try Self.write(places, may: may, configured, to: configuration)
        let program = places.scratch("groupstore")
        try TestSupport.run("cp", [Programs.groupstore, Word(program)])
        let words: [Word] = [Word(program), "agent", "--config", Word(configuration)]
        let become: [Word] = ["--reuid=65534", "--regid=65534", "--clear-groups"]
        agent = try RunningProcess(
            "setpriv", (agentUser == .root ? [] : become) + ["--"] + words,
            environment: ["GROUPSTORE_SOCKET": socket.string])
        let deadline = Deadline(after: .ample)
        while (try? UnixSocket.connect(to: socket)) == nil {
            guard try !agent.hasEnded(within: .milliseconds(5)), !deadline.hasPassed else {
                throw Unexpected("agent: \(try agent.hasEnded(within: .zero) ? agent.wait().errors : "no socket")")
            }
        }
    }

    private static func write(_ places: Places, may: String, _ configured: [String], to path: FilePath) throws {
        let stores = configured.map { "{ name: \($0) }" }.joined(separator: ", ")
        try EndToEndSupport.write(
            """
            socket: { allow: [{ uid: \(user), may: [\(may)] }] }
            groups:
              - { id: \(group), directory: \(places.group), stores: [\(stores)] }
              - { id: \(closed), directory: \(places.scratch("closed")), stores: [{ name: Notes.sqlite }] }

            """, to: path)
    }

    /// Rewrites the configuration and makes the agent reload it.
    func reconfigure(may: String) throws {
        try Self.write(places, may: may, ["Notes.sqlite"], to: configuration)
        agent.signal(SIGHUP)
    }

    /// Sends requests one after another and prints all lines. `pass` names a file whose descriptor goes along.
    private static let clientScript = """
        import json, os, socket, sys
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(sys.argv[1])
        lines = connection.makefile("r")
        print(lines.readline(), end="", flush=True)
        for request in json.loads(sys.argv[2]):
            passed = request.pop("pass", None)
            line = (json.dumps(request) + "\\n").encode()
            if passed:
                file = os.open(passed, request.pop("flags", os.O_RDWR))
                socket.send_fds(connection, [line], [file])
                os.close(file)
            else:
                connection.sendall(line)
            for answer in lines:
                print(answer, end="", flush=True)
                if "ok" in json.loads(answer):
                    break
        if len(sys.argv) > 3:
            for line in lines:
                print(line, end="", flush=True)
        """

    private func words(_ requests: [JSONObject], _ more: [Word] = [], as user: String) -> [Word] {
        let text = "[" + requests.map(\.text).joined(separator: ",") + "]"
        let become = ["--reuid=\(user)", "--regid=\(user)", "--clear-groups"].map { Word($0) }
        return become + ["/usr/bin/python3", "-c", Word(Self.clientScript), Word(socket), Word(text)] + more
    }

    /// Returns the answer that the user gets to each request.
    func ask(_ requests: JSONObject..., as user: String = AllowedUsers.user) throws -> [JSONObject] {
        let done = try run("setpriv", words(requests, as: user))
        guard done.status == 0 else { throw Unexpected(done.errors) }
        return done.objects.filter { $0["ok"] != nil }
    }

    /// Returns all lines that the user receives.
    func lines(_ request: JSONObject, as user: String = AllowedUsers.user) throws -> [JSONObject] {
        try run("setpriv", words([request], as: user)).objects
    }

    /// Opens a connection that stays and prints every line that it receives.
    func listen(_ request: JSONObject) throws -> RunningProcess {
        try RunningProcess("setpriv", words([request], ["stay"], as: Self.user))
    }

    func end() throws -> FinishedProcess {
        agent.signal(SIGTERM)
        return try agent.wait()
    }
}
