import LinuxSystem

/// The times of the next checks of a store that is in use, or whose relocation failed, since no event may report that
/// it became possible.
struct RetrySchedule {
    typealias Instant = ContinuousClock.Instant

    // MARK: Open in other processes

    /// IN_CLOSE precedes the actual close: checked again after 1 ms, backing off to 256 ms.
    private var checkAt: Instant?
    private var checkBackoff = Backoff(first: .milliseconds(1), longest: .milliseconds(512))
    private static let longestCheckDelay = Duration.milliseconds(256)

    /// Schedules a check, because processes other than the presenters seem to have the store open. Stops after the
    /// longest delay; the next close event starts over.
    mutating func recordForeignHolders() {
        let delay = checkBackoff.next()
        checkAt = delay <= Self.longestCheckDelay ? .now.advanced(by: delay) : nil
    }

    private var isRechecked = false
    /// Longer than a close takes even on a busy machine.
    private static let recheckDelay = Duration.milliseconds(100)

    /// Schedules one more check: the event came, and a slow close may have outlasted the check.
    mutating func recheckOnce() {
        if !isRechecked { check(notAfter: .now.advanced(by: Self.recheckDelay)) }
        isRechecked = true
    }

    /// Doubles from 0.2 s to 26 s: together less than a minute.
    private var unseenBackoff = Backoff(first: .milliseconds(200), longest: .seconds(52))
    private static let longestUnseenDelay = Duration.seconds(30)

    /// Schedules a check of a store that somebody has open, but no process that can be seen: its close may be under way
    /// since the event. Stops after a minute, since the holder may be another user's.
    mutating func recheckUnseenHolder() {
        let delay = unseenBackoff.next()
        if delay <= Self.longestUnseenDelay { check(notAfter: .now.advanced(by: delay)) }
    }

    mutating func resetChecks() {
        isRechecked = false
        unseenBackoff.reset()
        checkAt = nil
        checkBackoff.reset()
    }

    mutating func check(notAfter instant: Instant) { checkAt = checkAt.map { min($0, instant) } ?? instant }

    // MARK: Contention: a claim or relocation of another process, or an open group store

    /// The files at that time: the attempt's own accesses don't count as changes.
    private(set) var contended: OutcomeSignature?
    /// No event reports the end of a claim.
    private var claimBackoff = Backoff(first: .milliseconds(1), longest: .seconds(2))
    /// An event reports a close, and a scan of all processes costs some milliseconds.
    private var closeBackoff = Backoff(first: .milliseconds(100), longest: .seconds(30))

    mutating func contend(_ signature: OutcomeSignature, untilClosed: Bool) {
        contended = signature
        checkAt = .now.advanced(by: untilClosed ? closeBackoff.next() : claimBackoff.next())
    }

    mutating func endContention() {
        contended = nil
        claimBackoff.reset()
        closeBackoff.reset()
    }

    // MARK: Presenters that did not release it

    private var askAt: Instant?
    private var askBackoff = Backoff(first: .seconds(1), longest: .seconds(300))
    private var changeBackoff = Backoff(first: .milliseconds(10), longest: .seconds(300))

    /// Doubles the time until presenters are asked again, since asking costs them a pause.
    mutating func recordPresenterRefusal() { askAt = .now.advanced(by: askBackoff.next()) }

    /// Schedules the next question earlier, since some presenters have gone or registered again. The delay doubles each
    /// time, until other presenters come.
    mutating func askAfterChange() {
        let instant = Instant.now.advanced(by: changeBackoff.next())
        askAt = askAt.map { min($0, instant) }
    }

    mutating func resetAsking() {
        askAt = nil
        askBackoff.reset()
        changeBackoff.reset()
    }

    /// True if its presenters may be asked to release it now.
    var mayAsk: Bool { askAt.map { $0 <= .now } ?? true }

    // MARK: Failed relocations

    /// The time to retry after a full disk, a disk error or a missing permission: no event reports its end.
    private(set) var retryAt: Instant?
    private var retryBackoff = Backoff(first: .seconds(1), longest: .seconds(300))
    /// True if the reason for the failure may go away although the files stay as they are.
    private(set) var isTransient = false

    mutating func failed(isTransient: Bool) {
        self.isTransient = isTransient
        postponeRetry()
    }

    mutating func postponeRetry() { retryAt = .now.advanced(by: retryBackoff.next()) }

    /// Has the failure retried although the files are as it left them.
    mutating func retryOnce() {
        isTransient = true
        if retryAt == nil { postponeRetry() }
    }

    mutating func retry(at instant: Instant?) { retryAt = instant }

    mutating func succeeded() {
        retryAt = nil
        retryBackoff.reset()
    }

    // MARK: All reasons

    /// Starts over: another store is there now, or none.
    mutating func reset() {
        endContention()
        resetChecks()
        askAt = nil
        retryAt = nil
        retryBackoff.reset()
    }

    /// The time of the next check while the store is in use.
    var dueAt: Instant? { [askAt, checkAt].compactMap { $0 }.min() }

    /// Returns true if a check is due, and clears the due times.
    mutating func consumeDue(at now: Instant = .now) -> Bool {
        guard let dueAt, dueAt <= now else { return false }
        if let checkAt, checkAt <= now { self.checkAt = nil }
        if let askAt, askAt <= now { self.askAt = nil }
        return true
    }
}
