import AgentProtocol
import LinuxSystem
import PersistentHistory
import Synchronization

/// Brings each store's events to its subscribers. A subscription is a cursor, not a queue: one whose socket is full
/// gets one coalesced event later, and delays nobody.
///
/// Any thread may call it; one lock guards everything, and no call that can wait is made under it.
package final class Publisher: Sendable {
    /// Of this run of the agent, in every token.
    package let epoch: String
    let loop: EventLoop
    let state = Mutex(State())
    /// Has a store's history read, for the subscriptions that want it.
    private let historyReader = Mutex<(@Sendable (StoreAddress) -> Void)?>(nil)

    /// How many subscriptions there may be: each costs memory for as long as it is there.
    package var limits: SubscriptionLimits {
        get { state.withLock { $0.limits } }
        set { state.withLock { $0.limits = newValue } }
    }

    /// Whether a user may read a store.
    let reading = Mutex<(@Sendable (PeerCredentials, StoreAddress) -> Bool)?>(nil)

    struct State {
        /// Stores that users other than the agent's own are subscribed to, and when it was last looked whether they may read
        /// them.
        var readByOthers: [StoreAddress: ContinuousClock.Instant] = [:]
        var limits = SubscriptionLimits()
        /// Of all connections.
        var subscriptionCount = 0
        var outlets: [UInt64: ClientConnection] = [:]
        var channels: [StoreAddress: EventLog] = [:]
        /// By which changes become lines, of the stores that have a channel.
        var changeLines: [StoreAddress: ChangeLine] = [:]
        var subscribers: [StoreAddress: [Subscription]] = [:]
        /// Of the stores that were relocated, or tried to be; once over, for as long as they have a channel.
        var relocations: [StoreAddress: RelocationState] = [:]
        /// Of the stores with subscriptions that the history is read for.
        var histories: [StoreAddress: HistoryPosition] = [:]
        /// Those whose history is to be read.
        var unread: Set<StoreAddress> = []
        /// Every channel that was closed ended below it; a channel opened later begins here.
        var floor: UInt64 = 0
        /// Connections that the server should look at: they may be finished.
        var finished: Set<UInt64> = []
        /// Those whose requests may be handled again: the work that held them back is done.
        var resumed: Set<UInt64> = []
    }

    package init(loop: EventLoop, epoch: String = Publisher.randomEpoch()) {
        self.loop = loop
        self.epoch = epoch
    }

    /// 60 random bits.
    package static func randomEpoch() -> String {
        let digits = String(UInt64.random(in: 0..<(1 << 60)), radix: 32)
        return String(repeating: "0", count: 12 - digits.count) + digits
    }

    func line(_ event: EventLog.Numbered, _ store: StoreAddress, isOthers: Bool = false) -> [UInt8] {
        let told = isOthers ? event.event.withoutPlaces : event.event
        var object = told.json(store: store, token: token(event.number, event.position))
        if let rows = event.rows { object["rows"] = .array(rows.map { .object($0) }) }
        return WireLine.bytes(object)
    }

    /// As `line`, of an event that was just numbered.
    private func line(_ event: EventLog.Numbered, _ store: StoreAddress, _ state: inout State) -> [UInt8] {
        if case .change(let tables) = event.event,
            let line = state.changeLines[store]?.bytes(tables, number: event.number)
        {
            return line
        }
        return line(event, store)
    }

    /// Bounded by a backlog's length. Where a reset stands for what is left out, a relocation that lasts is named again.
    func lines(
        _ events: [EventLog.Numbered], _ store: StoreAddress, isOthers: Bool, _ state: State
    ) -> [UInt8] {
        var events = events
        let lastWord = events.last { event in if case .change = event.event { false } else { true } }
        if case .reset? = lastWord?.event, let event = state.relocations[store]?.announcement, let last = events.last {
            events.append(EventLog.Numbered(event: event, number: last.number, position: last.position))
        }
        return events.flatMap { line($0, store, isOthers: isOthers) }
    }

    func token(_ number: UInt64, _ position: HistoryToken? = nil) -> String {
        SubscriptionToken(feed: FeedToken(epoch: epoch, number: number), history: position?.description).description
    }

    func note(_ outlet: ClientConnection, _ state: inout State) {
        if outlet.isFinished, state.finished.insert(outlet.connection).inserted { loop.wake() }
    }
}

// MARK: - Stores

extension Publisher {
    /// Numbers a store's events from now on. Nothing when that is done already.
    package func open(_ store: StoreAddress) {
        state.withLock { state in
            guard state.channels[store] == nil else { return }
            state.channels[store] = EventLog(startingAt: state.floor)
            state.changeLines[store] = ChangeLine(store, epoch: epoch)
        }
    }

    /// Stops numbering unless somebody is subscribed; true when it stopped.
    package func close(_ store: StoreAddress) -> Bool {
        state.withLock { state in
            guard state.subscribers[store] == nil, let channel = state.channels.removeValue(forKey: store) else {
                return false
            }
            state.changeLines[store] = nil
            state.floor = max(state.floor, channel.number + 1)
            if state.relocations[store]?.announcement == nil { state.relocations[store] = nil }
            return true
        }
    }

    /// Numbers the event and sends it to all subscribers; nothing when the store isn't open.
    package func publish(_ event: StoreEvent, of store: StoreAddress) {
        endUnreadable(of: store, before: event)
        let isHistoryWanted = state.withLock { state in
            // Most changes come while nothing is relocated.
            if case .change = event, state.relocations.isEmpty {
                distribute(event, store, &state)
                return !state.unread.isEmpty
            }
            let before = state.relocations[store]
            let relocation = RelocationState.after(event, before)
            // Who is waited for still: nothing new.
            if case .relocating = event, relocation == before { return false }
            state.relocations[store] = relocation
            distribute(event, store, &state)
            if case .reset = event, let announcement = relocation?.announcement {
                distribute(announcement, store, &state)
            }
            if state.channels[store] == nil, relocation?.announcement == nil { state.relocations[store] = nil }
            return !state.unread.isEmpty
        }
        if isHistoryWanted { readHistories() }
    }

    private func distribute(_ event: StoreEvent, _ store: StoreAddress, _ state: inout State) {
        guard let numbered = state.channels[store]?.append(event) else { return }
        guard let subscribers = state.subscribers[store] else { return }
        let line = line(numbered, store, &state)
        for subscription in subscribers {
            if !subscription.admits(event) {
                subscription.passed(numbered.number)
                mark(subscription, &state)
            } else if subscription.rows != nil {
                distribute(numbered, to: subscription, &state)
            } else {
                let isOthers = subscription.outlet.isOthers
                let own = isOthers ? self.line(numbered, store, isOthers: true) : line
                subscription.outlet.send(numbered, line: own, of: subscription)
                note(subscription.outlet, &state)
            }
        }
    }

    /// Who reads stores' histories; without one, none is known.
    package func readHistories(with reader: @escaping @Sendable (StoreAddress) -> Void) {
        historyReader.withLock { $0 = reader }
    }

    /// Has those read that something is to be known of. Not to be called under the lock.
    func readHistories() {
        let stores = state.withLock { state in
            defer { state.unread = [] }
            return state.unread
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
    }

    package func status() -> [StoreAddress: StoreStatus] {
        state.withLock { state in
            var result: [StoreAddress: StoreStatus] = [:]
            for (store, channel) in state.channels {
                result[store] = StoreStatus(
                    token: token(channel.number),
                    subscriptions: (state.subscribers[store] ?? []).map { $0.status(upTo: channel.number) },
                    relocation: state.relocations[store])
            }
            return result
        }
    }

    /// The stores that somebody is subscribed to.
    package func subscribedStores() -> Set<StoreAddress> { state.withLock { Set($0.subscribers.keys) } }

    /// Whether somebody is subscribed who wants to know which tables change.
    package func wantsDetail(of store: StoreAddress) -> Bool {
        state.withLock { $0.subscribers[store]?.contains { $0.wantsDetail } ?? false }
    }
}

// MARK: - Subscriptions

extension Publisher {
    /// Subscribes, answers, and tells at once what happened since the token. The store must be open.
    /// `wasExpected`: after `expectAnswer`.
    package func subscribe(
        _ connection: UInt64, _ operation: SubscribeOperation, id: JSONValue?, path: [UInt8], wasExpected: Bool = false
    ) {
        let (store, token) = (operation.store, operation.since)
        state.withLock { state in
            if wasExpected { state.outlets[connection]?.unanswered -= 1 }
            guard let outlet = state.outlets[connection], let channel = state.channels[store] else { return }
            if outlet.subscriptions[store] == nil, let error = tooManySubscriptions(of: outlet, state) {
                return answer(.failure(id: id, error), outlet, &state)
            }
            remove(store, of: outlet, &state)
            let subscription = Subscription(operation, outlet: outlet, number: channel.number)
            outlet.add(subscription)
            state.subscriptionCount += 1
            state.subscribers[store, default: []].append(subscription)
            // Who comes later must not put off the question whether the others may still read it.
            if outlet.isOthers { state.readByOthers[store] = state.readByOthers[store] ?? .now }
            if operation.readsHistory { return join(subscription, operation, channel, id: id, path: path, &state) }
            let missed = (token.map { channel.missed(since: $0, epoch: epoch) } ?? []).filter {
                subscription.admits($0.event)
            }
            // The token answers "up to where was I told?": with events to follow, no further than before.
            var reply: JSONObject = ["token": .string(missed.isEmpty ? self.token(channel.number) : token ?? "")]
            reply.setPath("path", bytes: path)
            answer(.reply(id: id, reply), outlet, &state)
            let lasting = state.relocations[store]?.announcement.map { event in
                EventLog.Numbered(event: event, number: channel.number)
            }
            for event in missed + (lasting.map { [$0] } ?? []) {
                outlet.send(event, line: line(event, store, isOthers: outlet.isOthers), of: subscription)
            }
        }
        readHistories()
    }

    /// False when there was no such subscription.
    package func unsubscribe(_ connection: UInt64, from store: StoreAddress) -> Bool {
        state.withLock { state in
            guard let outlet = state.outlets[connection] else { return false }
            return remove(store, of: outlet, &state)
        }
    }

    @discardableResult
    func remove(_ store: StoreAddress, of outlet: ClientConnection, _ state: inout State) -> Bool {
        guard let subscription = outlet.subscriptions[store] else { return false }
        answerAll(of: subscription, &state)
        outlet.remove(subscription)
        state.subscriptionCount -= 1
        state.subscribers[store]?.removeAll { $0 === subscription }
        if state.subscribers[store]?.isEmpty == true { state.subscribers[store] = nil }
        if outlet.isOthers, state.subscribers[store]?.contains(where: \.outlet.isOthers) != true {
            state.readByOthers[store] = nil
        }
        if state.subscribers[store]?.contains(where: { $0.rows != nil }) != true { state.histories[store] = nil }
        return true
    }
}

/// How many subscriptions the agent lets there be.
package struct SubscriptionLimits: Sendable, Equatable {
    package var perConnection: Int
    /// Of all connections together.
    package var total: Int

    package init(perConnection: Int = 1024, total: Int = 10_000) {
        self.perConnection = perConnection
        self.total = total
    }
}

extension Publisher {
    private func tooManySubscriptions(of outlet: ClientConnection, _ state: State) -> WireError? {
        let limits = state.limits
        if outlet.subscriptions.count >= limits.perConnection {
            return WireError(
                code: "too_many_subscriptions", "a connection has at most \(limits.perConnection) subscriptions",
                hint: "use another connection")
        }
        guard state.subscriptionCount >= limits.total else { return nil }
        return WireError(
            code: "too_many_subscriptions", "the agent has \(limits.total) subscriptions, and takes no more",
            hint: "end some, or raise socket: subscriptions in its configuration")
    }
}
