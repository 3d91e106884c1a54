import AgentProtocol
import LinuxSystem
import PersistentHistory
import Synchronization

/// Sends each store's events to its subscribers. A subscription is a cursor, not a queue: one whose socket is full gets
/// one coalesced event later, and delays no other.
///
/// Any thread may call it. One lock guards everything, and no call that can block is made under it.
package final class Publisher: Sendable {
    /// Identifies this run of the agent in every token.
    package let epoch: String
    let loop: EventLoop
    let state = Mutex(State())
    /// Starts a read of a store's history, for the subscriptions that need it.
    private let historyReader = Mutex<(@Sendable (StoreAddress) -> Void)?>(nil)

    /// The limits on subscriptions: each uses memory for as long as it exists.
    package var limits: SubscriptionLimits {
        get { state.withLock { $0.limits } }
        set { state.withLock { $0.limits = newValue } }
    }

    /// Decides whether a user may read a store.
    let readAuthorization = Mutex<(@Sendable (PeerCredentials, StoreAddress) -> Bool)?>(nil)

    /// A store whose events are numbered. One lookup finds all that a change needs. The publisher's lock protects it,
    /// so that overlapping accesses need no check.
    final class PublishedStore {
        @exclusivity(unchecked) var eventLog: EventLog
        @exclusivity(unchecked) var changeLine: ChangeLine
        @exclusivity(unchecked) var subscribers: [Subscription] = []

        init(_ eventLog: EventLog, _ changeLine: ChangeLine) {
            self.eventLog = eventLog
            self.changeLine = changeLine
        }
    }

    struct State {
        /// The stores with subscribers other than the agent's own user, and when their permission to read was last
        /// checked.
        var lastReaderChecks: [StoreAddress: ContinuousClock.Instant] = [:]
        var limits = SubscriptionLimits()
        /// The number of subscriptions of all connections.
        var subscriptionCount = 0
        var clients: [UInt64: ClientConnection] = [:]
        var stores: [StoreAddress: PublishedStore] = [:]
        /// The relocation of each store. Once it is over, it is kept for as long as the store has an event log.
        var relocations: [StoreAddress: RelocationState] = [:]
        /// The history positions of the stores with subscriptions that need the history.
        var histories: [StoreAddress: HistoryPosition] = [:]
        /// The stores whose history must be read.
        var historiesToRead: Set<StoreAddress> = []
        /// The counts of stores whose event log is closed, at most `maximumClosed`.
        var closedCounts: [StoreAddress: EventCounts] = [:]
        static let maximumClosed = 1024

        func subscribers(of store: StoreAddress) -> [Subscription] { stores[store]?.subscribers ?? [] }

        /// Returns the number of the store's last event; nil if its events aren't numbered.
        func lastNumber(of store: StoreAddress) -> UInt64? { stores[store]?.eventLog.number }

        var connectionCounts = ConnectionCounts()
        /// Every closed event log ended below this number; a log opened later begins here.
        var floor: UInt64 = 0
        /// Connections for the server to check: they may be finished.
        var finished: Set<UInt64> = []
        /// Connections whose requests may be handled again, because the work that held them back is done.
        var resumed: Set<UInt64> = []
    }

    package init(loop: EventLoop, epoch: String = Publisher.randomEpoch()) {
        self.loop = loop
        self.epoch = epoch
    }

    /// Returns 60 random bits as text.
    package static func randomEpoch() -> String {
        let digits = String(UInt64.random(in: 0..<(1 << 60)), radix: 32)
        return String(repeating: "0", count: 12 - digits.count) + digits
    }

    func line(_ event: EventLog.Numbered, of store: StoreAddress, isUntrusted: Bool = false) -> [UInt8] {
        let visible = isUntrusted ? event.event.withoutPlaces : event.event
        let token = token(event.number, event.position)
        return WireLine.bytes(visible.json(store: store.bytes, token: token, rows: event.rows))
    }

    /// Encodes an event that was just numbered, a change by its store's encoder.
    private func line(_ event: EventLog.Numbered, of store: StoreAddress, _ published: PublishedStore) -> [UInt8] {
        if case .change(let tables) = event.event,
            let line = published.changeLine.bytes(tables, number: event.number)
        {
            return line
        }
        return line(event, of: store)
    }

    /// Encodes a backlog's events, whose number is bounded. If a reset stands for omitted events, a relocation in
    /// progress is announced again.
    func lines(_ events: [EventLog.Numbered], of subscription: Subscription, _ state: State) -> [UInt8] {
        var events = events
        let lastNonChange = events.last { event in if case .change = event.event { false } else { true } }
        if case .reset? = lastNonChange?.event, let last = events.last {
            events += ongoing(for: subscription, state).map { event in
                EventLog.Numbered(event: event, number: last.number, position: last.position)
            }
        }
        let isUntrusted = subscription.client.isUntrusted
        return events.flatMap { line($0, of: subscription.store, isUntrusted: isUntrusted) }
    }

    /// Returns the events that describe a relocation which is under way, for a subscriber that doesn't know of it.
    func ongoing(for subscription: Subscription, _ state: State) -> [StoreEvent] {
        let relocation = state.relocations[subscription.store]
        return [relocation?.announcement, relocation?.progress.map { .progress($0) }].compactMap(\.self)
            .filter(subscription.admits)
    }

    func token(_ number: UInt64, _ position: HistoryToken? = nil) -> String {
        SubscriptionToken(feed: FeedToken(epoch: epoch, number: number), history: position?.description).description
    }

    func reportIfFinished(_ client: ClientConnection, _ state: inout State) {
        if client.isFinished, state.finished.insert(client.connection).inserted { loop.wake() }
    }
}

// MARK: - Stores

extension Publisher {
    /// Starts to number a store's events, unless that is so already.
    package func open(_ store: StoreAddress) {
        state.withLock { state in
            guard state.stores[store] == nil else { return }
            let counts = state.closedCounts.removeValue(forKey: store) ?? EventCounts()
            state.stores[store] = PublishedStore(
                EventLog(startingAt: state.floor, counts: counts), ChangeLine(store, epoch: epoch))
        }
    }

    /// Stops numbering unless the store has subscribers. Returns true if it stopped.
    package func close(_ store: StoreAddress) -> Bool {
        state.withLock { state in
            guard let published = state.stores[store], published.subscribers.isEmpty else { return false }
            let eventLog = published.eventLog
            state.stores[store] = nil
            state.floor = max(state.floor, eventLog.number + 1)
            // A client may subscribe to any number of names. The counts of all others begin at zero again.
            if state.closedCounts.count < State.maximumClosed { state.closedCounts[store] = eventLog.counts }
            if state.relocations[store]?.announcement == nil { state.relocations[store] = nil }
            return true
        }
    }

    /// Numbers the event and sends it to all subscribers. Does nothing if the store isn't open.
    package func publish(_ event: StoreEvent, of store: StoreAddress) {
        endUnauthorized(of: store, before: event)
        let isHistoryWanted = state.withLock { state in
            // Most changes come while nothing is being relocated.
            if case .change = event, state.relocations.isEmpty {
                distribute(event, of: store, &state)
                return !state.historiesToRead.isEmpty
            }
            let before = state.relocations[store]
            let relocation = RelocationState.after(event, before)
            // The same holders are still waited for: nothing new.
            if event.describesRelocation, relocation == before { return false }
            state.relocations[store] = relocation
            distribute(event, of: store, &state)
            if case .reset = event, let announcement = relocation?.announcement {
                distribute(announcement, of: store, &state)
                if let progress = relocation?.progress { distribute(.progress(progress), of: store, &state) }
            }
            if state.stores[store] == nil, relocation?.announcement == nil { state.relocations[store] = nil }
            return !state.historiesToRead.isEmpty
        }
        if isHistoryWanted { readHistories() }
    }

    private func distribute(_ event: StoreEvent, of store: StoreAddress, _ state: inout State) {
        if case .progress(let progress) = event { return distribute(progress, of: store, &state) }
        guard let published = state.stores[store] else { return }
        let numbered = published.eventLog.append(event)
        guard !published.subscribers.isEmpty else { return }
        let line = line(numbered, of: store, published)
        for subscription in published.subscribers {
            if !subscription.admits(event) {
                subscription.skip(numbered.number)
                sendBookmarkIfDue(subscription, &state)
            } else if subscription.rows != nil {
                distribute(numbered, to: subscription, &state)
            } else {
                let isUntrusted = subscription.client.isUntrusted
                let ownLine = isUntrusted ? self.line(numbered, of: store, isUntrusted: true) : line
                subscription.client.send(numbered, line: ownLine, of: subscription)
                reportIfFinished(subscription.client, &state)
            }
        }
    }

    private func distribute(_ progress: StoreProgress, of store: StoreAddress, _ state: inout State) {
        guard let published = state.stores[store] else { return }
        let numbered = published.eventLog.progress(progress)
        for subscription in published.subscribers where subscription.admits(numbered.event) {
            // A subscriber that waits for its answer gets the present state with it.
            if subscription.joining == nil { send(numbered.event, number: numbered.number, to: subscription, &state) }
        }
    }

    /// Sets the reader of stores' histories. Without one, no store has a known history.
    package func readHistories(with reader: @escaping @Sendable (StoreAddress) -> Void) {
        historyReader.withLock { $0 = reader }
    }

    /// Starts the history reads that subscriptions need. Don't call it under the lock.
    func readHistories() {
        let stores = state.withLock { state in
            defer { state.historiesToRead = [] }
            return state.historiesToRead
        }
        guard !stores.isEmpty else { return }
        let reader = historyReader.withLock { $0 }
        for store in stores {
            if let reader {
                reader(store)
            } else if let round = beginRound(store) {
                endRound(round, .none, isCaughtUp: true)
            }
        }
    }

    package struct StoreStatus: Sendable {
        package let token: String
        package let subscriptions: [SubscriptionStatus]
        package let relocation: RelocationState?
        let counts: EventCounts
    }

    /// Returns the status of every store, or of one.
    package func status(of only: StoreAddress? = nil) -> [StoreAddress: StoreStatus] {
        state.withLock { state in
            var result: [StoreAddress: StoreStatus] = [:]
            // One system call a connection, which may have a thousand subscriptions.
            var unread: [UInt64: Int] = [:]
            func unreadBytes(of client: ClientConnection) -> Int {
                if let known = unread[client.connection] { return known }
                let bytes = client.unreadBytes
                unread[client.connection] = bytes
                return bytes
            }
            for (store, published) in state.stores where only.map({ $0 == store }) ?? true {
                let eventLog = published.eventLog
                result[store] = StoreStatus(
                    token: token(eventLog.number),
                    subscriptions: published.subscribers.map {
                        $0.status(upTo: eventLog.number, unreadBytes: unreadBytes(of: $0.client))
                    },
                    relocation: state.relocations[store], counts: eventLog.counts)
            }
            return result
        }
    }

    /// The numbers of stores with an event log and of subscriptions.
    var sizes: (stores: Int, subscriptions: Int) { state.withLock { ($0.stores.count, $0.subscriptionCount) } }

    /// The present connections and those since the agent started.
    var connections: (open: Int, counts: ConnectionCounts) {
        state.withLock { ($0.clients.count, $0.connectionCounts) }
    }

    /// Counts a connection that was not accepted.
    func countRefusal(_ code: String) { state.withLock { $0.connectionCounts.addRefused(code) } }

    /// The stores that have subscribers.
    package func subscribedStores() -> Set<StoreAddress> {
        state.withLock { state in Set(state.stores.filter { !$0.value.subscribers.isEmpty }.keys) }
    }

    package func hasSubscribers(of store: StoreAddress) -> Bool {
        state.withLock { !$0.subscribers(of: store).isEmpty }
    }

    /// True if a subscriber of the store wants to know which tables change.
    package func wantsDetail(of store: StoreAddress) -> Bool {
        state.withLock { $0.subscribers(of: store).contains { $0.wantsDetail } }
    }
}

// MARK: - Subscriptions

extension Publisher {
    /// Subscribes, answers, and sends at once the events since the token. The store must be open. `wasExpected`: after
    /// `expectAnswer`.
    package func subscribe(
        _ connection: UInt64, _ operation: SubscribeOperation, id: JSONValue?, path: [UInt8], wasExpected: Bool = false
    ) {
        let (store, token) = (operation.store, operation.since)
        state.withLock { state in
            if wasExpected { state.clients[connection]?.unanswered -= 1 }
            guard let client = state.clients[connection], let published = state.stores[store] else { return }
            let eventLog = published.eventLog
            if client.subscriptions[store] == nil, let error = tooManySubscriptions(of: client, state) {
                return answer(.failure(id: id, error), to: client, &state)
            }
            remove(store, of: client, &state)
            let subscription = Subscription(operation, client: client, number: eventLog.number)
            client.add(subscription)
            state.subscriptionCount += 1
            published.subscribers.append(subscription)
            // A later subscription must not postpone the next check of the others.
            if client.isUntrusted { state.lastReaderChecks[store] = state.lastReaderChecks[store] ?? .now }
            if operation.readsHistory {
                return join(subscription, operation: operation, eventLog: eventLog, id: id, path: path, &state)
            }
            let missed = (token.map { eventLog.missed(since: $0, epoch: epoch) } ?? []).filter {
                subscription.admits($0.event)
            }
            // The reply's token says up to where the subscriber was told: if events follow, no further than before.
            var reply: JSONObject = ["token": .string(missed.isEmpty ? self.token(eventLog.number) : token ?? "")]
            reply.setPath("path", bytes: path)
            answer(.reply(id: id, reply), to: client, &state)
            let ongoing = ongoing(for: subscription, state).map { event in
                EventLog.Numbered(event: event, number: eventLog.number)
            }
            for event in missed + ongoing {
                client.send(event, line: line(event, of: store, isUntrusted: client.isUntrusted), of: subscription)
            }
        }
        readHistories()
    }

    /// Ends the subscription. Returns false if there was none.
    package func unsubscribe(_ connection: UInt64, from store: StoreAddress) -> Bool {
        state.withLock { state in
            guard let client = state.clients[connection] else { return false }
            return remove(store, of: client, &state)
        }
    }

    @discardableResult
    func remove(_ store: StoreAddress, of client: ClientConnection, _ state: inout State) -> Bool {
        guard let subscription = client.subscriptions[store] else { return false }
        answerAll(of: subscription, &state)
        let published = state.stores[store]
        published?.eventLog.counts.add(subscription.lagCounts)
        client.remove(subscription)
        state.subscriptionCount -= 1
        published?.subscribers.removeAll { $0 === subscription }
        if client.isUntrusted, published?.subscribers.contains(where: \.client.isUntrusted) != true {
            state.lastReaderChecks[store] = nil
        }
        if published?.subscribers.contains(where: { $0.rows != nil }) != true { state.histories[store] = nil }
        return true
    }
}

/// The limits on the number of subscriptions.
package struct SubscriptionLimits: Sendable, Equatable {
    package var perConnection = 1024
    /// The limit for all connections together.
    package var total = 10_000
}

extension Publisher {
    private func tooManySubscriptions(of client: ClientConnection, _ state: State) -> WireError? {
        let limits = state.limits
        if client.subscriptions.count >= limits.perConnection {
            return WireError(
                code: "too_many_subscriptions", "a connection has at most \(limits.perConnection) subscriptions",
                hint: "use another connection")
        }
        guard state.subscriptionCount >= limits.total else { return nil }
        return WireError(
            code: "too_many_subscriptions", "the agent has \(limits.total) subscriptions, its limit",
            hint: "end some, or raise socket: subscriptions in its configuration")
    }
}
