import AgentProtocol
import Glibc
import GroupStore
import LinuxSystem
import SystemPackage

/// The events of an agent's stores across connections: if the agent goes away, the feed waits for it and requests the
/// events after the last tokens. If it stays away, the feed follows the stores itself, where it can.
final class AgentFeed: WatchedFeed {
    private(set) var stores: [WatchedStore] = []
    let openingType: String
    let socket: FilePath
    /// The agent, if it is this process's own.
    private let privateAgent: PrivateAgent?
    private var subscriptions: [SubscribeOperation] = []
    private var connection: AgentConnection?
    private let absence: AgentAbsence
    /// The feed of this process's own, once the agent has stayed away.
    private var own: (any WatchedFeed)?

    private static let replyTimeout = Duration.seconds(40)
    /// The times for a greeting after a lost connection. The agent may only have ended the connection, so the absence
    /// is reported after the first one.
    private static let (firstHelloTimeout, helloTimeout) = (Duration.seconds(1), Duration.seconds(10))

    /// Connects and subscribes.
    ///
    /// - Parameters:
    ///   - paths: Paths, or `GROUP_ID/NAME`.
    ///   - token: The position after which to begin, if there is one store.
    ///   - absence: What to do if the agent goes away.
    ///   - wait: Waits until it is known if a store keeps a history, and says so with the reason.
    ///   - configure: Sets filters; without it, all events are received.
    init(
        _ paths: [FilePath], since token: String? = nil, waiting wait: ((WireError) -> Void)? = nil,
        absence: AgentAbsence, _ configure: (inout SubscribeOperation) -> Void = { _ in }
    ) throws(AgentConnectionError) {
        self.absence = absence
        let socket = try AgentConnection.standardSocket(environment: ProcessVariables.all)
        self.socket = socket
        privateAgent = nil
        openingType = "subscribed"
        var backoff = Backoff(first: .milliseconds(50), longest: .seconds(2))
        var wasThere = false
        while true {
            let attempt = try Self.awaiting(
                socket, absence, nil,
                while: { error in
                    wasThere = wasThere || error == .lost(socket)
                    return wasThere && error.isOfAbsence
                }
            ) { (_, limit) throws(AgentConnectionError) in
                let opened = try Opened(paths, since: token, socket, limit, configure)
                return (opened, try wait == nil ? nil : opened.refusal(limit))
            }
            guard let (opened, refusal) = attempt else { throw .timedOut(socket) }
            wasThere = true
            (stores, subscriptions, connection) = (opened.stores, opened.subscriptions, opened.connection)
            guard let wait, opened.unknown != nil else { return }
            if let refusal { wait(refusal) }
            if Interruption.isRequested { throw .interrupted }
            pause(backoff.next())
        }
    }

    /// A connection with its subscriptions.
    private struct Opened {
        let connection: AgentConnection
        private(set) var stores: [WatchedStore] = []
        private(set) var subscriptions: [SubscribeOperation] = []
        /// A store of which it isn't known if it keeps a history.
        private(set) var unknown: StoreAddress?

        init(
            _ paths: [FilePath], since token: String?, _ socket: FilePath, _ limit: (Duration) -> Deadline,
            _ configure: (inout SubscribeOperation) -> Void
        ) throws(AgentConnectionError) {
            connection = try AgentConnection(
                socket, deadline: limit(AgentFeed.helloTimeout), interrupt: Interruption.descriptor)
            let groups = try ServedGroups(connection)
            for path in paths {
                let address = try groups.address(of: path)
                guard !subscriptions.contains(where: { $0.store == address }) else { continue }
                let subscription = AgentFeed.subscription(address, since: token, configure)
                subscriptions.append(subscription)
                let reply = try AgentFeed.subscribe(subscription, connection, limit(AgentFeed.replyTimeout))
                if subscription.readsHistory, reply.bool("history") == nil { unknown = address }
                stores.append(
                    WatchedStore(
                        name: AgentFeed.name(of: address), bytes: address.bytes,
                        path: reply.path("path").flatMap { FilePath(bytes: $0) } ?? path,
                        token: reply.string("token") ?? "", hasHistory: reply.bool("history") ?? false))
            }
        }

        /// Returns why the rows of a store can't be read for now; nil if they can. Throws why they can't at all.
        func refusal(_ limit: (Duration) -> Deadline) throws(AgentConnectionError) -> WireError? {
            guard let unknown else { return nil }
            let operation = HistoryOperation.changes(unknown, since: nil, limit: 1, HistoryOperation.Filter())
            do throws(AgentConnectionError) {
                _ = try connection.request(.history(operation), deadline: limit(AgentFeed.replyTimeout))
            } catch {
                guard case .refused(let refusal) = error, AgentFeed.passing.contains(refusal.code) else { throw error }
                return refusal
            }
            return nil
        }
    }

    /// The refusals that end by themselves. An agent that maintains the history updates it after a schema change, and a
    /// store may come to its name.
    static let passing: Set<String> = [
        "busy", "in_use", "no_space", "no_such_store", "timed_out", "outdated_history", "relocating",
    ]

    /// Subscribes at this process's own agent. The stores keep the names of their paths.
    init(
        _ agent: PrivateAgent, since token: String?, absence: AgentAbsence,
        _ configure: (inout SubscribeOperation) -> Void
    ) throws(AgentConnectionError) {
        self.absence = absence
        privateAgent = agent
        socket = agent.socket
        openingType = "watching"
        let connection = try AgentConnection(socket, interrupt: Interruption.descriptor)
        self.connection = connection
        var (stores, subscriptions) = ([WatchedStore](), [SubscribeOperation]())
        for (path, address) in agent.stores {
            let subscription = Self.subscription(address, since: token, configure)
            subscriptions.append(subscription)
            let reply = try Self.subscribe(subscription, connection, Deadline(after: Self.replyTimeout))
            stores.append(
                WatchedStore(
                    name: "\(PrintablePath(path))", bytes: path.bytes, path: path, token: reply.string("token") ?? "",
                    hasHistory: reply.bool("history") ?? false))
        }
        (self.stores, self.subscriptions) = (stores, subscriptions)
    }

    /// Returns the wire's name of a store.
    func address(_ index: Int) -> StoreAddress { subscriptions[index].store }

    private static func subscription(
        _ address: StoreAddress, since token: String?, _ configure: (inout SubscribeOperation) -> Void
    ) -> SubscribeOperation {
        var subscription = SubscribeOperation(address, since: token)
        configure(&subscription)
        subscription.wantsBookmarks = true
        return subscription
    }

    private static func subscribe(
        _ subscription: SubscribeOperation, _ connection: AgentConnection, _ deadline: Deadline
    ) throws(AgentConnectionError) -> JSONObject {
        try connection.request(.subscribe(subscription), deadline: deadline)
    }

    private static func name(of address: StoreAddress) -> String {
        "\(address.group)/\(FilePath.Component(bytes: address.name).map { "\(PrintablePath($0))" } ?? "")"
    }

    func receive(until deadline: Deadline, _ body: (FeedEvent) throws -> Void) throws -> Bool {
        if let own { return try own.receive(until: deadline, body) }
        let event: FeedEvent?
        do throws(AgentConnectionError) {
            event = try next(deadline)
        } catch {
            guard let own = try absence.feed(of: stores, after: error) else { throw error }
            self.own = own
            return try own.receive(until: deadline, body)
        }
        guard let event else { return false }
        try body(event)
        return true
    }

    /// Returns the next event, or nil if none came before the deadline.
    private func next(_ deadline: Deadline) throws(AgentConnectionError) -> FeedEvent? {
        while true {
            do throws(AgentConnectionError) {
                if connection == nil { connection = try reconnected(deadline) }
                guard let connection else { return nil }
                guard let (type, object) = try connection.event(deadline: deadline) else { return nil }
                guard let address = object.store,
                    let index = subscriptions.firstIndex(where: { $0.store == address })
                else { continue }
                let event = FeedEvent(stores[index], type: type, object: named(object, stores[index]))
                stores[index].token = event.token ?? stores[index].token
                return event
            } catch {
                guard case .lost = error else { throw error }
                connection = nil
            }
        }
    }

    /// Returns the event with the store's name in the lines for programs.
    private func named(_ object: JSONObject, _ store: WatchedStore) -> JSONObject {
        guard privateAgent != nil else { return object }
        var named = JSONObject()
        for (key, value) in object.members {
            if ["store", "store_b64"].contains(key) {
                named.setPath("store", bytes: store.bytes)
            } else {
                named[key] = value
            }
        }
        return named
    }

    /// Reconnects. Returns nil if the caller's deadline passes first, and throws if the agent doesn't come back.
    private func reconnected(_ deadline: Deadline) throws(AgentConnectionError) -> AgentConnection? {
        try Self.awaiting(socket, absence, stores, until: deadline, while: { _ in true }) {
            (isGone, limit) throws(AgentConnectionError) in
            let connection = try AgentConnection(
                socket, deadline: limit(isGone ? Self.helloTimeout : Self.firstHelloTimeout),
                interrupt: Interruption.descriptor)
            for (index, store) in stores.enumerated() {
                subscriptions[index].since = store.token
                _ = try Self.subscribe(subscriptions[index], connection, limit(Self.replyTimeout))
            }
            return connection
        }
    }

    /// Makes an attempt to reach an agent, and repeats it while the agent is away, for as long as it says. Returns nil
    /// if the caller's deadline passes first.
    ///
    /// - Parameters:
    ///   - stores: The stores that the agent has served; nil if it didn't come to that.
    ///   - isPassing: Returns true for an error after which the agent may come back.
    ///   - attempt: Receives whether the agent is known to be gone, and a function that limits a time to what is left.
    private static func awaiting<Success>(
        _ socket: FilePath, _ absence: AgentAbsence, _ stores: [WatchedStore]?, until deadline: Deadline = .none,
        while isPassing: (AgentConnectionError) -> Bool,
        attempt: (_ isGone: Bool, _ limit: (Duration) -> Deadline) throws(AgentConnectionError) -> Success
    ) throws(AgentConnectionError) -> Success? {
        var giveUp: Deadline?
        var backoff = Backoff(first: .milliseconds(50), longest: .seconds(2))
        while true {
            do throws(AgentConnectionError) {
                let success = try attempt(giveUp != nil) { Deadline(after: min($0, giveUp?.remaining ?? $0)) }
                if giveUp != nil { absence.sayBack() }
                return success
            } catch {
                guard isPassing(error) else { throw error }
                if giveUp == nil, !Interruption.isRequested { absence.sayGone(socket, stores) }
                let end = giveUp ?? Deadline(after: absence.wait(for: stores ?? []))
                if end.hasPassed { throw error == .lost(socket) ? .timedOut(socket) : error }
                giveUp = end
            }
            if Interruption.isRequested { throw .interrupted }
            if deadline.hasPassed { return nil }
            let delay = backoff.next()
            pause(min(delay, deadline.remaining ?? delay))
        }
    }
}
