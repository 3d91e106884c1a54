import AgentProtocol
import Dispatch
import GroupContainers
import LinuxSystem
import Synchronization
import SystemPackage

/// A store's changes, as they come. A subscriber that is slow gets one change for many, or a `reset`; it never misses
/// that something changed. Ends when the task that iterates is cancelled.
public struct StoreChanges: AsyncSequence, Sendable {
    public typealias Element = StoreChange

    let subscription: SubscribeOperation
    let socket: FilePath?

    public func makeAsyncIterator() -> Iterator { Iterator(ChangeReader(subscription, socket: socket)) }

    public struct Iterator: AsyncIteratorProtocol {
        private let reader: ChangeReader

        init(_ reader: ChangeReader) { self.reader = reader }

        /// Throws `GroupStoreError` when the agent refuses the subscription for another reason than that it doesn't
        /// serve the group (`StoreChange.notServed`).
        public mutating func next() async throws -> StoreChange? { try await reader.next() }
    }
}

extension SharedStore {
    /// The changes since a token; what happened meanwhile is told first. Without one the first is a `reset` (reason
    /// `subscribed`): whoever reads the store from then on misses nothing. A connection that is lost is made anew, and
    /// goes on where it was. `tables`: changes that are known to be of other tables alone are left out. `namingTables`: where no
    /// subscriber wants to know which tables change, the agent doesn't find out, and tells sooner; not to be left out with
    /// a filter or `includingRows`.
    ///
    /// The rest is for stores that keep a history. `filter`: changes whose rows are all left out by it are left out; where
    /// the history doesn't say which rows, all are told. `includingRows`: a change says which rows, where they are few.
    /// `durably`: tokens are good after a restart of the agent, and with another one. Any of them makes each change wait
    /// until the agent has read the history, some milliseconds.
    public func changes(
        since token: String? = nil, tables: [String]? = nil, namingTables: Bool = true,
        filter: RowFilter = RowFilter(), includingRows: Bool = false, durably: Bool = false
    ) -> StoreChanges {
        let names = tables ?? filter.tables
        var subscription = SubscribeOperation(address, since: token, tables: names.map { TableFilter($0) })
        subscription.filter = HistoryOperation.Filter(filter)
        subscription.wantsDetail = namingTables
        subscription.wantsRows = includingRows
        subscription.wantsDurableTokens = durably
        return StoreChanges(
            subscription: subscription, socket: AgentSocket.path(environment: AgentRegistries.environment))
    }
}

/// Reads one change each time it is asked, on a thread of its own: what isn't asked for waits in the agent, where many
/// changes become one.
final class ChangeReader: Sendable {
    private enum Delivery: Sendable {
        case change(StoreChange)
        case failure(GroupStoreError)
        case end
    }

    private struct State {
        var consumer: CheckedContinuation<Delivery, Never>?
        var isStarted = false
        var isEnded = false
        var wire: AgentSocketConnection?
        var token: String?
    }

    private let subscription: SubscribeOperation
    private let socket: FilePath?
    private let state: Mutex<State>
    private let demand = DispatchSemaphore(value: 0)
    private let pauseEnd = DispatchSemaphore(value: 0)

    init(_ subscription: SubscribeOperation, socket: FilePath?) {
        self.subscription = subscription
        self.socket = socket
        state = Mutex(State(token: subscription.since))
    }

    deinit { end() }

    func next() async throws -> StoreChange? {
        let delivery = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in ask(continuation) }
        } onCancel: {
            end()
        }
        switch delivery {
        case .change(let change): return change
        case .failure(let error): throw error
        case .end: return nil
        }
    }

    private func ask(_ continuation: CheckedContinuation<Delivery, Never>) {
        let (isEnded, isFirst) = state.withLock { state in
            guard !state.isEnded else { return (true, false) }
            state.consumer = continuation
            defer { state.isStarted = true }
            return (false, !state.isStarted)
        }
        if isEnded { return continuation.resume(returning: .end) }
        demand.signal()
        guard isFirst else { return }
        do {
            // The thread holds the reader only while it works for it.
            _ = try SystemThread(name: "gs-changes") { [weak self, demand, socket] in
                let feed = Feed(socket)
                while true {
                    demand.wait()
                    guard let reader = self, reader.serve(feed) else { return }
                }
            }
        } catch {
            deliver(.failure(GroupStoreError(.system, "\(error)", remedy: error.remedy)))
        }
    }

    private func end() {
        let (consumer, wire) = state.withLock { state in
            state.isEnded = true
            return (state.consumer.take(), state.wire)
        }
        wire?.end()
        pauseEnd.signal()
        demand.signal()
        consumer?.resume(returning: .end)
    }

    private func deliver(_ delivery: Delivery) {
        state.withLock { state in
            switch delivery {
            case .change(let change): state.token = change.token ?? state.token
            // Nobody is at work for whoever asks once more.
            case .failure, .end: state.isEnded = true
            }
            return state.consumer.take()
        }?.resume(returning: delivery)
    }

    // MARK: The reader's thread

    /// The connection, and what is known of it. The thread's alone.
    private final class Feed {
        let socket: FilePath?
        var connection: AgentConnection?
        /// The consumer knows that it hears of nothing.
        var wasTold = false
        /// The agent doesn't serve the store: it says when that may be otherwise.
        var isUnserved = false
        var patience = Duration.milliseconds(20)

        init(_ socket: FilePath?) { self.socket = socket }
    }

    /// Brings one change; false when it is over.
    private func serve(_ feed: Feed) -> Bool {
        while !state.withLock({ $0.isEnded }) {
            do throws(AgentConnectionError) {
                guard let connection = feed.connection else {
                    guard let change = try connect(feed) else { continue }
                    deliver(.change(change))
                    return true
                }
                guard let (type, object) = try connection.event(deadline: .none) else { continue }
                if feed.isUnserved {
                    if type == AgentConfigured.type { feed.connection = nil }
                    continue
                }
                guard object.store == subscription.store else { continue }
                guard let change = StoreChange(type: type, object) else {
                    // A bookmark, or what a later agent may send.
                    if let token = object.string("token") { state.withLock { $0.token = token } }
                    continue
                }
                deliver(.change(change))
                return true
            } catch {
                feed.connection = nil
                if feed.isUnserved {
                    // The agent has gone: of that is told anew.
                    (feed.isUnserved, feed.wasTold) = (false, false)
                }
                if case .refused = error {
                    deliver(.failure(GroupStoreError(error)))
                    return false
                }
                if !feed.wasTold {
                    feed.wasTold = true
                    deliver(.change(.disconnected))
                    return true
                }
                _ = pauseEnd.wait(timeout: .now() + .nanoseconds(Int(feed.patience.nanoseconds)))
                feed.patience = min(feed.patience * 2, .seconds(2))
            }
        }
        return false
    }

    /// For whoever ends this: it waits for no agent.
    private func keep(_ wire: AgentSocketConnection) {
        let isEnded = state.withLock { state in
            state.wire = wire
            return state.isEnded
        }
        if isEnded { wire.end() }
    }

    /// What is to be told of it, if anything.
    private func connect(_ feed: Feed) throws(AgentConnectionError) -> StoreChange? {
        guard let socket = feed.socket else { throw .noSocketPath }
        let connection = try AgentConnection(socket, greeting: keep)
        let since = state.withLock { $0.token }
        var wanted = subscription
        wanted.since = since
        wanted.wantsBookmarks = true
        let wasTold = feed.wasTold
        do throws(AgentConnectionError) {
            let reply = try connection.request(.subscribe(wanted), deadline: Deadline(after: SharedStore.answerTime))
            (feed.connection, feed.wasTold, feed.isUnserved) = (connection, false, false)
            feed.patience = .milliseconds(20)
            guard let since else { return .reset(reason: "subscribed", token: reply.string("token") ?? "") }
            return wasTold ? .connected(token: since) : nil
        } catch {
            guard case .refused(let refusal) = error, refusal.code == "unknown_store" else { throw error }
            // Once, however often the configuration changes.
            let isKnown = feed.isUnserved
            (feed.connection, feed.wasTold, feed.isUnserved) = (connection, true, true)
            return isKnown ? nil : .notServed(message: refusal.message)
        }
    }
}
