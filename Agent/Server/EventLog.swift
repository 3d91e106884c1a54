import AgentProtocol
import PersistentHistory

/// One store's feed: how far it has come, and what a subscriber that comes back must be told. A pure value.
struct EventLog {
    struct Numbered: Equatable {
        let event: StoreEvent
        let number: UInt64
        /// Of a subscription that reads it: up to where the store's history was told.
        var position: HistoryToken?
        /// The rows that a change is about, where they travel with it.
        var rows: [JSONObject]?
    }

    /// Of the last event.
    private(set) var number: UInt64
    /// Tokens before it say nothing of what happened since.
    private var lastReset: Numbered?
    private var lastRelocated: Numbered?
    private var lastMigrated: Numbered?
    /// The tables of the last changes, for those who come back.
    private var recent: [(number: UInt64, tables: ChangedTables)] = []
    private static let mostRecent = 64

    /// `start`: the number it begins with. Tokens below are of a time when the store was not followed.
    init(startingAt start: UInt64) {
        number = start
        if start > 0 { lastReset = Numbered(event: .reset(.lagged), number: start) }
    }

    mutating func append(_ event: StoreEvent) -> Numbered {
        number += 1
        let numbered = Numbered(event: event, number: number)
        switch event {
        case .reset: lastReset = numbered
        case .relocated: lastRelocated = numbered
        case .migrated: lastMigrated = numbered
        case .change(let tables):
            // Half of them at once: to move up all others for each one would cost more than the rest.
            if recent.count == 2 * Self.mostRecent { recent.removeFirst(Self.mostRecent) }
            recent.append((number, tables))
        case .relocating, .abandoned: break
        }
        return numbered
    }

    /// What somebody who knows all up to `token` is to be told: nothing, one coalesced change, the last relocation,
    /// or that its token is worth nothing.
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

    /// All changes after the number as one.
    private func change(since known: UInt64) -> Numbered {
        let later = recent.filter { $0.number > known }.map(\.tables)
        // What is older than those that are kept may have been a change, too.
        let isWhole = recent.count < Self.mostRecent || (recent.first?.number ?? 0) <= known + 1
        let start: ChangedTables = isWhole ? later.first ?? .unknown : .unknown
        return Numbered(event: .change(later.reduce(start) { $0.union($1) }), number: number)
    }
}

/// What a subscriber whose socket is full will be told when it takes bytes again: bounded, whatever happens meanwhile.
struct Backlog {
    private(set) var entries: [EventLog.Numbered] = []
    private static let limit = 8

    var isEmpty: Bool { entries.isEmpty }

    /// A change is folded into the change or reset before it, and who is waited for now takes the place of who was;
    /// too many other events become one `reset`.
    mutating func append(_ new: EventLog.Numbered) {
        if case .relocating = new.event, case .relocating? = entries.last?.event {
            entries[entries.count - 1] = new
            return
        }
        if case .change(let tables) = new.event, let last = entries.last {
            switch last.event {
            case .change(let earlier):
                entries[entries.count - 1] = EventLog.Numbered(
                    event: .change(earlier.union(tables)), number: new.number, position: new.position)
                return
            case .reset:
                entries[entries.count - 1] = EventLog.Numbered(
                    event: last.event, number: new.number, position: new.position)
                return
            case .relocating, .relocated, .migrated, .abandoned: break
            }
        }
        entries.append(new)
        if entries.count > Self.limit {
            entries = [EventLog.Numbered(event: .reset(.lagged), number: new.number, position: new.position)]
        }
    }

    mutating func take() -> [EventLog.Numbered] {
        defer { entries = [] }
        return entries
    }
}
