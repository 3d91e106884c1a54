import PersistentHistory

/// Decides which of the kept snapshots is offered to a follower, whether another one must be made, and when one is
/// removed.
///
/// A follower that asks although it has a position found a gap there: a snapshot at or before that position leads to
/// the same gap again. It gets one that leads further, or one begun after its request.
struct SnapshotOffers {
    private struct Kept {
        let upto: HistoryToken
        /// The times at which its making began and ended.
        let begun: ContinuousClock.Instant
        let made: ContinuousClock.Instant
        /// The time after which it is removed even while a follower receives it.
        let end: ContinuousClock.Instant
        /// The time of the last request for it or for a part of it.
        var used: ContinuousClock.Instant
        var isWithdrawn = false
    }

    private struct Asked {
        let request: SnapshotRequest
        let since: ContinuousClock.Instant
        var last: ContinuousClock.Instant
    }

    private var kept: [String: Kept] = [:]
    /// The unanswered requests, by the follower's name.
    private var asked: [String: Asked] = [:]
    /// The earliest time for another snapshot.
    private var next: ContinuousClock.Instant?

    /// The time for which a snapshot serves further followers.
    private static let freshness = Duration.seconds(60)
    /// The time after which a request that isn't repeated is forgotten.
    private static let patience = Duration.seconds(60)
    private static let maxAsked = 1000

    /// The maximum number of kept snapshots: the directory needs room for so many.
    static let maxKept = 2
    /// The time for which a snapshot is kept after its last use, so that an interrupted follower can continue.
    private static let retention = Duration.seconds(600)
    /// The time after its last use from which it gives way to another one.
    static let idleTime = Duration.seconds(30)
    /// The same for one that isn't offered any more. A follower that receives it asks for its parts without a pause.
    static let withdrawnIdleTime = Duration.seconds(5)

    /// Returns the longest time for which a snapshot is kept: an hour, and a second for each 256 KiB.
    static func lifetime(size: Int64) -> Duration { .seconds(3600 + max(0, size) >> 18) }

    /// The tokens of the snapshots that may be offered.
    var tokens: [String: HistoryToken] { kept.filter { !$0.value.isWithdrawn }.mapValues(\.upto) }

    mutating func add(
        _ id: String, upto: HistoryToken, size: Int64 = 0, begun: ContinuousClock.Instant,
        made: ContinuousClock.Instant
    ) {
        kept[id] = Kept(
            upto: upto, begun: begun, made: made, end: made.advanced(by: Self.lifetime(size: size)), used: made)
        // Any follower may ask at any time. Making snapshots takes a third of the time at most.
        next = made + max(.seconds(1), begun.duration(to: made) * 2)
    }

    /// Notes a failed attempt to make a snapshot, so that the next one is delayed.
    mutating func noteFailure(begun: ContinuousClock.Instant, ended: ContinuousClock.Instant) {
        next = ended + max(.seconds(2), begun.duration(to: ended) * 2)
    }

    /// Notes that a follower receives the snapshot.
    mutating func use(_ id: String, at now: ContinuousClock.Instant) { kept[id]?.used = now }

    /// Removes the snapshots that are unused for too long, or too old. Returns their identifiers.
    mutating func removeExpired(at now: ContinuousClock.Instant) -> [String] {
        let expired = kept.filter { $0.value.used.duration(to: now) > Self.retention || $0.value.end <= now }
        for id in expired.keys { kept[id] = nil }
        return Array(expired.keys)
    }

    /// Makes room for another snapshot. Returns the identifiers of the removed ones, or nil if all are in use: then it
    /// must wait.
    mutating func makeRoom(at now: ContinuousClock.Instant) -> [String]? {
        var removed: [String] = []
        while kept.count >= Self.maxKept {
            let idle = kept.filter {
                let limit = $0.value.isWithdrawn ? Self.withdrawnIdleTime : Self.idleTime
                return $0.value.used.duration(to: now) > limit
            }
            guard let id = idle.min(by: { $0.value.used < $1.value.used })?.key else { return nil }
            kept[id] = nil
            removed.append(id)
        }
        return removed
    }

    /// Stops offering a snapshot. Followers that have begun to receive it continue.
    mutating func withdraw(_ id: String) { kept[id]?.isWithdrawn = true }

    /// Returns the newest snapshot that helps the follower. If there is none, notes the request: a snapshot begun from
    /// now on helps.
    mutating func offer(to request: SnapshotRequest, at now: ContinuousClock.Instant) -> String? {
        let name = request.follower ?? ""
        var entry =
            asked[name].flatMap { entry in
                entry.request == request && entry.last.duration(to: now) < Self.patience ? entry : nil
            } ?? Asked(request: request, since: now, last: now)
        entry.last = now
        if let id = helping(entry, at: now) {
            kept[id]?.used = now
            asked[name] = nil
            return id
        }
        if asked.count >= Self.maxAsked { asked = [:] }
        asked[name] = entry
        return nil
    }

    /// Returns true if no kept snapshot helps a waiting follower, and it is time to make another one.
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
