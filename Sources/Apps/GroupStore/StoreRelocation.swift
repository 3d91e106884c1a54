import AgentProtocol
import FoundationEssentials
import GroupContainers
import LinuxSystem
import Synchronization
import SystemPackage

/// An event of a requested relocation, as delivered by ``SharedStore/relocate(deadline:)``.
public enum RelocationProgress: Sendable {
    /// A line of text for people: the plan, a finding, or a hint.
    case note(String)
    /// The relocation waits for these presenters and programs.
    case waiting(for: [StoreChange.Holder])
    /// So many bytes were copied, of a total.
    case copied(bytes: Int64, of: Int64)
    /// The relocation ended. `outcome` is `relocated`, `already_relocated`, `nothing_to_do`, `migrated` or `set_aside`.
    ///
    /// It is `nothing_to_do` too if neither place has a store, as at an app's first start. The command line calls that
    /// an error (`no_store`), because a name that somebody types may be mistyped.
    case finished(outcome: String, from: URL, to: URL)
}

extension SharedStore {
    /// Asks the agent to relocate the store from ``legacyURL`` to the group container now. The sequence ends after
    /// `finished`.
    ///
    ///     for try await progress in store.relocate() {
    ///         if case .finished(let outcome, _, let url) = progress { print(outcome, url.path) }
    ///     }
    ///
    /// If the task is cancelled or drops the sequence, the agent cancels the relocation and puts everything back,
    /// unless the store has just arrived.
    ///
    /// - Parameter deadline: How long the relocation waits for other processes, at most one day.
    /// - Throws: ``GroupStoreError`` with `busy` and the processes that hold the store, `refused` and the obstacle,
    ///   `noAgent`, or `badName` without a legacy URL. Nothing has changed then.
    public func relocate(deadline: Duration = .seconds(30)) -> AsyncThrowingStream<RelocationProgress, any Error> {
        relocate(deadline: deadline, socket: AgentSocket.path(environment: AgentRegistries.environment))
    }

    func relocate(deadline: Duration, socket: FilePath?) -> AsyncThrowingStream<RelocationProgress, any Error> {
        AsyncThrowingStream { continuation in
            do {
                let request = try AgentRelocationRequest(self, deadline: deadline, socket: socket)
                continuation.onTermination = { _ in request.end() }
                _ = try SystemThread(name: "gs-relocate") { request.run(continuation) }
            } catch {
                continuation.finish(throwing: GroupStoreError.visible(error))
            }
        }
    }
}

/// A relocation requested from the agent on its own thread.
private final class AgentRelocationRequest: Sendable {
    private let operation: RelocateOperation
    private let socket: FilePath
    private let state = Mutex(State())

    private struct State {
        var transport: AgentSocketConnection?
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
        // The program knows the new place.
        operation.retire = "delete"
        // Limited to the range that the agent accepts.
        operation.deadline = max(.zero, min(deadline, .seconds(86_400))).seconds
        self.operation = operation
    }

    /// Ends the connection when the consumer is gone.
    func end() {
        state.withLock { state in
            state.isEnded = true
            return state.transport
        }?.end()
    }

    /// Keeps the transport so that `end` can close it before the agent's greeting.
    private func hold(_ transport: AgentSocketConnection) {
        let isEnded = state.withLock { state in
            state.transport = transport
            return state.isEnded
        }
        if isEnded { transport.end() }
    }

    func run(_ continuation: AsyncThrowingStream<RelocationProgress, any Error>.Continuation) {
        do throws(AgentConnectionError) {
            let connection = try AgentConnection(socket, greeting: hold)
            // The time for a copy depends on the disk, so there is no deadline. The end of an agent is noticed at once.
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
        case "waiting":
            self = .waiting(for: object.objects("holders").map { StoreChange.Holder(StoreEvent.Holder($0)) })
        case "progress": self = .copied(bytes: object.integer("bytes") ?? 0, of: object.integer("of") ?? 0)
        default: return nil
        }
    }

    fileprivate init(summary: JSONObject) {
        self = .finished(
            outcome: summary.string("outcome") ?? "", from: URL(summary.path("from") ?? []),
            to: URL(summary.path("to") ?? []))
    }
}

extension GroupStoreError {
    /// Returns nil if the summary has no error.
    fileprivate init?(summary: JSONObject) {
        guard let error = summary.object("error") else { return nil }
        self.init(
            summary.string("outcome") == "busy" ? .busy : .refused, error.string("message") ?? "",
            remedy: error.string("hint") ?? "")
    }
}
