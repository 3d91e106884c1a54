import AgentProtocol
import GroupContainers
import LinuxSystem
import NATSStreams
import PersistentHistory
import SQLiteStore
import StoreReplication
import Synchronization
import SystemPackage

/// Answers followers' requests for snapshots and their chunks (Documentation/Relay.md, "Snapshots").
///
/// A snapshot is a file in a directory of this process. It is removed some minutes after its last request.
final class SnapshotServer: Sendable {
    private struct Served {
        let snapshot: Snapshot
        /// By the size of the chunks, of which another broker may accept smaller ones only.
        var digests: [Int: SnapshotDigest]
        var used: ContinuousClock.Instant
    }

    private struct State {
        var served: [String: Served] = [:]
        var offers = SnapshotOffers()
        var failure: String?
        /// The token up to which everything is published; nil while more is to be published.
        var published: HistoryToken?
    }

    private let state = Mutex(State())
    private let directory: Directory
    private let stream: RelayStream
    private let key: RelayKey?

    private static let retention = Duration.seconds(600)
    /// The time for which one of more than `maxServed` stays.
    private static let shortRetention = Duration.seconds(60)
    private static let maxServed = 3
    /// The largest chunk, in bytes.
    static let chunkSize = Snapshot.usualChunkSize

    /// - Parameter path: The directory of the snapshots, which must have room for the store. What an earlier process
    ///   left there for this stream is removed.
    init(_ stream: RelayStream, in path: FilePath, key: RelayKey?) throws {
        self.stream = stream
        self.key = key
        try GroupContainer.create(path)
        directory = try Directory(path)
        for name in try directory.names() where name.string.hasPrefix(Self.prefix(stream)) {
            try directory.removeFile(name)
        }
    }

    deinit {
        for id in state.withLock({ $0.served.keys }) { try? directory.removeFile(name(id)) }
    }

    private static func prefix(_ stream: RelayStream) -> String { "\(stream.name).snapshot-" }

    private func name(_ id: String) -> FilePath.Component {
        FilePath.Component(Self.prefix(stream) + id) ?? "snapshot"
    }

    // MARK: The publisher's thread

    func setPublished(_ token: HistoryToken?) { state.withLock { $0.published = token } }

    /// Withdraws the snapshots after which no batch can be read: they are before a gap, or of another line.
    func withdrawUnusable(_ source: ReplicationSource) throws {
        for (id, upto) in state.withLock({ $0.offers.tokens }) {
            do {
                try source.check(upto)
            } catch is StoreHistory.Discontinuity {
                state.withLock { $0.offers.withdraw(id) }
            }
        }
    }

    /// Makes a snapshot for those who have asked, unless one that is kept helps them. An error is passed on to them.
    /// Returns true if one was made.
    func make(of source: ReplicationSource) throws -> Bool {
        try withdrawUnusable(source)
        guard state.withLock({ $0.offers.needsAnother(at: .now) }) else { return false }
        let begun = ContinuousClock.now
        let id = String(UInt64.random(in: 1...UInt64.max), radix: 16)
        do {
            source.close()
            let (snapshot, digest) = try Snapshot.makeWithDigest(
                of: source.location, at: directory.path.appending(name(id)))
            state.withLock { state in
                state.served[id] = Served(snapshot: snapshot, digests: [digest.chunkSize: digest], used: .now)
                state.offers.add(id, upto: snapshot.upto, begun: begun, made: .now)
                state.failure = nil
            }
            return true
        } catch {
            try? directory.removeFile(name(id))
            // One that is busy is tried again.
            if case StoreError.busy = error { throw error }
            state.withLock { $0.failure = (error as? any ActionableError)?.messageWithRemedy ?? "\(error)" }
            throw error
        }
    }

    /// Removes the snapshots that nobody has asked for lately.
    func removeUnused() {
        let unused = state.withLock { state in
            let limit = state.served.count > Self.maxServed ? Self.shortRetention : Self.retention
            let ids = state.served.filter { $0.value.used.duration(to: .now) > limit }.map(\.key)
            for id in ids {
                state.served[id] = nil
                state.offers.remove(id)
            }
            return ids
        }
        for id in unused { try? directory.removeFile(name(id)) }
    }

    // MARK: The thread that answers

    /// Answers requests until the connection is lost. Asks the publisher through the mailbox for a snapshot.
    func answer(_ requests: NATSSubscription, on connection: NATSConnection, _ mailbox: PublisherMailbox) throws {
        while true {
            guard let request = try requests.next(within: .seconds(60)), let reply = request.reply else { continue }
            guard let (headers, body) = try answer(request, maxPayload: connection.maxPayload, mailbox) else {
                continue
            }
            try connection.publish(OutgoingMessage(reply, headers: headers, body: body))
        }
    }

    private func answer(
        _ request: NATSMessage, maxPayload: Int, _ mailbox: PublisherMailbox
    ) throws -> (headers: [(name: String, value: String)], body: [UInt8])? {
        guard let object = request.json else { return nil }
        switch object.string("op") {
        case "begin":
            guard let nonce = object.string("nonce"), nonce.utf8.count <= 64 else { return nil }
            let size = max(1 << 10, min(Self.chunkSize, maxPayload - (8 << 10)))
            let answer = try begin(SnapshotRequest(object), chunkSize: size, mailbox)
            let body = Array(answer.text.utf8)
            return (try RelayKey.header(key, of: [stream.streamName, "snapshot", nonce], body), body)
        case "chunk":
            guard let id = object.string("id"), let index = object.integer("index"), index >= 0,
                let size = object.integer("size"), size >= 1 << 10, size <= Self.chunkSize
            else { return nil }
            return try chunk(id, Int(index), size: Int(size))
        default: return nil
        }
    }

    private func begin(
        _ request: SnapshotRequest, chunkSize: Int, _ mailbox: PublisherMailbox
    ) throws -> JSONObject {
        var offered: (id: String, snapshot: Snapshot)?
        let answer = state.withLock { state -> JSONObject? in
            if let have = request.have, have == state.published, request.acceptsCurrent {
                return ["state": "current", "upto": .string("\(have)")]
            }
            if let failure = state.failure {
                state.failure = nil
                return ["state": "failed", "message": .string(failure)]
            }
            guard let id = state.offers.offer(to: request, at: .now), let served = state.served[id] else { return nil }
            state.served[id]?.used = .now
            offered = (id, served.snapshot)
            return nil
        }
        if let answer { return answer }
        if let (id, snapshot) = offered {
            let digest = try digest(of: id, snapshot, chunkSize: chunkSize)
            return [
                "state": "ready", "id": .string(id), "size": .integer(snapshot.size),
                "chunk_size": .integer(Int64(chunkSize)), "chunks_sha256": .string(digest.sha256),
                "upto": .string("\(snapshot.upto)"), "schema": .string(snapshot.schemaDigest),
                "schema_state": .string(snapshot.schema),
            ]
        }
        mailbox.post { $0.wantsSnapshot = true }
        return ["state": "preparing"]
    }

    private func digest(of id: String, _ snapshot: Snapshot, chunkSize: Int) throws -> SnapshotDigest {
        if let known = state.withLock({ $0.served[id]?.digests[chunkSize] }) { return known }
        let digest = try SnapshotDigest(of: snapshot.path, chunkSize: chunkSize)
        state.withLock { $0.served[id]?.digests[chunkSize] = digest }
        return digest
    }

    private func chunk(
        _ id: String, _ index: Int, size: Int
    ) throws -> (headers: [(name: String, value: String)], body: [UInt8]) {
        let served = state.withLock { state in
            state.served[id]?.used = .now
            return state.served[id]
        }
        guard let served, index < served.snapshot.chunkCount(size: size),
            let bytes = try? served.snapshot.chunk(index, size: size)
        else { return ([(name: "Gs-Error", value: "unknown_snapshot")], []) }
        guard let key else { return ([], bytes) }
        // What the disk has changed since then has another one, and isn't accepted.
        let sha256 = served.digests[size]?[index] ?? SHA256Stream.digest(bytes)
        let fields = SnapshotChunk.fields(stream, id, index, sha256: sha256)
        return (try RelayKey.header(key, of: fields, []), bytes)
    }
}
