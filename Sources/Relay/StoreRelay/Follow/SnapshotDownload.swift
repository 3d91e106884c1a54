import AgentProtocol
import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import NATSStreams
import PersistentHistory
import StoreReplication
import SystemPackage

/// Requests a snapshot from the home, and writes it to a file (Documentation/Relay.md, "Snapshots"). An interrupted
/// download continues where it ended.
struct SnapshotDownload {
    private let link: StreamLink
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
    init(_ link: StreamLink, in container: GroupContainer, for store: FilePath.Component) throws {
        self.link = link
        directory = try container.replicas()
        file = store.appending(".snapshot") ?? "snapshot"
        note = store.appending(".snapshot.json") ?? "snapshot.json"
    }

    /// Downloads a snapshot. Returns nil if the home has published nothing after the position of a replica whose stream
    /// was damaged, or if the end was requested.
    ///
    /// Throws `NATSError`, `RelayError` and `SystemError`. The received chunks stay for the next attempt.
    ///
    /// - Parameters:
    ///   - making: Called each time the home answers that it makes the snapshot.
    ///   - progress: Called with the bytes that were received, and with all.
    ///   - last: Returns the token of the stream's last message; nil if it has none that says so.
    func run(
        _ request: SnapshotRequest, _ stop: RelayStop, making: () -> Void, progress: (Int64, Int64) -> Void,
        last: () throws -> HistoryToken?
    ) throws -> Snapshot? {
        if let former = try formerAnnouncement(for: request), try isOfStream(former, last()),
            let digest = try receive(former, stop, progress: progress)
        {
            return try snapshot(former, digest)
        }
        try remove()
        guard let announced = try announcement(for: request, stop, making: making) else { return nil }
        if let upto = announced.token, let last = try last(), !isOfStream(announced, last) {
            throw RelayError.otherHome(upto, last: last)
        }
        try DurableFile.write(Array(JSONEncoder().encode(announced)), as: note, in: directory, mode: 0o600)
        guard let digest = try receive(announced, stop, progress: progress) else {
            if stop.isRequested { return nil }
            throw RelayError.badSnapshot("the home no longer has it")
        }
        return try snapshot(announced, digest)
    }

    private func isOfStream(_ announced: SnapshotAnnouncement, _ last: HistoryToken?) -> Bool {
        last == nil || last?.history == announced.token?.history
    }

    /// Removes the file.
    func remove() throws {
        try directory.removeFile(note)
        try directory.removeFile(file)
    }

    private func snapshot(_ announced: SnapshotAnnouncement, _ digest: String) throws -> Snapshot {
        guard let upto = announced.token else { throw RelayError.badSnapshot("it has no token") }
        var snapshot = Snapshot(
            path: directory.path.appending(file), size: announced.size, sha256: announced.chunksSHA256,
            chunkSize: announced.chunkSize, upto: upto, schema: announced.schema)
        snapshot.written = digest
        return snapshot
    }

    /// Returns the announcement of an interrupted download that answers the same request, or leads further than the
    /// replica.
    private func formerAnnouncement(for request: SnapshotRequest) throws -> SnapshotAnnouncement? {
        guard let bytes = try DurableFile.read(note, in: directory),
            let found = try? JSONDecoder().decode(SnapshotAnnouncement.self, from: Data(bytes)),
            let upto = found.token, try directory.status(file) != nil
        else { return nil }
        let isSame = found.have == request.have.map { "\($0)" } && found.reason == request.reason
        return isSame || request.reason != .otherHistory && request.isHelped(by: upto) ? found : nil
    }

    /// Asks until the home has made a snapshot. Returns nil if none is needed, or if the end was requested.
    private func announcement(
        for request: SnapshotRequest, _ stop: RelayStop, making: () -> Void
    ) throws -> SnapshotAnnouncement? {
        let deadline = Deadline(after: Self.patience)
        var backoff = Backoff(first: .milliseconds(20), longest: .milliseconds(300))
        let requests = try SnapshotRequests(link)
        while !stop.isRequested {
            let answer = try requests.begin(request)
            switch answer.string("state") {
            case "current":
                // A follower without a copy, or with an older position, can't accept this answer.
                guard request.acceptsCurrent, let have = request.have, answer.string("upto") == "\(have)" else {
                    throw RelayError.badSnapshot("the home says that none is needed")
                }
                return nil
            case "ready": return try SnapshotAnnouncement(answer, for: request)
            case "failed": throw RelayError.noSnapshot(String((answer.string("message") ?? "").prefix(500)))
            case "preparing":
                guard !deadline.hasPassed else { throw RelayError.noSnapshot("none within \(Self.patience)") }
                making()
                stop.wait(backoff.next())
            default: throw RelayError.badSnapshot("the answer has no state")
            }
        }
        return nil
    }

    /// Throws `SystemError` if there is no room for the rest of the file, and for the log that takes it to a replica.
    private func checkRoom(
        for announced: SnapshotAnnouncement, received: Int64
    ) throws(SystemError) {
        let needed = announced.size - received + (announced.have == nil ? 0 : announced.size)
        guard try directory.fileSystem().available >= UInt64(max(0, needed)) else {
            throw SystemError("write", .noSpace, path: directory.path.appending(file))
        }
    }

    /// Receives the chunks that the file lacks. Returns the SHA-256 of all; nil if the home no longer has the snapshot,
    /// or if the end was requested.
    private func receive(
        _ announced: SnapshotAnnouncement, _ stop: RelayStop, progress: (Int64, Int64) -> Void
    ) throws -> String? {
        let received = try SnapshotDownloadFile(
            file, in: directory, expected: announced.size, chunkSize: announced.chunkSize,
            watchdog: link.connection.watchdog)
        try checkRoom(for: announced, received: received.size)
        var chunks = ChunkRequests(
            from: announced.chunkCount(received.size), to: announced.chunkCount(announced.size), window: Self.window)
        let requests = try SnapshotRequests(link)
        func request(_ index: Int, reply: String) throws {
            try requests.send(
                [
                    "op": "chunk", "id": .string(announced.id), "index": .integer(Int64(index)),
                    "size": .integer(Int64(announced.chunkSize)),
                ], reply: reply)
        }
        var written = chunks.first
        var early: [Int: (bytes: [UInt8], sha256: String)] = [:]
        var deadline = Deadline(after: link.connection.timeout * 4)
        var silence = Self.makeSilence()
        while !chunks.isComplete {
            if stop.isRequested { return nil }
            while let index = chunks.begin() { try request(index, reply: "\(index)") }
            let limit = min(silence.next(), deadline.remaining ?? .zero)
            guard let (subject, answer) = try requests.next(within: limit) else {
                guard !deadline.hasPassed else {
                    let operation = "snapshot of \(link.stream.streamName) \(link.connection.server)"
                    throw NATSError(.timedOut, "\(operation): no chunk")
                }
                // There is no such chunk, so the answer is small even if the link is slow.
                try request(chunks.count, reply: "\(Self.probePrefix)\(chunks.sent)")
                continue
            }
            silence = Self.makeSilence()
            if subject.hasPrefix(Self.probePrefix), let number = Int(subject.dropFirst(Self.probePrefix.count)) {
                chunks.receiveProbe(number)
                continue
            }
            guard let index = Int(subject), chunks.receive(index) else { continue }
            switch SnapshotRefusal(answer) {
            case nil: break
            case .unknownSnapshot?: return nil
            case .wrongDigest?: throw RelayError.badSnapshot(SnapshotRefusal.wrongDigest.sentence)
            }
            early[index] = try checked(answer, index, of: announced)
            while let chunk = early.removeValue(forKey: written) {
                try received.append(chunk.bytes, sha256: chunk.sha256)
                written += 1
            }
            deadline = Deadline(after: link.connection.timeout * 4)
            progress(received.size, announced.size)
        }
        // It is synced with the replica that it becomes, or copied into one.
        return try received.finish()
    }

    private func checked(
        _ answer: NATSMessage, _ index: Int, of announced: SnapshotAnnouncement
    ) throws(RelayError) -> (bytes: [UInt8], sha256: String) {
        let start = Int64(index) * Int64(announced.chunkSize)
        guard Int64(answer.body.count) == min(Int64(announced.chunkSize), announced.size - start) else {
            throw .badSnapshot("chunk \(index) has another size")
        }
        let sha256 = SHA256Stream.digest(answer.body)
        if let key = link.key {
            let fields = SnapshotChunk.fields(link.stream, id: announced.id, index: index, sha256: sha256)
            guard try key.accepts(answer.headers[RelayHeader.mac], of: fields, []) else {
                throw .badSnapshot("chunk \(index) has a wrong digest")
            }
        }
        return (answer.body, sha256)
    }
}
