import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of `Samples/Containers`. They use the files unchanged, apart from directories of their own.
@Suite(.ownThreads) struct ContainerSampleTests {
    static let samples = "Samples/Containers/"
    static let store = "group.com.example.notes/Notes.sqlite"

    static func text(_ path: String) throws -> String {
        let done = try run("cat", [Programs.source(path)])
        guard done.status == 0 else { throw Unexpected(done.errors) }
        return done.output
    }

    // MARK: - Configurations

    /// Each configuration finds its legacy store under the home or under `/legacy`.
    @Test(arguments: [
        (samples + "flatpak/config.yaml", "home/.var/app/com.example.Notes/data"),
        (samples + "compose/config.yaml", "legacy/notes"),
        ("Agent/config.example.yaml", "home/.var/app/com.example.Notes/data"),
    ])
    func theAgentRelocatesAsConfigured(_ path: String, _ legacy: String) throws {
        let place = try TemporaryDirectory()
        let legacy = place.path.appending(legacy)
        let group = place.path.appending("groups").appending("group.com.example.notes")
        try run("mkdir", ["-p", "-m", "0700", Word(legacy), Word(group)])
        let file = place.path.appending("config.yaml")
        try write(Self.text(path).replacing("/legacy/", with: "\(place.path)/legacy/"), to: file)
        let environment = [
            "HOME": place.path.appending("home").string, "GROUPSTORE_CONTAINERS": place.path.appending("groups").string,
            "GROUPSTORE_SOCKET": place.path.appending("agent.sock").string,
        ]

        let examined = try groupstore("doctor", "--config", Word(file), "--json", environment: environment)
        let checks = Dictionary(grouping: examined.objects) { $0.string("check") ?? "" }
        #expect(checks["configuration"]?.map { $0.string("verdict") } == ["ok"], "\(examined.output)")
        #expect(checks["configuration"]?.first?.string("message")?.hasSuffix("groups: 1, stores: 1") == true)
        #expect(checks["directory"]?.map { $0.string("verdict") } == ["ok", "ok"])

        let agent = try RunningProcess(
            Programs.groupstore, ["agent", "--config", Word(file)], environment: environment)
        let subscriber = try Self.subscriber(to: place.path.appending("agent.sock"), of: agent)
        try makeStore(legacy.appending("Notes.sqlite"), rows: 25, unflushed: true)
        try subscriber.next("relocated")
        #expect(try noteCount(group.appending("Notes.sqlite")) == 25)
        agent.signal(SIGTERM)
        #expect(try agent.wait().status == 0)
    }

    /// Returns a connection subscribed to the samples' store, once the agent accepts connections.
    static func subscriber(to socket: FilePath, of agent: RunningProcess) throws -> WireConnection {
        let deadline = Deadline(after: .ample)
        while (try? UnixSocket.connect(to: socket)) == nil {
            guard try !agent.hasEnded(within: .milliseconds(5)), !deadline.hasPassed else {
                throw Unexpected("agent: \(try agent.wait(within: .zero).errors)")
            }
        }
        let connection = try WireConnection(socket)
        try connection.send(["id": 1, "op": "subscribe", "store": .string(store)])
        let reply = try connection.next { $0["id"] == .integer(1) }
        guard reply.bool("ok") == true else { throw Unexpected("refused: \(reply.text)") }
        return connection
    }
}
