import LinuxSystem
import NATSStreams
import PersistentHistory

/// The batches and messages that a follower couldn't use.
///
/// The home may publish them again. If it doesn't, the replica would stay behind without noticing, so after some time
/// the follower takes a snapshot.
struct StreamDamage {
    private var suspected: ContinuousClock.Instant?
    private var lastPart: ContinuousClock.Instant?
    private var isSetback = false

    /// The time after which the rest of a batch is no longer expected.
    private static let batchTime = Duration.seconds(60)

    /// True if no batch is incomplete, and no message was left out since the last whole one.
    var isNone: Bool { suspected == nil && lastPart == nil }

    /// Notes a message that can't be used. The first one counts: later ones must not postpone the snapshot.
    mutating func suspect() { suspected = suspected ?? .now }

    /// Notes that the stream ends before the replica's position.
    mutating func suspectSetback() {
        suspect()
        isSetback = true
    }

    /// The reason for a snapshot, if one is needed.
    var reason: SnapshotRequest.Reason { isSetback ? .setBack : .damaged }

    /// Notes a part whose batch isn't whole yet. A new part postpones the snapshot: the home is still sending.
    mutating func continueBatch() { lastPart = .now }
    mutating func endBatch() { lastPart = nil }

    mutating func clear() {
        suspected = nil
        lastPart = nil
        isSetback = false
    }

    func needsSnapshot(after time: Duration) -> Bool {
        if let lastPart, lastPart.duration(to: .now) >= Self.batchTime { return true }
        return suspected.map { $0.duration(to: .now) >= time } ?? false
    }
}

/// The end of the stream as a follower knows it, and the position that the follower has confirmed.
struct FollowerProgress {
    private let link: StreamLink
    /// The follower's name.
    private let follower: String
    private var upto: Int64 = 0
    private var confirmed: HistoryToken?
    private var lastConfirmation: ContinuousClock.Instant?
    private var reported: HistoryToken?

    init(_ link: StreamLink, follower: String) {
        self.link = link
        self.follower = follower
    }

    /// Notes that the stream leads to the change of this number.
    mutating func learn(_ number: Int64?) { if let number { upto = max(upto, number) } }

    func lag(at position: HistoryToken) -> Int64 { max(0, upto - position.number) }

    /// True the first time that this position is the last one.
    mutating func isNew(_ position: HistoryToken) -> Bool {
        defer { reported = position }
        return reported != position
    }

    /// Throws `NATSError` if the broker forbids this follower to confirm: the home would keep no history for it.
    func checkPermission() throws(NATSError) {
        let subject = link.stream.acknowledgements(of: follower)
        if let error = link.connection.denial(of: subject, "confirm to \(subject)") { throw error }
    }

    /// The time after which a position is sent again: the home may have ended before writing it, or received another
    /// one under this name.
    private static let repetition = Duration.seconds(60)

    /// Sends the position to the home, if it has moved: at most once a second unless it is forced.
    mutating func confirm(_ position: HistoryToken, force: Bool) throws {
        let isDue = lastConfirmation.map { $0.duration(to: .now) >= Self.repetition } ?? true
        guard confirmed != position || isDue else { return }
        if !force, let lastConfirmation, lastConfirmation.duration(to: .now) < .seconds(1) { return }
        lastConfirmation = .now
        confirmed = position
        try link.connection.publish(
            Acknowledgement(position, by: follower).message(link.stream, key: link.key))
    }
}
