import AgentProtocol
import FoundationEssentials
import GroupContainer
import LinuxSystem
import Synchronization
import SystemPackage

/// What is told of a relocation that was asked for.
public enum RelocationProgress: Sendable {
    /// What is going to be done, what was found, what a person should know.
    case note(String)
    /// Presenters and programs that are waited for.
    case waiting(for: [StoreChange.Holder])
    case copied(bytes: Int64, of: Int64)
    /// The end. `outcome`: `relocated`, `already_relocated`, `nothing_to_do`, `migrated`, `set_aside`.
    case finished(outcome: String, from: URL, to: URL)
}

extension SharedStore {
    /// Asks the agent to bring the store from `legacyURL` to the group container, now. Ends after `finished`. Throws
    /// `GroupStoreError`: `busy` with who holds it, `refused` with what is in the way, `noAgent`; nothing has changed
    /// then. A task that is cancelled stops following; the agent goes on.
    public func relocate(deadline: Duration = .seconds(30)) -> AsyncThrowingStream<RelocationProgress, any Error> {
        AsyncThrowingStream { continuation in
            do {
                let asked = try RelocationInquiry(self, deadline: deadline)
                continuation.onTermination = { _ in asked.end() }
                _ = try SystemThread(name: "gs-relocate") { asked.run(continuation) }
            } catch {
                continuation.finish(throwing: error)
            }
        }
    }
}

/// One relocation, asked for on a thread of its own.
private final class RelocationInquiry: Sendable {
    private let operation: RelocateOperation
    private let socket: FilePath
    private let wire = Mutex<AgentWire?>(nil)

    init(_ store: SharedStore, deadline: Duration) throws {
        guard let legacy = store.legacyURL else {
            throw GroupStoreError(
                .badName, "\(store.name) has no legacy place", remedy: "give the store its legacy URL")
        }
        guard let socket = AgentSocket.path(environment: AgentRegistries.environment) else {
            throw GroupStoreError(AgentConnectionError.noSocketPath)
        }
        self.socket = socket
        let source = FilePath(legacy.path)
        let group = store.container.directory.path
        var operation = RelocateOperation(source: source.bytes, group: group.bytes)
        operation.sourceIdentity = FileStatus(following: source).map { .init($0.identity) }
        operation.groupIdentity = FileStatus(following: group).map { .init($0.identity) }
        operation.name = store.component.bytes
        operation.deadline = deadline.seconds
        self.operation = operation
    }

    /// The follower has gone.
    func end() { wire.withLock { $0 }?.end() }

    func run(_ continuation: AsyncThrowingStream<RelocationProgress, any Error>.Continuation) {
        do throws(AgentConnectionError) {
            let connection = try AgentConnection(socket)
            wire.withLock { $0 = connection.wire }
            // How long a copy takes is the disk's business; an agent that dies is noticed at once.
            let summary = try connection.request(.relocate(operation), deadline: .none) { type, object in
                if let progress = RelocationProgress(type: type, object) { continuation.yield(progress) }
            }
            if let failure = GroupStoreError(summary: summary) { return continuation.finish(throwing: failure) }
            continuation.yield(RelocationProgress(summary: summary))
            continuation.finish()
        } catch {
            continuation.finish(throwing: GroupStoreError(error))
        }
    }
}

extension RelocateOperation.Identity {
    fileprivate init(_ identity: FileIdentity) { self.init(device: identity.device, inode: identity.inode) }
}

extension RelocationProgress {
    fileprivate init?(type: String, _ object: JSONObject) {
        switch type {
        case "plan", "note", "recovered": self = .note(object.string("text") ?? "")
        case "waiting": self = .waiting(for: object.holders("holders"))
        case "progress": self = .copied(bytes: object.integer("bytes") ?? 0, of: object.integer("of") ?? 0)
        default: return nil
        }
    }

    fileprivate init(summary: JSONObject) {
        self = .finished(
            outcome: summary.string("outcome") ?? "", from: summary.url("from"), to: summary.url("to"))
    }
}

extension GroupStoreError {
    /// Nil when the summary tells of no error.
    fileprivate init?(summary: JSONObject) {
        guard let error = summary.object("error") else { return nil }
        self.init(
            summary.string("outcome") == "busy" ? .busy : .refused, error.string("message") ?? "",
            remedy: error.string("hint") ?? "")
    }
}
