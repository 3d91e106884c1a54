import AgentProtocol
import PersistentHistory

/// How far the subscriptions of a store have come in its history.
struct HistoryPosition {
    /// All rows up to it were told or left out; nil when the history was not read yet, or there is none.
    var token: HistoryToken?
    /// The tables of rows that were read and may be of commits that the feed tells of later.
    var credited: Set<String> = []
}

/// One look into a store's history, for all subscriptions that something is to be known of.
package struct HistoryReadRequest: Sendable {
    let store: StoreAddress
    /// Read what follows; nil: only where the history is.
    let position: HistoryToken?
    /// False: none of the changes recorded anything.
    let needsReading: Bool
    /// Places in the history that subscribers come back with, by connection: they are read for each alone.
    let returning: [UInt64: HistoryToken]
    /// Of the last event before it.
    let number: UInt64
}

// Subscriptions that a store's history is read for. The feed tells them of nothing but by way of a round: between its
// beginning and its end the history is read, without the hub's lock.
extension Publisher {
    /// Answered at the end of the first round.
    func join(
        _ subscription: Subscription, _ operation: SubscribeOperation, _ channel: EventLog, id: JSONValue?,
        path: [UInt8], _ state: inout State
    ) {
        let token = operation.since.flatMap { SubscriptionToken($0) }
        let position = token?.history.flatMap { HistoryToken($0) }
        let isKnown = token?.feed.map { $0.epoch == epoch && $0.number <= channel.number } ?? false
        var cursor = RowCursor(operation)
        var events: [EventLog.Numbered] = []
        if let since = operation.since, isKnown || position == nil {
            let feed = token?.feed?.description ?? since
            for missed in channel.missed(since: feed, epoch: epoch) where subscription.admits(missed.event) {
                if case .change(let tables) = missed.event {
                    let known = events.last?.number ?? token?.feed?.number ?? channel.number
                    cursor.note(tables, number: missed.number, first: known + 1)
                } else {
                    if case .migrated = missed.event { cursor.noteMigration() }
                    events.append(missed)
                }
            }
        }
        subscription.rows = cursor
        subscription.joining = Subscription.Joining(
            id: id, path: path, since: operation.since, position: position, isKnown: isKnown, events: events)
        subscription.outlet.unanswered += 1
        if state.histories[subscription.store] == nil { state.histories[subscription.store] = HistoryPosition() }
        state.unread.insert(subscription.store)
    }

    /// A change waits until it is known which rows it is about; what stands for all changes before it is told at once.
    func distribute(_ numbered: EventLog.Numbered, to subscription: Subscription, _ state: inout State) {
        switch numbered.event {
        case .change(let tables):
            subscription.rows?.note(tables, number: numbered.number)
            state.unread.insert(subscription.store)
            return
        case .reset, .relocated: subscription.rows?.forgetUntold()
        case .migrated:
            subscription.rows?.forgetUntold()
            subscription.rows?.noteMigration()
        case .relocating, .abandoned: break
        }
        guard subscription.joining == nil else {
            subscription.joining?.events.append(numbered)
            return
        }
        send(numbered.event, number: numbered.number, to: subscription, &state)
    }

    /// Its token never stands for what wasn't told yet.
    private func send(
        _ event: StoreEvent, number: UInt64, rows: [JSONObject]? = nil, to subscription: Subscription,
        _ state: inout State
    ) {
        let upTo = subscription.rows?.firstUntold.map { min($0 - 1, number) } ?? number
        let numbered = EventLog.Numbered(
            event: event, number: upTo, position: subscription.rows?.position, rows: rows)
        let outlet = subscription.outlet
        let line = line(numbered, subscription.store, isOthers: outlet.isOthers)
        outlet.send(numbered, line: line, of: subscription)
        note(subscription.outlet, &state)
    }

    /// Says how far a subscription has come that wasn't told of anything for a while.
    func mark(_ subscription: Subscription, _ state: inout State) {
        guard subscription.outlet.isFlushed, subscription.wantsBookmark() else { return }
        let token = token(subscription.told, subscription.rows?.position)
        subscription.outlet.send(answer: WireLine.bytes(StoreEvent.bookmark(store: subscription.store, token: token)))
        note(subscription.outlet, &state)
    }
}

// MARK: - Rounds

extension Publisher {
    /// Nil when nobody waits for one.
    func beginRound(_ store: StoreAddress) -> HistoryReadRequest? {
        state.withLock { state in
            guard let history = state.histories[store], let number = state.channels[store]?.number else { return nil }
            let waiting = (state.subscribers[store] ?? []).filter { subscription in
                subscription.rows?.firstUntold != nil || subscription.joining != nil
            }
            guard !waiting.isEmpty else { return nil }
            var returning: [UInt64: HistoryToken] = [:]
            var needsReading = false
            for subscription in state.subscribers[store] ?? [] { subscription.rows?.beginSettling() }
            for subscription in waiting {
                needsReading = needsReading || subscription.joining != nil || subscription.rows?.mayHaveRows == true
                if let joining = subscription.joining, let position = joining.position {
                    returning[subscription.outlet.connection] = position
                }
            }
            return HistoryReadRequest(
                store: store, position: history.token, needsReading: needsReading, returning: returning, number: number)
        }
    }

    /// Tells all subscriptions that the round is for. `isCaughtUp`: what was committed before the look was told by the
    /// feed since.
    func endRound(
        _ round: HistoryReadRequest, _ reading: HistoryReadResult, returning: [UInt64: HistoryReadResult] = [:],
        isCaughtUp: Bool
    ) {
        state.withLock { state in
            let credited = state.histories[round.store]?.credited ?? []
            for subscription in state.subscribers[round.store] ?? [] where subscription.rows?.isSettling == true {
                if subscription.joining == nil {
                    settle(subscription, reading, credited, &state)
                } else {
                    admit(subscription, reading, own: returning[subscription.outlet.connection], &state)
                }
                mark(subscription, &state)
                answerBarriers(of: subscription, &state)
            }
            if case .failed = reading {} else { state.histories[round.store]?.token = reading.token }
            // What was read may be of commits that the feed told of only after the round had begun.
            let isQuiet = isCaughtUp && state.channels[round.store]?.number == round.number
            state.histories[round.store]?.credited = isQuiet || !isCaughtUp ? [] : reading.tables
        }
    }

    private func settle(
        _ subscription: Subscription, _ reading: HistoryReadResult, _ credited: Set<String>, _ state: inout State
    ) {
        let number = subscription.rows?.settling?.last ?? subscription.told
        switch subscription.rows?.settle(reading, credited: credited) ?? .nothing {
        case .change(let tables, let rows):
            send(.change(tables), number: number, rows: rows, to: subscription, &state)
        case .reset(let reason): send(.reset(reason), number: number, to: subscription, &state)
        case .leftOut: subscription.passed(number)
        case .nothing: break
        }
    }

    /// Answers a subscription, and tells it what it missed.
    private func admit(
        _ subscription: Subscription, _ reading: HistoryReadResult, own: HistoryReadResult?, _ state: inout State
    ) {
        guard let joining = subscription.joining.take(), var cursor = subscription.rows else { return }
        let last = cursor.settling?.last ?? subscription.told
        let beforeUntold = cursor.firstUntold.map { $0 - 1 } ?? last
        var outcome: RowCursor.Outcome
        if let own, let position = joining.position, own.token != nil {
            cursor.begin(at: position)
            outcome = cursor.settle(own, comesBack: !joining.isKnown)
        } else {
            outcome = cursor.settle(reading.withoutRows)
            // Nothing says what came after its token.
            if joining.position != nil, !joining.isKnown { outcome = .reset(.epoch) }
        }
        subscription.rows = cursor
        var events = joining.events
        switch outcome {
        case .change(let tables, let rows):
            events.append(EventLog.Numbered(event: .change(tables), number: last, rows: rows))
        case .reset(let reason): events.append(EventLog.Numbered(event: .reset(reason), number: last))
        case .leftOut, .nothing: break
        }
        if let lasting = state.relocations[subscription.store]?.announcement {
            events.append(EventLog.Numbered(event: lasting, number: last))
        }
        let token =
            events.isEmpty
            ? self.token(last, cursor.position) : joining.since ?? self.token(min(beforeUntold, subscription.told))
        var reply: JSONObject = ["token": .string(token)]
        reply.setPath("path", bytes: joining.path)
        reply["history"] = .bool(cursor.position != nil)
        subscription.outlet.unanswered -= 1
        answer(.reply(id: joining.id, reply), subscription.outlet, &state)
        if cursor.firstUntold == nil { subscription.wasTold(last) }
        for (place, event) in events.enumerated() {
            // Until the last event, or the change, is told, a token stands for no more than what the subscriber came with.
            if place < joining.events.count, place < events.count - 1 {
                let early = EventLog.Numbered(
                    event: event.event, number: min(beforeUntold, event.number), position: joining.position)
                let outlet = subscription.outlet
                let line = line(early, subscription.store, isOthers: outlet.isOthers)
                outlet.send(early, line: line, of: subscription)
            } else {
                send(event.event, number: last, rows: event.rows, to: subscription, &state)
            }
        }
    }
}
