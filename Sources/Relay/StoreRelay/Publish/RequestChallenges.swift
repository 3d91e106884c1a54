/// Random values that a home issues to its followers. A request must have one of them, so that a recorded request is of
/// no use minutes later. Unlike timestamps, challenges need no clock of another machine.
struct RequestChallenges {
    private struct Issued {
        let value = (0..<2).map { _ in String(UInt64.random(in: .min ... .max), radix: 16) }.joined(separator: "-")
        let since: ContinuousClock.Instant
        /// The nonces of the requests that used it.
        var nonces: Set<String> = []
    }

    private var current: Issued
    private var former: Issued?

    /// The time for which a value is issued. It is accepted for twice as long.
    static let life = Duration.seconds(300)
    private static let maxNonces = 10_000

    init(at now: ContinuousClock.Instant) { current = Issued(since: now) }

    /// Returns the value for a follower that has none.
    mutating func issue(at now: ContinuousClock.Instant) -> String {
        renew(at: now)
        return current.value
    }

    /// Returns true for a request with one of the last values, and with a nonce that no other one had.
    mutating func accepts(_ values: [String], nonce: String, at now: ContinuousClock.Instant) -> Bool {
        renew(at: now)
        if values.contains(current.value) { return current.nonces.insert(nonce).inserted }
        guard let former, former.since.duration(to: now) < Self.life * 2, values.contains(former.value) else {
            return false
        }
        return self.former?.nonces.insert(nonce).inserted ?? false
    }

    private mutating func renew(at now: ContinuousClock.Instant) {
        let age = current.since.duration(to: now)
        let isFull = current.nonces.count + (former?.nonces.count ?? 0) >= Self.maxNonces
        guard age >= Self.life || isFull else { return }
        former = age >= Self.life * 2 || isFull ? nil : current
        current = Issued(since: now)
    }
}
