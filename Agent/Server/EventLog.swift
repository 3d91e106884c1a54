import AgentProtocol
import PersistentHistory

/// The events of one store: the last number, and what a returning subscriber must be sent. A pure value.
struct EventLog {
    struct Numbered: Equatable {
        let event: StoreEvent
        let number: UInt64
        /// For a subscription that reads the history: the position up to which the history was sent.
        var position: HistoryToken?
        /// The changed rows, if they are sent with the change.
        var rows: [JSONObject]?
    }

    /// The number of the last event.
    private(set) var number: UInt64
    /// The last reset. Tokens before it can't be caught up with.
    private var lastReset: Numbered?
    private var lastRelocated: Numbered?
    private var lastMigrated: Numbered?
    /// The tables of the latest changes, for returning subscribers.
    private var recent: [(number: UInt64, tables: ChangedTables)] = []
    private static let maximumRecent = 64
    /// What was published, for `status`.
    var counts: EventCounts

    /// Begins at the number `start`. Lower tokens are of a time when the store was not followed.
    init(startingAt start: UInt64, counts: EventCounts = EventCounts()) {
        number = start
        self.counts = counts
        if start > 0 { lastReset = Numbered(event: .reset(.lagged), number: start) }
    }

    mutating func append(_ event: StoreEvent) -> Numbered {
        number += 1
        counts.add(event)
        let numbered = Numbered(event: event, number: number)
        switch event {
        case .reset: lastReset = numbered
        case .relocated: lastRelocated = numbered
        case .migrated: lastMigrated = numbered
        case .change(let tables):
            // Removed in halves: moving up all others for each removal would cost more than everything else.
            if recent.count == 2 * Self.maximumRecent { recent.removeFirst(Self.maximumRecent) }
            recent.append((number, tables))
        // Whoever returns while the hazard lasts is told of it again.
        case .branchChange, .relocating, .progress, .abandoned, .hazard, .hazardOver: break
        }
        return numbered
    }

    /// Returns an event that tells how far a relocation is. It has the number of the last event: there is nothing in it
    /// to catch up with.
    func progress(_ progress: StoreProgress) -> Numbered { Numbered(event: .progress(progress), number: number) }

    /// Returns the events that a subscriber with the token must be sent: none, one coalesced change, the last
    /// relocation, or a reset because the token is useless.
    func missed(since token: String, epoch: String) -> [Numbered] {
        guard let token = FeedToken(token), token.epoch == epoch, token.number <= number else {
            return [Numbered(event: .reset(.epoch), number: number)]
        }
        if token.number == number { return [] }
        if let lastReset, token.number < lastReset.number {
            return [Numbered(event: lastReset.event, number: number)]
        }
        let moves = [lastRelocated, lastMigrated].compactMap(\.self).filter { token.number < $0.number }
            .sorted { $0.number < $1.number }
        if let last = moves.last { return moves + (last.number < number ? [change(since: last.number)] : []) }
        return [change(since: token.number)]
    }

    /// Returns all changes after the number as one.
    private func change(since known: UInt64) -> Numbered {
        let later = recent.filter { $0.number > known }.map(\.tables)
        // Events before the kept ones may have been changes, too.
        let isWhole = recent.count < Self.maximumRecent || (recent.first?.number ?? 0) <= known + 1
        let start: ChangedTables = isWhole ? later.first ?? .unknown : .unknown
        return Numbered(event: .change(later.reduce(start) { $0.union($1) }), number: number)
    }
}

/// The events for a subscriber whose socket is full, to be sent once it takes bytes again. Bounded, whatever happens
/// meanwhile.
struct Backlog {
    private(set) var entries: [EventLog.Numbered] = []
    /// The number of times that one reset replaced all that waited.
    private(set) var overflows: UInt64 = 0
    private static let limit = 8

    var isEmpty: Bool { entries.isEmpty }

    /// Folds a change into the one of the same files or the reset before it, and replaces an earlier `relocating` or
    /// progress by a later one. Too many other events become one `reset`.
    mutating func append(_ new: EventLog.Numbered) {
        if new.event.describesRelocation, entries.last?.event.describesRelocation == true {
            entries[entries.count - 1] = new
            return
        }
        // Commits to the store and to a branch may alternate.
        if let index = entries.lastIndex(where: { Self.folded($0.event, new.event) != nil }),
            entries[(index + 1)...].allSatisfy(\.event.isCommit),
            let event = Self.folded(entries[index].event, new.event)
        {
            entries.remove(at: index)
            entries.append(EventLog.Numbered(event: event, number: new.number, position: new.position))
            return
        }
        entries.append(new)
        if entries.count > Self.limit {
            overflows += 1
            entries = [EventLog.Numbered(event: .reset(.lagged), number: new.number, position: new.position)]
        }
    }

    /// Returns one event for two; nil if neither stands for the other.
    private static func folded(_ earlier: StoreEvent, _ later: StoreEvent) -> StoreEvent? {
        if case .reset = earlier, case .change = later { return earlier }
        return earlier.union(later)
    }

    mutating func drain() -> [EventLog.Numbered] {
        defer { entries = [] }
        return entries
    }
}

extension StoreEvent {
    /// True if the event describes a relocation that goes on: a later one says all that matters.
    var describesRelocation: Bool {
        switch self {
        case .relocating, .progress: true
        case .change, .branchChange, .relocated, .migrated, .abandoned, .hazard, .hazardOver, .reset: false
        }
    }
}
