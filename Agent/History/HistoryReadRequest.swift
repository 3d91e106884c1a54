import AgentProtocol
import PersistentHistory

/// The position up to which the subscriptions of a store have read its history.
struct HistoryPosition {
    /// All rows up to it were sent or left out; nil if the history was not read yet, or there is none.
    var token: HistoryToken?
    /// The tables of rows that were already read and may be of commits that the feed reports later.
    var credited: Set<String> = []
}

/// One read of a store's history, for all its subscriptions that need one.
package struct HistoryReadRequest: Sendable {
    let store: StoreAddress
    /// The position to read from; nil to ask only for the present position.
    let position: HistoryToken?
    /// True if a change may have recorded rows.
    let needsReading: Bool
    /// The history positions of returning subscribers, by connection; each is read separately.
    let returning: [UInt64: HistoryToken]
    /// The number of the last event before the read.
    let number: UInt64
}

// Subscriptions for which a store's history is read. Their changes are sent only by way of a round: between its
// beginning and its end the history is read, without the publisher's lock.
extension Publisher {
    /// Registers a subscription, which is answered at the end of its first round.
    func join(
        _ subscription: Subscription, operation: SubscribeOperation, eventLog: EventLog, id: JSONValue?,
        path: [UInt8], _ state: inout State
    ) {
        let token = operation.since.flatMap { SubscriptionToken($0) }
        let position = token?.history.flatMap { HistoryToken($0) }
        let isKnown = token?.feed.map { $0.epoch == epoch && $0.number <= eventLog.number } ?? false
        var cursor = RowCursor(operation)
        var events: [EventLog.Numbered] = []
        if let since = operation.since, isKnown || position == nil {
            // A history's token that isn't understood can't be placed, whatever the feed knows.
            let isUnderstood = position != nil || token?.history == nil
            let feed = isUnderstood ? token?.feed?.description ?? since : since
            for missed in eventLog.missed(since: feed, epoch: epoch) where subscription.admits(missed.event) {
                if case .change(let tables) = missed.event {
                    let known = events.last?.number ?? token?.feed?.number ?? eventLog.number
                    cursor.record(tables, number: missed.number, first: known + 1)
                } else {
                    if case .migrated = missed.event { cursor.recordMigration() }
                    events.append(missed)
                }
            }
        }
        subscription.rows = cursor
        subscription.joining = Subscription.Joining(
            id: id, path: path, since: operation.since, position: position, isKnown: isKnown, events: events)
        subscription.client.unanswered += 1
        if state.histories[subscription.store] == nil { state.histories[subscription.store] = HistoryPosition() }
        state.historiesToRead.insert(subscription.store)
    }

    /// Holds a change back until its rows are known, and sends at once an event that stands for all earlier changes.
    func distribute(_ numbered: EventLog.Numbered, to subscription: Subscription, _ state: inout State) {
        if numbered.event == .reset(.overflow), subscription.rows?.recordLoss(number: numbered.number) == true {
            state.historiesToRead.insert(subscription.store)
            return
        }
        switch numbered.event {
        case .change(let tables):
            subscription.rows?.record(tables, number: numbered.number)
            state.historiesToRead.insert(subscription.store)
            return
        case .reset, .relocated, .migrated:
            subscription.rows?.discardUndelivered()
            if case .migrated = numbered.event { subscription.rows?.recordMigration() }
            // Not held back until the copy of another file is made: programs must open that file soon.
            let isPositionNeeded = subscription.rows?.requestPosition(after: numbered.event, number: numbered.number)
            if isPositionNeeded == true { state.historiesToRead.insert(subscription.store) }
        // The history is that of the store at the name.
        case .branchChange, .relocating, .progress, .abandoned, .hazard, .hazardOver: break
        }
        guard subscription.joining == nil else {
            subscription.joining?.events.append(numbered)
            return
        }
        send(numbered.event, number: numbered.number, to: subscription, &state)
    }

    /// Sends an event. Its token never covers a change that wasn't sent yet.
    func send(
        _ event: StoreEvent, number: UInt64, rows: [JSONObject]? = nil, to subscription: Subscription,
        _ state: inout State
    ) {
        let upTo = subscription.rows?.firstUndelivered.map { min($0 - 1, number) } ?? number
        let numbered = EventLog.Numbered(
            event: event, number: upTo, position: subscription.rows?.position, rows: rows)
        let client = subscription.client
        let line = line(numbered, of: subscription.store, isUntrusted: client.isUntrusted)
        client.send(numbered, line: line, of: subscription)
        reportIfFinished(subscription.client, &state)
    }

    /// Sends a bookmark to a subscription that got no event for a while.
    func sendBookmarkIfDue(_ subscription: Subscription, _ state: inout State) {
        if subscription.client.isFlushed, subscription.wantsBookmark() { sendBookmark(subscription, &state) }
    }

    private func sendBookmark(_ subscription: Subscription, _ state: inout State) {
        let token = token(subscription.delivered, subscription.rows?.position)
        subscription.client.send(answer: WireLine.bytes(StoreEvent.bookmark(store: subscription.store, token: token)))
        reportIfFinished(subscription.client, &state)
    }
}

// MARK: - Rounds

extension Publisher {
    /// Begins a round; returns nil if no subscription waits for one.
    func beginRound(_ store: StoreAddress) -> HistoryReadRequest? {
        state.withLock { state in
            guard let history = state.histories[store], let number = state.lastNumber(of: store) else { return nil }
            let waiting = state.subscribers(of: store).filter { subscription in
                subscription.rows?.firstUndelivered != nil || subscription.joining != nil
                    || subscription.rows?.needsPosition == true
            }
            guard !waiting.isEmpty else { return nil }
            var returning: [UInt64: HistoryToken] = [:]
            var needsReading = false
            for subscription in state.subscribers(of: store) { subscription.rows?.beginReading() }
            for subscription in waiting {
                needsReading = needsReading || subscription.joining != nil || subscription.rows?.mayHaveRows == true
                if let joining = subscription.joining, let position = joining.position {
                    returning[subscription.client.connection] = position
                }
            }
            return HistoryReadRequest(
                store: store, position: history.token, needsReading: needsReading, returning: returning, number: number)
        }
    }

    /// Ends a round, and sends its results to its subscriptions. `isCaughtUp`: the feed has since published every
    /// commit made before the read.
    func endRound(
        _ round: HistoryReadRequest, _ reading: HistoryReadResult, returning: [UInt64: HistoryReadResult] = [:],
        isCaughtUp: Bool
    ) {
        state.withLock { state in
            let credited = state.histories[round.store]?.credited ?? []
            let lastNumber = isCaughtUp ? state.lastNumber(of: round.store) : nil
            for subscription in state.subscribers(of: round.store) where subscription.rows?.isReading == true {
                if subscription.joining == nil {
                    deliver(reading, to: subscription, credited: credited, lastNumber: lastNumber, &state)
                } else {
                    admit(subscription, reading: reading, own: returning[subscription.client.connection], &state)
                }
                sendBookmarkIfDue(subscription, &state)
                answerBarriers(of: subscription, &state)
            }
            if case .failed = reading {} else { state.histories[round.store]?.token = reading.token }
            // The rows may be of commits that the feed published only after the round began.
            let isQuiet = lastNumber == round.number
            state.histories[round.store]?.credited = isQuiet || !isCaughtUp ? [] : reading.tables
        }
    }

    private func deliver(
        _ reading: HistoryReadResult, to subscription: Subscription, credited: Set<String>, lastNumber: UInt64?,
        _ state: inout State
    ) {
        let number = subscription.rows?.inRound?.last ?? subscription.delivered
        let lastNumber = subscription.wantsBookmarks ? lastNumber : nil
        switch subscription.rows?.finishReading(reading, credited: credited, lastNumber: lastNumber) ?? .nothing {
        case .change(let tables, let rows):
            send(.change(tables), number: number, rows: rows, to: subscription, &state)
        case .reset(let reason): send(.reset(reason), number: number, to: subscription, &state)
        case .advanced:
            if subscription.client.isFlushed { sendBookmark(subscription, &state) }
        case .leftOut: subscription.skip(number)
        case .nothing: break
        }
    }

    /// Answers a new subscription, and sends the events that it missed.
    private func admit(
        _ subscription: Subscription, reading: HistoryReadResult, own: HistoryReadResult?, _ state: inout State
    ) {
        guard let joining = subscription.joining.take(), var cursor = subscription.rows else { return }
        let last = cursor.inRound?.last ?? subscription.delivered
        let beforeUndelivered = cursor.firstUndelivered.map { $0 - 1 } ?? last
        var outcome: RowCursor.Outcome
        if let own, let position = joining.position, own.token != nil {
            cursor.begin(at: position)
            outcome = cursor.finishReading(own, isReturning: !joining.isKnown)
        } else {
            // The present position isn't that of a token that couldn't be placed.
            outcome = cursor.finishReading(own?.isFailed == true ? .failed : reading.withoutRows)
            // The changes after its token are unknown.
            if joining.position != nil, !joining.isKnown { outcome = .reset(.epoch) }
        }
        subscription.rows = cursor
        var events = joining.events
        switch outcome {
        case .change(let tables, let rows):
            events.append(EventLog.Numbered(event: .change(tables), number: last, rows: rows))
        case .reset(let reason): events.append(EventLog.Numbered(event: .reset(reason), number: last))
        case .advanced, .leftOut, .nothing: break
        }
        events += ongoing(for: subscription, state).map { EventLog.Numbered(event: $0, number: last) }
        let token =
            events.isEmpty
            ? self.token(last, cursor.position)
            : joining.since ?? self.token(min(beforeUndelivered, subscription.delivered))
        var reply: JSONObject = ["token": .string(token)]
        reply.setPath("path", bytes: joining.path)
        // Nobody knows while it can't be read.
        if cursor.position != nil || !(own ?? reading).isFailed { reply["history"] = .bool(cursor.position != nil) }
        subscription.client.unanswered -= 1
        answer(.reply(id: joining.id, reply), to: subscription.client, &state)
        if cursor.firstUndelivered == nil { subscription.markDelivered(last) }
        for (index, event) in events.enumerated() {
            // Until the last event, or the change, is sent, a token covers no more than the one the subscriber came
            // with.
            if index < joining.events.count, index < events.count - 1 {
                let early = EventLog.Numbered(
                    event: event.event, number: min(beforeUndelivered, event.number), position: joining.position)
                let client = subscription.client
                let line = line(early, of: subscription.store, isUntrusted: client.isUntrusted)
                client.send(early, line: line, of: subscription)
            } else {
                send(event.event, number: last, rows: event.rows, to: subscription, &state)
            }
        }
    }
}
