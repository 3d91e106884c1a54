import PersistentHistory

/// Decides which of the snapshots that are kept is offered to a follower, and whether another one must be made.
///
/// A follower that had to ask although it has a state isn't helped by one at or before that: it would find the same gap
/// again. It gets one that leads further, or one that was begun after it asked.
struct SnapshotOffers {
    private struct Kept {
        let upto: HistoryToken
        /// When its making began, and ended.
        let begun: ContinuousClock.Instant
        let made: ContinuousClock.Instant
        var isWithdrawn = false
    }

    private struct Asked {
        let request: SnapshotRequest
        let since: ContinuousClock.Instant
        var last: ContinuousClock.Instant
    }

    private var kept: [String: Kept] = [:]
    /// The requests that are not answered yet, by the follower's name.
    private var asked: [String: Asked] = [:]
    /// The earliest time for another snapshot.
    private var next: ContinuousClock.Instant?

    /// The time for which a snapshot serves further followers.
    private static let freshness = Duration.seconds(60)
    /// The time after which a request that isn't repeated is given up.
    private static let patience = Duration.seconds(60)
    private static let maxAsked = 1000

    /// The tokens of the snapshots that may be offered.
    var tokens: [String: HistoryToken] { kept.filter { !$0.value.isWithdrawn }.mapValues(\.upto) }

    mutating func add(
        _ id: String, upto: HistoryToken, begun: ContinuousClock.Instant, made: ContinuousClock.Instant
    ) {
        kept[id] = Kept(upto: upto, begun: begun, made: made)
        // Anybody may ask: making them takes a third of the time at most.
        next = made + max(.seconds(1), begun.duration(to: made) * 2)
    }

    /// Offers a snapshot to nobody any more. Who has begun to receive it goes on.
    mutating func withdraw(_ id: String) { kept[id]?.isWithdrawn = true }

    mutating func remove(_ id: String) { kept[id] = nil }

    /// Returns the newest snapshot that helps. Without one, notes the request: one that is begun from now on does.
    mutating func offer(to request: SnapshotRequest, at now: ContinuousClock.Instant) -> String? {
        let name = request.follower ?? ""
        var entry =
            asked[name].flatMap { entry in
                entry.request == request && entry.last.duration(to: now) < Self.patience ? entry : nil
            } ?? Asked(request: request, since: now, last: now)
        entry.last = now
        if let id = helping(entry, at: now) {
            asked[name] = nil
            return id
        }
        if asked.count >= Self.maxAsked { asked = [:] }
        asked[name] = entry
        return nil
    }

    /// True if a follower waits whom no snapshot helps, and another one may be made already.
    func needsAnother(at now: ContinuousClock.Instant) -> Bool {
        if let next, now < next { return false }
        return asked.values.contains { entry in
            entry.last.duration(to: now) < Self.patience && helping(entry, at: now) == nil
        }
    }

    private func helping(_ entry: Asked, at now: ContinuousClock.Instant) -> String? {
        kept.filter { _, snapshot in
            !snapshot.isWithdrawn && snapshot.made.duration(to: now) < Self.freshness
                && (entry.request.isHelped(by: snapshot.upto) || snapshot.begun >= entry.since)
        }.max { $0.value.begun < $1.value.begun }?.key
    }
}
