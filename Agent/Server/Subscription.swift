import AgentProtocol
import FoundationEssentials
import Glibc
import LinuxSystem
import PersistentHistory

/// One subscription: a connection's interest in a store. Guarded by the publisher's lock.
final class Subscription {
    let store: StoreAddress
    /// The connection, which outlives its subscriptions.
    unowned let client: ClientConnection
    private let filter: TableFilter?
    /// True if it wants to know which tables change.
    let wantsDetail: Bool
    let wantsBookmarks: Bool
    private let wantsProgress: Bool
    /// The cursor, if the store's history is read for it.
    var rows: RowCursor?
    /// Its pending answer; nil once it is answered.
    var joining: Joining?
    /// Requests to be answered once all earlier events are delivered.
    var barriers: [(id: JSONValue?, number: UInt64)] = []
    private(set) var backlog = Backlog()
    /// The last delivered event: all up to it were written to the socket, or aren't for this subscription.
    private(set) var delivered: UInt64
    private var lag: Lag?
    private var lags: UInt64 = 0
    /// The number of events left out since its last line.
    private var skippedCount = 0

    /// A bookmark is sent after this many left-out events, before the event log forgets their tables
    /// (`EventLog.maximumRecent`).
    static let bookmarkInterval = 32

    /// `number`: the number of the log's last event.
    init(_ operation: SubscribeOperation, client: ClientConnection, number: UInt64) {
        store = operation.store
        self.client = client
        filter = operation.tables
        wantsDetail = operation.wantsDetail
        wantsBookmarks = operation.wantsBookmarks
        wantsProgress = operation.wantsProgress
        delivered = number
    }

    /// A time during which its socket is full.
    struct Lag: Sendable {
        let since = Date()
        private let start = ContinuousClock.now

        var duration: Duration { start.duration(to: .now) }
    }

    var lagCounts: LagCounts { LagCounts(lags: lags, overflows: backlog.overflows) }

    /// Returns true if the subscription is for the event.
    func admits(_ event: StoreEvent) -> Bool {
        switch event {
        case .change(let tables), .branchChange(let tables, pid: _): filter.map { $0.admits(tables) } ?? true
        case .progress: wantsProgress
        case .relocating, .relocated, .migrated, .abandoned, .hazard, .hazardOver, .reset: true
        }
    }

    /// Moves on past an event that isn't for it, unless earlier ones wait.
    func skip(_ number: UInt64) {
        guard backlog.isEmpty, rows?.firstUndelivered == nil else { return }
        delivered = max(delivered, number)
        skippedCount += 1
    }

    func markDelivered(_ number: UInt64) {
        delivered = max(delivered, number)
        skippedCount = 0
    }

    /// Returns true if a bookmark is due.
    func wantsBookmark() -> Bool {
        guard wantsBookmarks, skippedCount >= Self.bookmarkInterval, joining == nil else { return false }
        skippedCount = 0
        return true
    }

    /// Removes the requests whose answer waits for nothing any more, and returns their ids.
    func drainBarriers() -> [JSONValue?] {
        guard backlog.isEmpty, joining == nil else { return [] }
        let firstPending = rows?.firstUndelivered ?? .max
        defer { barriers.removeAll { $0.number < firstPending } }
        return barriers.filter { $0.number < firstPending }.map(\.id)
    }

    /// Queues an event because the socket is full.
    func queue(_ event: EventLog.Numbered) {
        if backlog.isEmpty {
            lag = Lag()
            lags += 1
        }
        backlog.append(event)
    }

    func drainBacklog() -> [EventLog.Numbered] {
        let events = backlog.drain()
        if let last = events.last { markDelivered(last.number) }
        lag = nil
        return events
    }

    /// The answer to a subscription, which waits for a read of the store's history.
    struct Joining {
        let id: JSONValue?
        let path: [UInt8]
        let since: String?
        /// The history position that the subscriber returns with.
        let position: HistoryToken?
        /// True if its token is of this feed: the events it missed are known.
        let isKnown: Bool
        /// The events to send after the answer, before those from the history.
        var events: [EventLog.Numbered]
    }

    /// `unreadBytes`: those of its connection.
    func status(upTo number: UInt64, unreadBytes: Int) -> SubscriptionStatus {
        SubscriptionStatus(
            connection: client.connection, peer: client.peer, tables: filter?.names,
            behind: backlog.isEmpty && rows?.firstUndelivered == nil ? 0 : number - min(number, delivered),
            waitingBytes: client.waitingBytes, unreadBytes: unreadBytes,
            unreadTime: unreadBytes > 0 ? client.sinceSending : nil, lag: lag, counts: lagCounts)
    }
}

/// The lag of a subscription.
package struct SubscriptionStatus: Sendable {
    /// The number of its connection, which is no other's for as long as the agent runs.
    let connection: UInt64
    /// The peer; nil if unknown.
    let peer: PeerCredentials?
    let tables: [String]?
    /// The events not written to its socket: it will get them as one, or a reset.
    let behind: UInt64
    /// Bytes of its connection that the socket hasn't taken.
    let waitingBytes: Int
    /// Bytes in the kernel's buffers that its process hasn't read.
    let unreadBytes: Int
    /// The time since its connection was sent bytes last, which its process hasn't read; nil if it has read all.
    let unreadTime: Duration?
    let lag: Subscription.Lag?
    let counts: LagCounts

    /// Returns the `status` row. `program` returns the name of a process; nil to leave it out.
    func json(program: (pid_t) -> String?) -> JSONObject {
        var object: JSONObject = ["connection": .integer(Int64(clamping: connection))]
        if let peer {
            object["pid"] = .integer(Int64(peer.pid))
            object["program"] = program(peer.pid).map { .string($0) }
            object["uid"] = .integer(Int64(peer.uid))
        }
        object["tables"] = tables.map { .array($0.map { .string($0) }) }
        object["behind"] = .integer(Int64(clamping: behind))
        object["waiting_bytes"] = .integer(Int64(waitingBytes))
        object["unread_bytes"] = .integer(Int64(unreadBytes))
        object["unread_seconds"] = unreadTime.map { .number($0.seconds) }
        object["lagging_since"] = lag.map { .string($0.since.formatted(.iso8601)) }
        object["lagging_seconds"] = lag.map { .number($0.duration.seconds) }
        object["lags"] = .integer(Int64(clamping: counts.lags))
        object["overflows"] = .integer(Int64(clamping: counts.overflows))
        return object
    }
}
