import AgentProtocol
import FoundationEssentials
import Glibc
import LinuxSystem
import PersistentHistory

/// One subscription: a connection's interest in a store. Guarded by the hub's lock.
final class Subscription {
    let store: StoreAddress
    /// The connection; it outlives its subscriptions.
    unowned let outlet: ClientConnection
    private let filter: TableFilter?
    /// Of its store's changes, which tables.
    let wantsDetail: Bool
    private let wantsBookmarks: Bool
    /// Of one that the store's history is read for.
    var rows: RowCursor?
    /// Not answered yet.
    var joining: Joining?
    /// Requests to be answered when nothing waits to be told.
    var barriers: [(id: JSONValue?, number: UInt64)] = []
    private(set) var backlog = Backlog()
    /// All up to this event was written to the socket, or isn't for this subscription.
    private(set) var told: UInt64
    private var lagsSince: Date?
    /// Events that it wasn't told of since its last line.
    private var leftOut = 0

    /// After so many events that are left out comes a bookmark: the feed says of fewer than these which tables.
    static let bookmarkInterval = 32

    /// `number`: of the channel's last event.
    init(_ operation: SubscribeOperation, outlet: ClientConnection, number: UInt64) {
        store = operation.store
        self.outlet = outlet
        filter = operation.tables
        wantsDetail = operation.wantsDetail
        wantsBookmarks = operation.wantsBookmarks
        told = number
    }

    /// Whether it is told of the event.
    func admits(_ event: StoreEvent) -> Bool {
        if let filter, case .change(let tables) = event { filter.admits(tables) } else { true }
    }

    /// An event that it isn't told of moves it on, unless earlier ones wait.
    func passed(_ number: UInt64) {
        guard backlog.isEmpty, rows?.firstUntold == nil else { return }
        told = max(told, number)
        leftOut += 1
    }

    func wasTold(_ number: UInt64) {
        told = max(told, number)
        leftOut = 0
    }

    /// Whether it is time to say how far it has come.
    func wantsBookmark() -> Bool {
        guard wantsBookmarks, leftOut >= Self.bookmarkInterval, joining == nil else { return false }
        leftOut = 0
        return true
    }

    /// Those whose answer waits for nothing any more.
    func takeBarriers() -> [JSONValue?] {
        guard backlog.isEmpty, joining == nil else { return [] }
        let untold = rows?.firstUntold ?? .max
        defer { barriers.removeAll { $0.number < untold } }
        return barriers.filter { $0.number < untold }.map(\.id)
    }

    /// The socket takes nothing now.
    func queue(_ event: EventLog.Numbered) {
        if backlog.isEmpty { lagsSince = Date() }
        backlog.append(event)
    }

    func take() -> [EventLog.Numbered] {
        let events = backlog.take()
        if let last = events.last { wasTold(last.number) }
        lagsSince = nil
        return events
    }

    /// A subscription whose answer waits for a look into the store's history.
    struct Joining {
        let id: JSONValue?
        let path: [UInt8]
        let since: String?
        /// The place in the history that it comes back with.
        let position: HistoryToken?
        /// Its feed is this one: what it missed of it is known.
        let isKnown: Bool
        /// To be told after the answer, before what the history brings.
        var events: [EventLog.Numbered]
    }

    func status(upTo number: UInt64) -> SubscriptionStatus {
        SubscriptionStatus(
            peer: outlet.peer, tables: filter?.names,
            behind: backlog.isEmpty && rows?.firstUntold == nil ? 0 : number - min(number, told),
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

    /// `program` names the process of a number.
    func json(program: (pid_t) -> String) -> JSONObject {
        var object = JSONObject()
        if let peer {
            object["pid"] = .integer(Int64(peer.pid))
            object["program"] = .string(program(peer.pid))
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
