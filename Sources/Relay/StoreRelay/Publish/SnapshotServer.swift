import AgentProtocol
import Glibc
import GroupContainers
import LinuxSystem
import NATSStreams
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import StoreReplication
import Synchronization
import SystemPackage

/// Answers followers' requests for snapshots and their chunks (Documentation/Relay.md, "Snapshots").
///
/// A snapshot is a file in a directory that only this user can enter. At most two are kept. One is removed some minutes
/// after its last request, for another one if nobody receives it, and at the end of its lifetime.
///
/// Every holder of a follower's credentials may send requests. So the home answers inboxes only: on any other subject,
/// an answer would be a request with the home's permissions. With a key, it answers only requests with a valid digest
/// and a challenge issued minutes ago at most, so that a recorded request is of no use later.
final class SnapshotServer: Sendable {
    private struct Served {
        let snapshot: Snapshot
        /// The digests by the size of the chunks: another broker may accept only smaller chunks.
        var digests: [Int: SnapshotDigest]
    }

    private struct State {
        var served: [String: Served] = [:]
        var offers = SnapshotOffers()
        var challenges = RequestChallenges(at: .now)
        var failure: String?
        /// The token up to which everything is published; nil while more is to be published.
        var published: HistoryToken?
    }

    private let state = Mutex(State())
    private let directory: Directory
    private let stream: RelayStream
    private let key: RelayKey?

    /// The longest request, in bytes.
    private static let maxRequestSize = 4096
    /// The largest chunk, in bytes.
    static let chunkSize = Snapshot.usualChunkSize

    /// - Parameter path: The directory in which the snapshots get one of their own. It must have room for two copies of
    ///   the store. Files of an earlier process for this stream are removed.
    init(_ stream: RelayStream, in path: FilePath, key: RelayKey?) throws {
        self.stream = stream
        self.key = key
        try GroupContainer.create(path)
        directory = try Self.ownDirectory("\(stream.name).snapshots", in: Directory(path))
        for name in try directory.names() where name.string.hasPrefix(Self.prefix) {
            try directory.removeFile(name)
        }
    }

    /// Returns a directory of this user's alone, and creates it if it is missing: SQLite opens a snapshot or a mirror
    /// by its path, so nobody else may put a link there. Throws `SystemError` if it is another user's, or a link.
    static func ownDirectory(_ name: String, in parent: Directory) throws(SystemError) -> Directory {
        let path = parent.path.appending(name)
        guard let name = path.lastComponent else { throw SystemError("mkdir", .invalidArgument, path: path) }
        do throws(SystemError) {
            try parent.makeDirectory(name, mode: 0o700)
        } catch {
            guard error.errno == .fileExists else { throw error }
        }
        let own = try parent.directory(name)
        let status = try own.status()
        guard status.owner == geteuid() else { throw SystemError("open", .notPermitted, path: path) }
        if status.permissions != 0o700 { try own.setPermissions(0o700) }
        return own
    }

    deinit {
        for id in state.withLock({ $0.served.keys }) { try? directory.removeFile(name(id)) }
    }

    private static let prefix = "snapshot-"

    private func name(_ id: String) -> FilePath.Component { FilePath.Component(Self.prefix + id) ?? "snapshot" }

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

    /// Makes a snapshot for the waiting followers, unless a kept one helps them, or all kept ones are being received.
    /// The followers receive an error. Returns true if one was made. Throws `StoreHistory.Discontinuity` after which
    /// followers need a snapshot of another history.
    func make(of source: ReplicationSource) throws -> Bool {
        try withdrawUnusable(source)
        let begun = ContinuousClock.now
        let replaced = state.withLock { state -> [String]? in
            guard state.offers.needsAnother(at: begun) else { return nil }
            return state.offers.makeRoom(at: begun)
        }
        guard let replaced else { return false }
        let id = String(UInt64.random(in: 1...UInt64.max), radix: 16)
        do {
            try remove(replaced)
            try checkRoom(for: source.location)
            try source.prove()
            source.close()
            let (snapshot, digest) = try Snapshot.makeWithDigest(
                of: source.location, at: directory.path.appending(name(id)))
            state.withLock { state in
                state.served[id] = Served(snapshot: snapshot, digests: [digest.chunkSize: digest])
                state.offers.add(id, upto: snapshot.upto, size: snapshot.size, begun: begun, made: .now)
                state.failure = nil
            }
            return true
        } catch {
            try? directory.removeFile(name(id))
            // One that is busy is tried again, and so is a mirror that was made anew.
            if case StoreError.busy = error { throw error }
            if error is StoreHistory.Discontinuity { throw error }
            state.withLock { state in
                state.failure = (error as? any ActionableError)?.messageWithRemedy ?? "\(error)"
                state.offers.noteFailure(begun: begun, ended: .now)
            }
            throw error
        }
    }

    /// Throws `SystemError` if the store is larger than the free space. A full disk would stop the store's writers.
    func checkRoom(for store: StoreLocation) throws(SystemError) {
        var size: Int64 = 0
        for name in [store.name.database] + store.name.sideFiles {
            size += try store.directory.status(name)?.size ?? 0
        }
        guard try directory.fileSystem().available > UInt64(max(0, size)) else {
            throw SystemError("write", .noSpace, path: directory.path)
        }
    }

    /// Removes the snapshots that are unused for too long, or too old. Throws `SystemError`.
    func removeUnused() throws(SystemError) { try remove(state.withLock { $0.offers.removeExpired(at: .now) }) }

    private func remove(_ ids: [String]) throws(SystemError) {
        state.withLock { state in
            for id in ids { state.served[id] = nil }
        }
        for id in ids { try directory.removeFile(name(id)) }
    }

    // MARK: The thread that answers

    /// Answers requests until the connection is lost. Asks the publisher through the mailbox for a snapshot.
    ///
    /// - Parameter look: Called before a snapshot is offered. Throws if this store may not be the home any more.
    func answer(
        _ requests: NATSSubscription, on connection: NATSConnection, mailbox: PublisherMailbox,
        look: () throws -> Void
    ) throws {
        while true {
            guard let request = try requests.next(within: .seconds(60)) else { continue }
            guard let answer = try answer(request, maxPayload: connection.maxPayload, mailbox: mailbox, look: look)
            else {
                mailbox.note { $0.refused += 1 }
                continue
            }
            try connection.publish(answer)
        }
    }

    /// Returns the answer to a request; nil for a malformed one, and for one that names no inbox for the answer.
    func answer(
        _ request: NATSMessage, maxPayload: Int, mailbox: PublisherMailbox, look: () throws -> Void
    ) throws -> OutgoingMessage? {
        guard let reply = request.reply, stream.isReplySubject(reply), request.body.count <= Self.maxRequestSize,
            let object = request.json
        else { return nil }
        if let key {
            let fields = SnapshotRequestDigest.fields(stream, reply: reply)
            guard try key.accepts(request.headers[RelayHeader.mac], of: fields, request.body) else {
                mailbox.note { $0.refused += 1 }
                let (headers, body) = refusal(.wrongDigest)
                return OutgoingMessage(reply, headers: headers, body: body)
            }
        }
        let size = max(1 << 10, min(Self.chunkSize, BatchOutlet.body(ofMessage: maxPayload)))
        guard let (headers, body) = try answer(object, chunkSize: size, mailbox: mailbox, look: look), !body.isEmpty
        else { return nil }
        return OutgoingMessage(reply, headers: headers, body: body)
    }

    private typealias Answer = (headers: [(name: String, value: String)], body: [UInt8])

    private func answer(
        _ object: JSONObject, chunkSize: Int, mailbox: PublisherMailbox, look: () throws -> Void
    ) throws -> Answer? {
        switch object.string("op") {
        case "begin":
            guard let nonce = object.string("nonce"), (1...64).contains(nonce.utf8.count) else { return nil }
            let answer =
                try challenge(to: object, nonce: nonce)
                ?? begin(SnapshotRequest(object), chunkSize: chunkSize, mailbox: mailbox, look: look)
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

    private func refusal(_ refusal: SnapshotRefusal) -> Answer {
        let body: JSONObject = ["state": "failed", "message": .string(refusal.rawValue)]
        return ([(name: RelayHeader.error, value: refusal.rawValue)], Array(body.text.utf8))
    }

    /// Returns a challenge if the request may be a recorded one; nil if it can't be, or if there is no key.
    private func challenge(to request: JSONObject, nonce: String) -> JSONObject? {
        guard key != nil else { return nil }
        var values: [String] = []
        if case .array(let found)? = request["challenges"] {
            for case .string(let value) in found { values.append(value) }
        }
        return state.withLock { state in
            if state.challenges.accepts(values, nonce: nonce, at: .now) { return nil }
            return ["state": "challenge", "challenge": .string(state.challenges.issue(at: .now))]
        }
    }

    private func begin(
        _ request: SnapshotRequest, chunkSize: Int, mailbox: PublisherMailbox, look: () throws -> Void
    ) throws -> JSONObject {
        try look()
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

    private func chunk(_ id: String, _ index: Int, size: Int) throws -> Answer {
        let served = state.withLock { state in
            state.offers.use(id, at: .now)
            return state.served[id]
        }
        guard let served, index < served.snapshot.chunkCount(size: size),
            let bytes = try? served.snapshot.chunk(index, size: size)
        else { return refusal(.unknownSnapshot) }
        guard let key else { return ([], bytes) }
        // The digest computed while writing: followers refuse a chunk that the disk has changed since.
        let sha256 = served.digests[size]?[index] ?? SHA256Stream.digest(bytes)
        let fields = SnapshotChunk.fields(stream, id: id, index: index, sha256: sha256)
        return (try RelayKey.header(key, of: fields, []), bytes)
    }
}
