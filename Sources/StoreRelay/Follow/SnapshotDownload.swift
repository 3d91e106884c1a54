import AgentProtocol
import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import NATSStreams
import PersistentHistory
import StoreReplication
import SystemPackage

/// Requests a snapshot from the home, and writes it to a file (Documentation/Relay.md, "Snapshots"). A download that
/// was interrupted goes on where it was.
struct SnapshotDownload {
    /// What the home has announced.
    private struct Announcement: Codable, Equatable {
        let id: String
        let size: Int64
        let chunkSize: Int
        let chunksSHA256: String
        let upto: String
        let schema: String
        /// The request that it answers.
        var have: String?
        var reason: SnapshotRequest.Reason?
    }

    private let connection: NATSConnection
    private let stream: RelayStream
    private let key: RelayKey?
    private let directory: Directory
    private let file: FilePath.Component
    private let note: FilePath.Component

    /// The chunks that are requested ahead.
    private static let window = 24
    /// The time that the home has to make a snapshot.
    private static let patience = Duration.seconds(3600)

    private static let probePrefix = "probe-"

    /// Returns the times without an answer after which a probe is sent.
    private static func makeSilence() -> Backoff { Backoff(first: .seconds(1), longest: .seconds(8)) }

    /// - Parameter container: The replica's group container, in whose `.groupstore/replicas` the file grows.
    init(
        _ connection: NATSConnection, _ stream: RelayStream, key: RelayKey?, in container: GroupContainer,
        for store: FilePath.Component
    ) throws {
        self.connection = connection
        self.stream = stream
        self.key = key
        directory = try GroupContainer.child("replicas", of: container.bookkeeping())
        file = store.appending(".snapshot") ?? "snapshot"
        note = store.appending(".snapshot.json") ?? "snapshot.json"
    }

    /// Downloads a snapshot. Returns nil if the home has published nothing after the position of a replica whose stream
    /// was damaged, or if the end was requested.
    ///
    /// Throws `NATSError`, `RelayError` and `SystemError`. What was received stays for the next attempt.
    ///
    /// - Parameters:
    ///   - making: Called each time the home answers that it makes the snapshot.
    ///   - progress: Called with the bytes that were received, and with all.
    func run(
        _ request: SnapshotRequest, _ stop: RelayStop, making: () -> Void, progress: (Int64, Int64) -> Void
    ) throws -> Snapshot? {
        if let former = try formerAnnouncement(for: request), let digest = try receive(former, stop, progress) {
            return try snapshot(former, digest)
        }
        try remove()
        guard let announced = try announcement(for: request, stop, making) else { return nil }
        try DurableFile.write(Array(JSONEncoder().encode(announced)), as: note, in: directory, mode: 0o600)
        guard let digest = try receive(announced, stop, progress) else {
            if stop.isRequested { return nil }
            throw RelayError.badSnapshot("the home no longer has it")
        }
        return try snapshot(announced, digest)
    }

    /// Removes the file.
    func remove() throws {
        try directory.removeFile(note)
        try directory.removeFile(file)
    }

    private func snapshot(_ announced: Announcement, _ digest: String) throws -> Snapshot {
        guard let upto = HistoryToken(announced.upto) else { throw RelayError.badSnapshot("it has no token") }
        var snapshot = Snapshot(
            path: directory.path.appending(file), size: announced.size, sha256: announced.chunksSHA256,
            chunkSize: announced.chunkSize, upto: upto, schema: announced.schema)
        snapshot.written = digest
        return snapshot
    }

    /// Returns the announcement of an interrupted download that answers the same request, or leads further than the
    /// replica.
    private func formerAnnouncement(for request: SnapshotRequest) throws -> Announcement? {
        guard let bytes = try DurableFile.read(note, in: directory),
            let found = try? JSONDecoder().decode(Announcement.self, from: Data(bytes)),
            let upto = HistoryToken(found.upto), try directory.status(file) != nil
        else { return nil }
        let isSame = found.have == request.have.map { "\($0)" } && found.reason == request.reason
        return isSame || request.reason != .otherHistory && request.isHelped(by: upto) ? found : nil
    }

    /// Asks until the home has made a snapshot. Returns nil if none is needed, or if the end was requested.
    private func announcement(
        for request: SnapshotRequest, _ stop: RelayStop, _ making: () -> Void
    ) throws -> Announcement? {
        let deadline = Deadline(after: Self.patience)
        var backoff = Backoff(first: .milliseconds(20), longest: .milliseconds(300))
        while !stop.isRequested {
            let nonce = String(UInt64.random(in: .min ... .max), radix: 16)
            let answer = try ask(request.object(nonce: nonce))
            if let key {
                // The nonce proves that the answer is no earlier one.
                let fields = [stream.streamName, "snapshot", nonce]
                guard try key.accepts(answer.headers[RelayHeader.mac], of: fields, answer.body) else {
                    throw RelayError.badSnapshot("the answer has a wrong digest")
                }
            }
            guard let object = answer.json else {
                throw RelayError.badSnapshot("the answer is not JSON")
            }
            switch object.string("state") {
            case "current": return nil
            case "ready": return try announcement(object, for: request)
            case "failed": throw RelayError.noSnapshot(object.string("message") ?? "")
            default:
                guard !deadline.hasPassed else { throw RelayError.noSnapshot("none within \(Self.patience)") }
                making()
                stop.wait(backoff.next())
            }
        }
        return nil
    }

    private func ask(_ request: JSONObject) throws -> NATSMessage {
        try homesAnswer { () throws(NATSError) in
            try connection.request(OutgoingMessage(stream.snapshots, body: Array(request.text.utf8)))
        }
    }

    /// Throws `RelayError.noHome` if nobody listens to requests, which the broker says at once.
    private func homesAnswer<Answer>(_ receive: () throws(NATSError) -> Answer) throws -> Answer {
        do throws(NATSError) {
            return try receive()
        } catch {
            guard error.code == .noJetStream else { throw error }
            throw RelayError.noHome(stream: stream.streamName)
        }
    }

    private func announcement(
        _ object: JSONObject, for request: SnapshotRequest
    ) throws(RelayError) -> Announcement {
        guard let id = object.string("id"), let size = object.integer("size"), size > 0,
            let chunkSize = object.integer("chunk_size"), chunkSize >= 1 << 10, chunkSize <= SnapshotServer.chunkSize,
            let sha256 = object.string("chunks_sha256"), let upto = object.string("upto"),
            let token = HistoryToken(upto),
            // A home with an older program doesn't say the state.
            let schema = object.string("schema_state") ?? object.string("schema")
        else { throw .badSnapshot("the announcement lacks something") }
        try request.check(token)
        return Announcement(
            id: id, size: size, chunkSize: Int(chunkSize), chunksSHA256: sha256, upto: upto, schema: schema,
            have: request.have.map { "\($0)" }, reason: request.reason)
    }

    /// Receives the chunks that the file lacks. Returns the SHA-256 of all; nil if the home no longer has the snapshot,
    /// or if the end was requested.
    private func receive(
        _ announced: Announcement, _ stop: RelayStop, _ progress: (Int64, Int64) -> Void
    ) throws -> String? {
        let received = try ReceivedFile(
            file, in: directory, expected: announced.size, chunkSize: announced.chunkSize,
            watchdog: connection.watchdog)
        func chunkCount(_ bytes: Int64) -> Int {
            Int((bytes + Int64(announced.chunkSize) - 1) / Int64(announced.chunkSize))
        }
        var requests = ChunkRequests(
            from: chunkCount(received.size), to: chunkCount(announced.size), window: Self.window)
        let inbox = try NATSConnection.uniqueSubject()
        let answers = try connection.subscribe(inbox + ".*")
        func request(_ index: Int, reply: String) throws {
            let request: JSONObject = [
                "op": "chunk", "id": .string(announced.id), "index": .integer(Int64(index)),
                "size": .integer(Int64(announced.chunkSize)),
            ]
            try connection.publish(
                OutgoingMessage(stream.snapshots, reply: "\(inbox).\(reply)", body: Array(request.text.utf8)))
        }
        var written = requests.first
        var early: [Int: (bytes: [UInt8], sha256: String)] = [:]
        var deadline = Deadline(after: connection.timeout * 4)
        var silence = Self.makeSilence()
        while !requests.isComplete {
            if stop.isRequested { return nil }
            while let index = requests.begin() { try request(index, reply: "\(index)") }
            let limit = min(silence.next(), deadline.remaining ?? .zero)
            guard let answer = try homesAnswer({ () throws(NATSError) in try answers.next(within: limit) }) else {
                guard !deadline.hasPassed else {
                    throw NATSError(.timedOut, "snapshot of \(stream.streamName) \(connection.server): no chunk")
                }
                // There is no such chunk, so the answer is small even if the link is slow.
                try request(requests.count, reply: "\(Self.probePrefix)\(requests.sent)")
                continue
            }
            silence = Self.makeSilence()
            let subject = answer.subject.dropFirst(inbox.count + 1)
            if subject.hasPrefix(Self.probePrefix), let number = Int(subject.dropFirst(Self.probePrefix.count)) {
                requests.receiveProbe(number)
                continue
            }
            guard let index = Int(subject), requests.receive(index) else { continue }
            if answer.headers["Gs-Error"] != nil { return nil }
            early[index] = try checked(answer, index, of: announced)
            while let chunk = early.removeValue(forKey: written) {
                try received.append(chunk.bytes, sha256: chunk.sha256)
                written += 1
            }
            deadline = Deadline(after: connection.timeout * 4)
            progress(received.size, announced.size)
        }
        // It is synced with the replica that it becomes, or copied into one.
        return try received.finish()
    }

    private func checked(
        _ answer: NATSMessage, _ index: Int, of announced: Announcement
    ) throws(RelayError) -> (bytes: [UInt8], sha256: String) {
        let start = Int64(index) * Int64(announced.chunkSize)
        guard Int64(answer.body.count) == min(Int64(announced.chunkSize), announced.size - start) else {
            throw .badSnapshot("chunk \(index) has another size")
        }
        let sha256 = SHA256Stream.digest(answer.body)
        if let key {
            let fields = SnapshotChunk.fields(stream, announced.id, index, sha256: sha256)
            guard try key.accepts(answer.headers[RelayHeader.mac], of: fields, []) else {
                throw .badSnapshot("chunk \(index) has a wrong digest")
            }
        }
        return (answer.body, sha256)
    }
}
