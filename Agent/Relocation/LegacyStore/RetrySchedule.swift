/// When to look again at a store that somebody is using, or whose relocation failed, though no event may tell that it
/// could be done now.
struct RetrySchedule {
    typealias Instant = ContinuousClock.Instant

    private static let first = Duration.milliseconds(1)

    // MARK: Others have it open

    /// A program's close is told before it counts: those who have just closed are looked for again, soon and seldomer.
    private var looksAt: Instant?
    private var look = first
    private static let longestLook = Duration.milliseconds(256)

    /// Others than its presenters seem to have it open. Nothing more once that has been asked long enough: the next
    /// close's event begins anew.
    mutating func sawStrangers() {
        looksAt = look <= Self.longestLook ? .now.advanced(by: look) : nil
        look *= 2
    }

    mutating func beginLooking() {
        looksAt = nil
        look = Self.first
    }

    mutating func look(notAfter instant: Instant) { looksAt = looksAt.map { min($0, instant) } ?? instant }

    // MARK: Somebody else's claim or relocation is in the way, or the group's store is open

    /// What was there then: the attempt's own looks at it are no news.
    private(set) var contended: OutcomeSignature?
    private var contention = first
    /// No event tells when a claim ends.
    private static let forClaim = first...Duration.seconds(2)
    /// One tells when a file is closed; to look at all processes costs some milliseconds.
    private static let forClose = Duration.milliseconds(100)...Duration.seconds(30)

    mutating func contend(_ signature: OutcomeSignature, untilClosed: Bool) {
        let range = untilClosed ? Self.forClose : Self.forClaim
        let delay = min(max(contention, range.lowerBound), range.upperBound)
        contended = signature
        looksAt = .now.advanced(by: delay)
        contention = delay * 2
    }

    mutating func endContention() {
        contended = nil
        contention = Self.first
    }

    // MARK: Presenters were asked in vain

    private var asksAt: Instant?
    private var patience = Backoff()

    /// Each time they are left alone for twice as long: asking costs them a pause.
    mutating func askedInVain() { asksAt = patience.next() }

    mutating func askAnew() {
        asksAt = nil
        patience = Backoff()
    }

    /// Whether its presenters may be asked to let go now.
    var mayAsk: Bool { asksAt.map { $0 <= .now } ?? true }

    // MARK: A relocation failed

    /// A full disk, an error of the disk, a missing right: no event tells when it is over.
    private(set) var retriesAt: Instant?
    private var retries = Backoff()

    mutating func failed(passing: Bool) { retriesAt = passing ? retries.next() : nil }

    mutating func retryOnce() { retriesAt = retriesAt ?? retries.next() }

    mutating func retry(at instant: Instant?) { retriesAt = instant }

    mutating func succeeded() {
        retriesAt = nil
        retries = Backoff()
    }

    // MARK: All of them

    /// Another store is there now, or none.
    mutating func beginAnew() {
        endContention()
        beginLooking()
        asksAt = nil
        retriesAt = nil
    }

    /// When to look at it while it is in use.
    var dueAt: Instant? { [asksAt, looksAt].compactMap { $0 }.min() }

    /// Whether that is now; what is due is taken.
    mutating func takeDue() -> Bool {
        let now = Instant.now
        guard let dueAt, dueAt <= now else { return false }
        if let looksAt, looksAt <= now { self.looksAt = nil }
        if let asksAt, asksAt <= now { self.asksAt = nil }
        return true
    }
}
