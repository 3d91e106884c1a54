import AgentProtocol
import FoundationEssentials
import LinuxSystem

/// One subscription: a connection's interest in a store. Guarded by the hub's lock.
final class Subscription {
    let store: StoreAddress
    /// The connection; it outlives its subscriptions.
    unowned let outlet: Outlet
    private let filter: TableFilter?
    private(set) var backlog = Backlog()
    /// All up to this event was written to the socket, or isn't for this subscription.
    private var told: UInt64
    private var lagsSince: Date?

    /// `number`: of the channel's last event.
    init(store: StoreAddress, outlet: Outlet, filter: TableFilter?, number: UInt64) {
        self.store = store
        self.outlet = outlet
        self.filter = filter
        told = number
    }

    /// Whether it is told of the event.
    func admits(_ event: StoreEvent) -> Bool {
        if let filter, case .change(let tables) = event { filter.admits(tables) } else { true }
    }

    /// An event that it isn't told of moves it on, unless earlier ones wait.
    func passed(_ number: UInt64) { if backlog.isEmpty { told = number } }

    func wasTold(_ number: UInt64) { told = max(told, number) }

    /// The socket takes nothing now.
    func queue(_ event: Channel.Numbered) {
        if backlog.isEmpty { lagsSince = Date() }
        backlog.append(event)
    }

    func take() -> [Channel.Numbered] {
        let events = backlog.take()
        if let last = events.last { wasTold(last.number) }
        lagsSince = nil
        return events
    }

    func status(upTo number: UInt64) -> SubscriptionStatus {
        SubscriptionStatus(
            peer: outlet.peer, tables: filter?.names, behind: backlog.isEmpty ? 0 : number - told,
            waitingBytes: outlet.waitingBytes, unreadBytes: outlet.unreadBytes, lagsSince: lagsSince)
    }
}

/// How far a subscription is behind.
package struct SubscriptionStatus: Sendable {
    /// Nil when it isn't known.
    let peer: PeerCredentials?
    let tables: [String]?
    /// Events that were not written to its socket: it will get them as one, or a reset.
    let behind: UInt64
    /// Bytes of its connection that the socket hasn't taken.
    let waitingBytes: Int
    /// Bytes of the kernel's memory that hold what its process hasn't read.
    let unreadBytes: Int
    let lagsSince: Date?

    var json: JSONObject {
        var object = JSONObject()
        if let peer {
            object["pid"] = .integer(Int64(peer.pid))
            object["program"] = .string(FileHolder.program(of: peer.pid))
            object["uid"] = .integer(Int64(peer.uid))
        }
        object["tables"] = tables.map { .array($0.map { .string($0) }) }
        object["behind"] = .integer(Int64(clamping: behind))
        object["waiting_bytes"] = .integer(Int64(waitingBytes))
        object["unread_bytes"] = .integer(Int64(unreadBytes))
        object["lagging_since"] = lagsSince.map { .string($0.formatted(.iso8601)) }
        return object
    }
}
