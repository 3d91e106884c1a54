import AgentProtocol
import Dispatch
import GroupContainers
import LinuxSystem
import Synchronization
import SystemPackage

/// The changes of a store, as an asynchronous sequence. Created by
/// ``SharedStore/changes(since:tables:namingTables:filter:includingRows:durably:)``.
///
///     for try await change in store.changes() {
///         if change.changesContent { reload(change.tables) }
///     }
///
/// A slow subscriber receives one change for many, or a ``StoreChange/reset(reason:token:)``; it never misses that
/// something changed. The sequence ends when the iterating task is cancelled.
public struct StoreChanges: AsyncSequence, Sendable {
    /// The sequence yields changes.
    public typealias Element = StoreChange

    let subscription: SubscribeOperation
    let socket: FilePath?
    /// The store whose presentations in this process are waited for; nil for none.
    var store: SharedStore?

    /// Creates an iterator. Each iterator opens its own connection to the agent.
    public func makeAsyncIterator() -> Iterator {
        Iterator(ChangeReader(subscription, socket: socket, store: store))
    }

    /// The iterator of ``StoreChanges``.
    public struct Iterator: AsyncIteratorProtocol {
        private let reader: ChangeReader

        init(_ reader: ChangeReader) { self.reader = reader }

        /// Returns the next change, or nil after cancellation.
        ///
        /// - Throws: ``GroupStoreError`` with `refused` if the agent refuses the subscription, except for a group that
        ///   it doesn't serve (``StoreChange/notServed(message:)``); `system` if no thread can be created. The sequence
        ///   ends then.
        public mutating func next() async throws -> StoreChange? { try await reader.next() }
    }
}

extension SharedStore {
    /// Returns the store's changes since a token.
    ///
    ///     for try await change in store.changes(since: savedToken) {
    ///         if let token = change.token { save(token) }
    ///         reload()
    ///     }
    ///
    /// With a token, the changes since then come first. Without one, the first element is a `reset` with the reason
    /// `subscribed`: a program that reads the store after that misses nothing. A lost connection is reopened, and the
    /// sequence continues where it was.
    ///
    /// `filter`, `includingRows` and `durably` need a store that keeps a history. Each of them delays every change by
    /// some milliseconds, until the agent has read the history.
    ///
    /// - Parameters:
    ///   - token: The position after which to begin, from ``StoreChange/token``.
    ///   - tables: Leaves out changes that are known to affect only other tables; nil for `filter.tables`.
    ///   - namingTables: If false for all subscribers, the agent doesn't determine which tables changed, and publishes
    ///     sooner.
    ///   - filter: Leaves out changes whose rows it all leaves out. A change whose rows the history doesn't know is
    ///     delivered.
    ///   - includingRows: Adds the changed rows to a change if they are few.
    ///   - durably: Makes tokens valid after a restart of the agent, and with another agent.
    ///
    /// - Important: Pass false for `namingTables` only without a filter, `tables` or `includingRows`; the agent refuses
    ///   the combination.
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
            subscription: subscription, socket: AgentSocket.path(environment: AgentRegistries.environment), store: self)
    }
}

/// Reads one change per request, on its own thread. Changes that aren't requested wait in the agent, where many become
/// one.
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
        var transport: AgentSocketConnection?
        var token: String?
    }

    private let subscription: SubscribeOperation
    private let socket: FilePath?
    private let store: SharedStore?
    private let state: Mutex<State>
    private let demand = DispatchSemaphore(value: 0)
    private let pauseEnd = DispatchSemaphore(value: 0)

    /// The time for which a change waits for the store's presentations in this process. A store that can't be opened
    /// must not hold up the changes for ever.
    private static let presentationTimeout = Duration.seconds(10)

    init(_ subscription: SubscribeOperation, socket: FilePath?, store: SharedStore? = nil) {
        self.subscription = subscription
        self.socket = socket
        self.store = store
        state = Mutex(State(token: subscription.since))
    }

    deinit { end() }

    func next() async throws -> StoreChange? {
        let delivery = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in request(continuation) }
        } onCancel: {
            end()
        }
        switch delivery {
        case .change(let change): return change
        case .failure(let error): throw error
        case .end: return nil
        }
    }

    private func request(_ continuation: CheckedContinuation<Delivery, Never>) {
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
            // The thread retains the reader only while it works for it.
            _ = try SystemThread(name: "gs-changes") { [weak self, demand, socket] in
                let feed = Feed(socket)
                while true {
                    demand.wait()
                    guard let reader = self, reader.serve(feed) else { return }
                }
            }
        } catch {
            deliver(.failure(GroupStoreError(error)))
        }
    }

    private func end() {
        let (consumer, transport) = state.withLock { state in
            state.isEnded = true
            return (state.consumer.take(), state.transport)
        }
        transport?.end()
        pauseEnd.signal()
        demand.signal()
        consumer?.resume(returning: .end)
    }

    private func deliver(_ delivery: Delivery) {
        state.withLock { state in
            switch delivery {
            case .change(let change): state.token = change.token ?? state.token
            // Nobody is left to serve another request.
            case .failure, .end: state.isEnded = true
            }
            return state.consumer.take()
        }?.resume(returning: delivery)
    }

    // MARK: The reader's thread

    /// The connection and its state. Used only by the reader's thread.
    private final class Feed {
        let socket: FilePath?
        var connection: AgentConnection?
        /// True if the consumer knows that no changes arrive.
        var hasReportedLoss = false
        /// The agent doesn't serve the store; it announces when its configuration changes.
        var isNotServed = false
        var backoff = Backoff(first: .milliseconds(20), longest: .seconds(2))

        init(_ socket: FilePath?) { self.socket = socket }
    }

    /// Delivers one change. Returns false when the sequence is over.
    private func serve(_ feed: Feed) -> Bool {
        while !state.withLock({ $0.isEnded }) {
            do throws(AgentConnectionError) {
                guard let connection = feed.connection else {
                    guard let change = try connect(feed) else { continue }
                    deliver(.change(change))
                    return true
                }
                guard let (type, object) = try connection.event(deadline: .none) else { continue }
                if feed.isNotServed {
                    if type == AgentConfigured.type { feed.connection = nil }
                    continue
                }
                guard object.store == subscription.store else { continue }
                guard let change = StoreChange(type: type, object) else {
                    // A bookmark, or an event of a later agent.
                    if let token = object.string("token") { state.withLock { $0.token = token } }
                    continue
                }
                if change.reopensStore { waitUntilPresented() }
                deliver(.change(change))
                return true
            } catch {
                feed.connection = nil
                if feed.isNotServed {
                    // The agent is gone, which is reported separately.
                    (feed.isNotServed, feed.hasReportedLoss) = (false, false)
                }
                if case .refused = error {
                    deliver(.failure(GroupStoreError(error)))
                    return false
                }
                if !feed.hasReportedLoss {
                    feed.hasReportedLoss = true
                    deliver(.change(.disconnected))
                    return true
                }
                _ = pauseEnd.wait(timeout: .now() + .nanoseconds(Int(feed.backoff.next().nanoseconds)))
            }
        }
        return false
    }

    /// Waits until the store's presenters in this process have it open again. The agent tells them and this subscriber
    /// at about the same time, on two connections, and opening takes its time.
    private func waitUntilPresented() {
        guard let store else { return }
        let deadline = Deadline(after: Self.presentationTimeout)
        for presentation in PresentedStores.presentations(of: store) {
            let opened = DispatchSemaphore(value: 0)
            presentation.whenOpened { opened.signal() }
            // In slices: the end of the sequence doesn't signal the semaphore.
            while let remaining = deadline.remaining, remaining > .zero, !state.withLock({ $0.isEnded }) {
                let slice = min(remaining, .milliseconds(20))
                if opened.wait(timeout: .now() + .nanoseconds(Int(slice.nanoseconds))) == .success { break }
            }
        }
    }

    /// Keeps the transport so that `end` can close it without waiting for the agent.
    private func hold(_ transport: AgentSocketConnection) {
        let isEnded = state.withLock { state in
            state.transport = transport
            return state.isEnded
        }
        if isEnded { transport.end() }
    }

    /// Connects and subscribes. Returns the change to deliver, if any.
    private func connect(_ feed: Feed) throws(AgentConnectionError) -> StoreChange? {
        guard let socket = feed.socket else { throw .noSocketPath }
        let connection = try AgentConnection(socket, greeting: hold)
        let since = state.withLock { $0.token }
        var resumed = subscription
        resumed.since = since
        resumed.wantsBookmarks = true
        let hasReportedLoss = feed.hasReportedLoss
        do throws(AgentConnectionError) {
            let reply = try connection.request(.subscribe(resumed), deadline: Deadline(after: SharedStore.replyTimeout))
            (feed.connection, feed.hasReportedLoss, feed.isNotServed) = (connection, false, false)
            feed.backoff.reset()
            guard let since else { return .reset(reason: "subscribed", token: reply.string("token") ?? "") }
            return hasReportedLoss ? .connected(token: since) : nil
        } catch {
            guard case .refused(let refusal) = error, refusal.code == "unknown_store" else { throw error }
            // Reported once, however often the configuration changes.
            let isKnown = feed.isNotServed
            (feed.connection, feed.hasReportedLoss, feed.isNotServed) = (connection, true, true)
            return isKnown ? nil : .notServed(message: refusal.message)
        }
    }
}
