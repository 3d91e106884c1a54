import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Many simultaneous clients that misbehave.
@Suite(.ownThreads, .serialized, .timeLimit(.minutes(60))) struct ConnectionTests {
    private let places: Places
    private let store: FilePath
    private let agent: AgentProcess

    init() throws {
        places = try Places()
        store = places.group.appending("Notes.sqlite")
        try sqlite(store, "PRAGMA journal_mode = WAL; CREATE TABLE note (text)")
        agent = try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
    }

    private func descriptors() throws -> Int { try Directory(FilePath("/proc/\(agent.process.pid)/fd")).names().count }

    /// Commits, and waits until a well-behaved subscriber receives the change.
    private func expectChange(_ subscriber: WireConnection) throws {
        try sqlite(store, "INSERT INTO note VALUES ('one')")
        try subscriber.next("change")
    }

    /// The agent does not retain idle connections, and no other client waits for them.
    @Test func aThousandIdleConnectionsDelayNoOtherClient() throws {
        // No other test may get an inotify instance with such a high number meanwhile.
        let turn = Turn()
        let subscriber = try agent.subscribe("Notes.sqlite")
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        limit.rlim_cur = limit.rlim_max
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        var idle: [WireConnection] = []
        for _ in 1...1000 { idle.append(try agent.connect()) }
        // The agent serves a later connection, so it has accepted all of them.
        let last = try agent.connect()
        #expect(try descriptors() > 1001)
        try expectChange(subscriber)
        idle = []
        while try descriptors() > 100 { try last.ping() }
        try expectChange(subscriber)
        withExtendedLifetime(turn) {}
    }

    /// The agent accepts the waiting client without any other client leaving.
    @Test func acceptsWaitingClientsOnceDescriptorsAreFree() throws {
        let subscriber = try agent.subscribe("Notes.sqlite")
        let pid = Word("\(agent.process.pid)")
        let limit = try run("prlimit", ["--pid", pid, "--nofile", "--noheadings", "--output=SOFT"])
        let soft = Word(limit.output.filter(\.isNumber))
        func setLimit(_ most: Word) throws {
            #expect(try run("prlimit", ["--pid", pid, "--nofile=" + most + ":"]).status == 0)
        }
        try setLimit("3")
        let waiting = try UnixSocket.connect(to: agent.socket)
        try agent.process.line(.errors) { $0.contains("not accepting connections for now") }
        try setLimit(soft)
        _ = try agent.connect()
        try expectChange(subscriber)
        _ = consume waiting
    }

    /// Each client sends part of a request, and never the rest.
    @Test func incompleteLinesDelayNoOtherClient() throws {
        let subscriber = try agent.subscribe("Notes.sqlite")
        var halves: [WireConnection] = []
        for number in 0..<200 {
            let half = try agent.connect()
            try half.send(bytes: Array(repeating: UInt8(ascii: "{"), count: number * 160))
            halves.append(half)
        }
        try expectChange(subscriber)
        // The late remainder completes the line.
        try halves[0].send(bytes: Array("{\"id\":9,\"op\":\"stat".utf8))
        try expectChange(subscriber)
        try halves[0].send(bytes: Array("us\"}\n".utf8))
        try halves[0].next { $0["id"] == 9 && $0.bool("ok") == true }
    }

    /// The clients send random bytes, and requests that are cut and joined at random. The agent still serves other
    /// clients.
    @Test func garbageDelaysNoOtherClient() throws {
        var random = SeededGenerator(seed: Tier.seed)
        print("seed \(Tier.seed)")
        let subscriber = try agent.subscribe("Notes.sqlite")
        let requests = [
            #"{"id":1,"op":"subscribe","store":"\#(AgentProcess.group)/Notes.sqlite"}"#, #"{"id":2,"op":"status"}"#,
            #"{"op":"claim","store":"\#(AgentProcess.group)/a","access":"write","deadline":0.01}"#,
            #"{"op":"present","store":"\#(AgentProcess.group)/a"}"#, #"{"op":"release","claim":"c1"}"#,
        ].map { Array(($0 + "\n").utf8) }
        for _ in 0..<200 {
            let client = try UnixSocket.connect(to: agent.socket)
            var bytes: [UInt8] = []
            for _ in 0..<Int.random(in: 1...20, using: &random) {
                switch Int.random(in: 0..<4, using: &random) {
                case 0: bytes += (0..<40).map { _ in UInt8.random(in: 0...255, using: &random) }
                case 1: bytes += (requests.randomElement(using: &random) ?? []).dropLast(3)
                default: bytes += requests.randomElement(using: &random) ?? []
                }
            }
            // Some clients leave before the answer. The agent may close first, which is not a failure.
            _ = try? UnixSocket.send(bytes[...], on: client.raw)
        }
        try expectChange(subscriber)
    }
}

extension WireConnection {
    fileprivate func ping() throws {
        try send(["id": "ping", "op": "status"])
        try next { $0["id"] == "ping" && $0["ok"] != nil }
    }
}
