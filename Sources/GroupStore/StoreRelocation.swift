import AgentProtocol
import FoundationEssentials
import GroupContainers
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
    /// then. A task that is cancelled, or lets go of the sequence, gives the relocation up: the agent puts everything
    /// back, unless the store has just arrived.
    public func relocate(deadline: Duration = .seconds(30)) -> AsyncThrowingStream<RelocationProgress, any Error> {
        relocate(deadline: deadline, socket: AgentSocket.path(environment: AgentRegistries.environment))
    }

    func relocate(deadline: Duration, socket: FilePath?) -> AsyncThrowingStream<RelocationProgress, any Error> {
        AsyncThrowingStream { continuation in
            do {
                let asked = try RelocationInquiry(self, deadline: deadline, socket: socket)
                continuation.onTermination = { _ in asked.end() }
                _ = try SystemThread(name: "gs-relocate") { asked.run(continuation) }
            } catch {
                continuation.finish(throwing: GroupStoreError.visible(error))
            }
        }
    }
}

/// One relocation, asked for on a thread of its own.
private final class RelocationInquiry: Sendable {
    private let operation: RelocateOperation
    private let socket: FilePath
    private let state = Mutex(State())

    private struct State {
        var wire: AgentSocketConnection?
        var isEnded = false
    }

    init(_ store: SharedStore, deadline: Duration, socket: FilePath?) throws {
        guard let legacy = store.legacyURL else {
            throw GroupStoreError(
                .badName, "\(store.name) has no legacy place", remedy: "give the store its legacy URL")
        }
        guard let socket else { throw GroupStoreError(AgentConnectionError.noSocketPath) }
        self.socket = socket
        let source = FilePath(legacy.path)
        let group = store.container.directory.path
        var operation = RelocateOperation(source: source.bytes, group: group.bytes)
        operation.sourceIdentity = FileStatus(following: source).map { .init($0.identity) }
        operation.groupIdentity = FileStatus(following: group).map { .init($0.identity) }
        operation.name = store.component.bytes
        // What the agent takes, whatever a caller takes for long.
        operation.deadline = max(.zero, min(deadline, .seconds(86_400))).seconds
        self.operation = operation
    }

    /// The follower has gone.
    func end() {
        state.withLock { state in
            state.isEnded = true
            return state.wire
        }?.end()
    }

    /// For whoever goes before the agent has greeted.
    private func keep(_ wire: AgentSocketConnection) {
        let isEnded = state.withLock { state in
            state.wire = wire
            return state.isEnded
        }
        if isEnded { wire.end() }
    }

    func run(_ continuation: AsyncThrowingStream<RelocationProgress, any Error>.Continuation) {
        do throws(AgentConnectionError) {
            let connection = try AgentConnection(socket, greeting: keep)
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
