import AgentProtocol
import FoundationEssentials
import LinuxSystem
import Synchronization
import SystemPackage

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
        /// True once an agent has accepted the subscription.
        var hadAgent = false
        var transport: AgentSocketConnection?
        var direct: DirectSubscription?
        var token: String?
        /// Ends the wait for the agent; nil before the thread has begun.
        var wake: WakeDescriptor?
    }

    private let source: ChangeSource
    private let state: Mutex<State>
    private let demand = MonotonicSemaphore()
    private let pauseEnd = MonotonicSemaphore()

    /// The time that an agent has to come back. Then this process watches the store itself.
    private static let agentAbsence = Duration.seconds(10)

    /// The time for which a change waits for the store's presentations in this process. A store that can't be opened
    /// must not hold up the changes for ever.
    private static let presentationTimeout = Duration.seconds(10)

    init(_ source: ChangeSource) {
        self.source = source
        state = Mutex(State(token: source.since))
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
            let wake = try WakeDescriptor()
            state.withLock { $0.wake = wake }
            if source.store != nil { PresentedStores.add(self) }
            _ = try SystemThread(name: "gs-changes") { [weak self, demand, source] in
                let feed = Feed(source, wake) { [weak self] in self?.wakeUp() }
                defer {
                    feed.direct?.end()
                    feed.legacy?.end()
                }
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
        let (consumer, transport, direct) = state.withLock { state in
            state.isEnded = true
            return (state.consumer.take(), state.transport, state.direct)
        }
        transport?.end()
        direct?.end()
        pauseEnd.signal()
        demand.signal()
        consumer?.resume(returning: .end)
    }

    /// Looks again for the store's place: this process may present it under another name now.
    func placeMayHaveChanged() { wakeUp() }

    private func wakeUp() {
        let (wake, direct) = state.withLock { ($0.wake, $0.direct) }
        wake?.signal()
        direct?.wake()
        pauseEnd.signal()
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
        var connection: AgentConnection?
        /// The subscription of this process itself, while there is no agent.
        var direct: DirectSubscription?
        /// True if the consumer knows that no changes arrive from an agent.
        var hasReportedLoss = false
        /// The time at which the last agent was lost.
        var lostAt: ContinuousClock.Instant?
        /// The agent doesn't serve the store; it announces when its configuration changes.
        var isNotServed = false
        var backoff = Backoff(first: .milliseconds(20), longest: .seconds(2))
        /// The pauses between looks for an agent, while this process watches the store itself.
        var agentBackoff = Backoff(first: .seconds(1), longest: .seconds(60))
        /// The store at its legacy place; nil if it was never elsewhere.
        let legacy: LegacyPlaceFeed?
        let wake: WakeDescriptor
        /// The place in the group container where this process last presented the store; nil for a path.
        var place: PresentedStores.Place?
        /// Where it was before, until the consumer knows.
        var movedFrom: URL?
        /// True once the consumer was told to read the store, or has a token that says what it has read.
        var hasBegun = false

        init(_ source: ChangeSource, _ wake: WakeDescriptor, wakeUp: @escaping @Sendable () -> Void) {
            self.wake = wake
            place = source.store.map { PresentedStores.place(of: $0) }
            legacy = LegacyPlaceFeed(source, wake: wakeUp)
            hasBegun = source.since != nil
        }

        /// Returns the change that stands for a move that the consumer doesn't know of yet; nil if there is none.
        func move(token: String) -> StoreChange? {
            guard let from = movedFrom.take(), let place else { return nil }
            return .relocated(from: from, to: place.url, token: token)
        }
    }

    private var isEnded: Bool { state.withLock { $0.isEnded } }

    /// Delivers one change. Returns false when the sequence is over.
    private func serve(_ feed: Feed) -> Bool {
        while !isEnded {
            do throws(GroupStoreError) {
                guard let change = try next(feed) else { continue }
                if change.changesContent { feed.hasBegun = true }
                if change.reopensStore { waitUntilPresented() }
                deliver(.change(change))
                return true
            } catch {
                deliver(.failure(error))
                return false
            }
        }
        return false
    }

    private func next(_ feed: Feed) throws(GroupStoreError) -> StoreChange? {
        followPresentation(feed)
        if let change = try feed.legacy?.next(isCovered: !feed.hasBegun) {
            // A token of that place would mean nothing to an agent.
            return change.with(token: state.withLock { $0.token })
        }
        guard var subscription = source.subscription else { return try nextFound(feed) }
        if let place = feed.place {
            guard let address = place.address else { return try nextInSubdirectory(feed, place) }
            subscription.store = address
        }
        return try next(feed, subscription)
    }

    /// Turns to the name that the store has now, if this process presents it under another one than before.
    private func followPresentation(_ feed: Feed) {
        guard let store = source.store, let former = feed.place else { return }
        let place = PresentedStores.place(of: store)
        guard place != former else { return }
        feed.place = place
        // The consumer hears of it as soon as changes of the new place are heard.
        if feed.hasBegun { feed.movedFrom = feed.movedFrom ?? former.url }
        feed.direct?.end()
        (feed.connection, feed.direct, feed.isNotServed) = (nil, nil, false)
        state.withLock { state in
            state.token = nil
            state.direct = nil
            return state.transport.take()
        }?.end()
    }

    /// Returns the next change of a store that was moved below the group's directory, where agents don't look.
    private func nextInSubdirectory(
        _ feed: Feed, _ place: PresentedStores.Place
    ) throws(GroupStoreError) -> StoreChange? {
        guard source.path == nil else { return try nextFound(feed) }
        guard feed.hasReportedLoss else {
            feed.hasReportedLoss = true
            return .notServed(
                message: "agents don't follow \(place.url.path): it isn't directly in the group's directory")
        }
        pauseEnd.wait()
        return nil
    }

    /// Returns the next change of a store that an agent may serve; nil if there is none yet.
    private func next(_ feed: Feed, _ subscription: SubscribeOperation) throws(GroupStoreError) -> StoreChange? {
        do throws(AgentConnectionError) {
            guard let connection = feed.connection else { return try connect(feed, subscription) }
            return try receive(connection, feed, subscription)
        } catch {
            feed.connection = nil
            // A connection that failed before it was established is held here alone.
            state.withLock { $0.transport.take() }?.end()
            if feed.isNotServed {
                // The agent is gone, which is reported separately.
                (feed.isNotServed, feed.hasReportedLoss) = (false, false)
            }
            switch error {
            // Each attempt would fail alike.
            case .refused, .tooLong: throw GroupStoreError(error)
            case .noSocketPath, .noAgent, .lost, .timedOut, .notUnderstood, .interrupted: break
            }
            if !feed.hasReportedLoss {
                feed.hasReportedLoss = true
                feed.lostAt = .now
                return .disconnected
            }
            guard error.saysThatThereIsNoAgent, let found = try nextFoundWithoutAgent(feed) else {
                pauseEnd.wait(within: feed.backoff.next())
                return nil
            }
            return found
        }
    }

    private func receive(
        _ connection: AgentConnection, _ feed: Feed, _ subscription: SubscribeOperation
    ) throws(AgentConnectionError) -> StoreChange? {
        guard let (type, object) = try nextEvent(connection, feed) else { return nil }
        if feed.isNotServed {
            if type == AgentConfigured.type { feed.connection = nil }
            return nil
        }
        guard object.store == subscription.store, let token = object.string("token") else { return nil }
        guard let event = StoreEvent(type: type, object) else {
            // A bookmark, or an event of a later agent.
            state.withLock { $0.token = token }
            return nil
        }
        return StoreChange(event, rows: object["rows"].map { _ in object.objects("rows") }, token: token)
    }

    /// Returns the agent's next event; nil if the store's place or its legacy place must be looked at first.
    private func nextEvent(
        _ connection: AgentConnection, _ feed: Feed
    ) throws(AgentConnectionError) -> (type: String, object: JSONObject)? {
        while true {
            if let event = try connection.event(deadline: Deadline(after: .zero)) { return event }
            guard feed.wake.waitUntilReadable(connection.transport.raw) else { return nil }
        }
    }

    /// Returns the next change that this process found by itself; nil if there is none before the next look for an
    /// agent, or if only an agent can serve the subscription.
    private func nextFoundWithoutAgent(_ feed: Feed) throws(GroupStoreError) -> StoreChange? {
        guard source.path != nil else { return nil }
        if feed.direct == nil, state.withLock({ $0.hadAgent }) {
            // The agent may be restarting, and know what happened since the token that it gave.
            guard let lostAt = feed.lostAt, lostAt.duration(to: .now) >= Self.agentAbsence else { return nil }
        }
        return try nextFound(feed, within: feed.agentBackoff.next())
    }

    private func nextFound(_ feed: Feed, within time: Duration? = nil) throws(GroupStoreError) -> StoreChange? {
        guard let path = source.path.map({ path in feed.place.map { FilePath($0.url.path) } ?? path }) else {
            return nil
        }
        let direct: DirectSubscription
        if let subscription = feed.direct {
            direct = subscription
        } else {
            direct = try DirectSubscription(
                path, since: state.withLock { $0.token }, tables: source.tables, namesTables: source.namesTables)
            feed.direct = direct
            state.withLock { $0.direct = direct }
            if isEnded { direct.end() }
        }
        guard let (event, position) = try direct.next(within: time) else { return nil }
        let token = position.description
        return feed.move(token: token) ?? StoreChange(event, token: token)
    }

    /// Waits until the store's presenters in this process have it open again. The agent tells them and this subscriber
    /// at about the same time, on two connections, and opening takes its time.
    private func waitUntilPresented() {
        guard let store = source.store else { return }
        let deadline = Deadline(after: Self.presentationTimeout)
        for presentation in PresentedStores.presentations(of: store) {
            let opened = MonotonicSemaphore()
            presentation.whenOpened { opened.signal() }
            // In slices: the end of the sequence doesn't signal the semaphore.
            while let remaining = deadline.remaining, remaining > .zero, !state.withLock({ $0.isEnded }) {
                let slice = min(remaining, .milliseconds(20))
                if opened.wait(within: slice) { break }
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
    private func connect(
        _ feed: Feed, _ subscription: SubscribeOperation
    ) throws(AgentConnectionError) -> StoreChange? {
        guard let socket = source.socket else { throw .noSocketPath }
        let connection = try AgentConnection(socket, greeting: hold)
        let since = state.withLock { $0.token }
        var resumed = subscription
        resumed.since = since
        resumed.wantsBookmarks = true
        let hasReportedLoss = feed.hasReportedLoss
        do throws(AgentConnectionError) {
            let reply = try connection.request(
                .subscribe(resumed), in: source.store?.container.identityNow,
                deadline: Deadline(after: SharedStore.replyTimeout))
            (feed.connection, feed.hasReportedLoss, feed.isNotServed) = (connection, false, false)
            feed.backoff.reset()
            feed.direct?.end()
            feed.direct = nil
            state.withLock { ($0.hadAgent, $0.direct) = (true, nil) }
            if since != nil { feed.hasBegun = true }
            guard let since else {
                let token = reply.string("token") ?? ""
                return feed.move(token: token) ?? .reset(reason: "subscribed", token: token)
            }
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

extension AgentConnectionError {
    fileprivate var saysThatThereIsNoAgent: Bool {
        switch self {
        case .noSocketPath, .noAgent: true
        case .lost, .timedOut, .notUnderstood, .refused, .tooLong, .interrupted: false
        }
    }
}
