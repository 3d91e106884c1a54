import AgentProtocol
import GroupContainers
import LinuxSystem
import NATSStreams
import PersistentHistory
import StoreReplication
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelay

/// Downloads from a home that a test plays, over a real broker.
@Suite(.ownThreads, .enabled(if: !NATSServer.programs.isEmpty, "there is no nats-server"))
struct SnapshotDownloadTests {
    private static let chunkSize = 1024
    private static let chunks = 100

    private let server: NATSServer
    private let directory: TemporaryDirectory
    private let stream: RelayStream

    init() throws {
        server = try NATSServer(NATSServer.programs[0])
        directory = try TemporaryDirectory()
        stream = try RelayStream("Notes")
    }

    private func connect() throws -> NATSConnection {
        try NATSConnection(ConnectionOptions(servers: [ServerAddress(server.url)], name: "test"))
    }

    private func link(_ connection: NATSConnection) -> StreamLink {
        StreamLink(connection: connection, stream: stream, key: nil)
    }

    private static func chunk(_ index: Int) -> [UInt8] { [UInt8](repeating: UInt8(index), count: chunkSize) }

    /// Answers requests until so many chunks, or all, were requested, and is gone then. Returns once it listens.
    ///
    /// - Parameter losing: The requests of chunks that get no answer, and the probes, numbered from 0.
    private func home(
        sending count: Int, losing: (chunks: Range<Int>, probes: Int) = (0..<0, 0),
        indices: @escaping @Sendable (Int) -> Void
    ) throws -> SystemThread {
        let connection = try connect()
        let digests = (0..<Self.chunks).map { SnapshotDigest.line(SHA256Stream.digest(Self.chunk($0))) }
        let all = SHA256Stream()
        for line in digests { all.add(line) }
        let announcement: JSONObject = [
            "state": "ready", "id": "one", "size": .integer(Int64(Self.chunks * Self.chunkSize)),
            "chunk_size": .integer(Int64(Self.chunkSize)), "chunks_sha256": .string(all.finish()),
            "upto": "h1.00000000000000000001.1.1", "schema": "digest",
        ]
        let listening = MonotonicSemaphore()
        let snapshots = stream.snapshots
        let thread = try SystemThread(name: "home") {
            var (sent, probes, isGone) = (0, 0, false)
            var requests = try? connection.subscribe(snapshots)
            guard (try? connection.flush()) != nil else { return }
            listening.signal()
            while !isGone, let request = try? requests?.next(within: .ample), let reply = request.reply {
                guard let index = request.json?.integer("index") else {
                    try? connection.publish(OutgoingMessage(reply, body: Array(announcement.text.utf8)))
                    continue
                }
                guard index < Self.chunks else {
                    probes += 1
                    if probes > losing.probes {
                        let headers = [(name: "Gs-Error", value: "unknown_snapshot")]
                        try? connection.publish(OutgoingMessage(reply, headers: headers, body: []))
                    }
                    continue
                }
                indices(Int(index))
                sent += 1
                if losing.chunks.contains(sent - 1) { continue }
                isGone = sent == count || count == Self.chunks && index == Self.chunks - 1
                if isGone {
                    // Before the last answer, which makes the follower ask for more.
                    requests = nil
                    try? connection.flush()
                }
                try? connection.publish(OutgoingMessage(reply, body: Self.chunk(Int(index))))
            }
            try? connection.flush()
            connection.close()
        }
        #expect(listening.wait(within: .ample))
        return thread
    }

    /// Gives every request the same answer, until the connection is closed. Returns once it listens.
    private func liar(_ answer: String) throws -> NATSConnection {
        let connection = try connect()
        let requests = try connection.subscribe(stream.snapshots)
        try connection.flush()
        nonisolated(unsafe) let subscription = requests
        _ = try SystemThread(name: "liar") {
            while let request = try? subscription.next(within: .ample), let reply = request.reply {
                try? connection.publish(OutgoingMessage(reply, body: Array(answer.utf8)))
            }
        }
        return connection
    }

    /// Without a key, anybody may have answered: an error, after which the follower pauses, and never a trap.
    @Test(
        arguments: [
            (#"{"state":"current","upto":"h1.ab.0.0"}"#, "malformed_snapshot"),
            (#"{"state":"current"}"#, "malformed_snapshot"),
            (#"{"state":"challenge","challenge":"aa"}"#, "malformed_snapshot"),
            (#"{"state":"?"}"#, "malformed_snapshot"),
            ("[]", "malformed_snapshot"), (announcement(size: .max), "malformed_snapshot"),
            (announcement(size: -512), "malformed_snapshot"), (announcement(size: 1 << 48), "no_space"),
            (#"{"state":"failed","message":"LONG"}"#, "no_snapshot"),
        ])
    func anImpossibleAnswerIsAnError(answer: String, code: String) throws {
        let long = String(repeating: "m", count: 5000)
        let home = try liar(answer.split(separator: "LONG", omittingEmptySubsequences: false).joined(separator: long))
        defer { home.close() }
        let container = GroupContainer(directory: try Directory(directory.path))
        let request = SnapshotRequest(follower: "f", have: nil, reason: .first)
        let error = #expect(throws: (any Error).self) {
            try SnapshotDownload(link(connect()), in: container, for: "Notes.sqlite")
                .run(request, RelayStop(), making: {}, progress: { _, _ in }, last: { nil })
        }
        let found = try #require(error as? any ActionableError)
        #expect(found.errorCode == code && found.fullMessage.utf8.count < 1000)
        if let found = found as? RelayError {
            guard case .retry = SessionFailure(found, hasConnected: true) else {
                Issue.record("the follower doesn't pause")
                return
            }
        }
    }

    private static func announcement(size: Int64) -> String {
        """
        {"state":"ready","id":"91c2","size":\(size),"chunk_size":524288,"upto":"h1.ab.0.0","schema":"s",\
        "chunks_sha256":"\(String(repeating: "0", count: 64))"}
        """
    }

    /// A connection that was lost for a moment takes some answers with it, and perhaps that to the first probe.
    @Test(arguments: [0, 1]) func requestsLostChunksAgain(probesLost: Int) throws {
        let asked = Mutex<[Int]>([])
        let lost = 30..<42
        let home = try home(sending: Self.chunks + lost.count, losing: (lost, probesLost)) { index in
            asked.withLock { $0.append(index) }
        }
        let container = GroupContainer(directory: try Directory(directory.path))
        let request = SnapshotRequest(follower: "f", have: nil, reason: .first)
        let snapshot = try #require(
            try SnapshotDownload(link(connect()), in: container, for: "Notes.sqlite")
                .run(request, RelayStop(), making: {}, progress: { _, _ in }, last: { nil }))
        #expect(snapshot.written == snapshot.sha256)
        #expect(asked.withLock { $0.sorted() } == (Array(0..<Self.chunks) + Array(lost)).sorted())
        #expect(home.join(within: .ample))
    }

    /// A home that goes away is waited for over the same connection, and its absence isn't taken for the broker's.
    @Test func goesOnWhereItWasOnceTheHomeIsBack() throws {
        let connection = try connect()
        let asked = Mutex<[Int]>([])
        let request = SnapshotRequest(follower: "f", have: nil, reason: .first)
        func download() throws -> Snapshot? {
            let container = GroupContainer(directory: try Directory(directory.path))
            return try SnapshotDownload(link(connection), in: container, for: "Notes.sqlite")
                .run(request, RelayStop(), making: {}, progress: { _, _ in }, last: { nil })
        }
        let first = try home(sending: 30) { index in asked.withLock { $0.append(index) } }
        let error = #expect(throws: RelayError.self) { try download() }
        #expect(error?.errorCode == "no_home" && !connection.isClosed)
        #expect(first.join(within: .ample))
        let before = asked.withLock { $0 }
        #expect(before == Array(0..<30))

        let second = try home(sending: Self.chunks) { index in asked.withLock { $0.append(index) } }
        let snapshot = try #require(try download())
        #expect(snapshot.written == snapshot.sha256)
        let again = asked.withLock { Array($0.dropFirst(30)) }
        #expect(again == Array((again.first ?? 0)..<Self.chunks) && (again.first ?? 0) > 0 && (again.first ?? 0) <= 30)
        #expect(try Directory(directory.path.appending(".groupstore").appending("replicas")).names().count == 2)
        #expect(second.join(within: .ample))
    }

    /// A home that was superseded and hasn't noticed may answer before the new one.
    @Test(arguments: [SnapshotRequest.Reason.first, .gap, .schemaChanged, .damaged, .otherHistory])
    func refusesASnapshotOfAnotherHistoryThanTheStreams(reason: SnapshotRequest.Reason) throws {
        let asked = Mutex<[Int]>([])
        let home = try home(sending: Self.chunks) { index in asked.withLock { $0.append(index) } }
        let container = GroupContainer(directory: try Directory(directory.path))
        let connection = try connect()
        func download(last: String) throws -> Snapshot? {
            try SnapshotDownload(link(connection), in: container, for: "Notes.sqlite").run(
                SnapshotRequest(follower: "f", have: HistoryToken("h1.00000000000000000003.7.1"), reason: reason),
                RelayStop(), making: {}, progress: { _, _ in }, last: { HistoryToken(last) })
        }
        let error = #expect(throws: RelayError.self) { try download(last: "h1.00000000000000000002.9.9") }
        #expect(error?.errorCode == "other_home" && asked.withLock { $0.isEmpty })
        #expect(try download(last: "h1.00000000000000000001.9.9") != nil)
        #expect(home.join(within: .ample))
    }
}
