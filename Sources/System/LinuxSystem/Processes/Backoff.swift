/// The delays between attempts: the first one, then twice the previous one each time, up to the longest.
package struct Backoff: Sendable {
    /// The next delay, without randomization.
    package private(set) var delay: Duration
    private let first: Duration
    private let longest: Duration
    private let isRandomized: Bool

    /// Creates the delays.
    ///
    /// - Parameter isRandomized: True for delays of between half and all of that length, so that two processes that
    ///   wait for each other don't try in step.
    package init(first: Duration, longest: Duration, isRandomized: Bool = false) {
        self.first = first
        self.longest = longest
        self.isRandomized = isRandomized
        delay = first
    }

    /// Returns the delay before the next attempt, and doubles the one after it.
    package mutating func next() -> Duration {
        defer { delay = min(delay * 2, longest) }
        guard isRandomized else { return delay }
        let nanoseconds = delay.nanoseconds
        return .nanoseconds(Int64.random(in: nanoseconds / 2...nanoseconds))
    }

    /// Shortens the next delay, if it is longer than this.
    package mutating func shorten(to shorter: Duration) { delay = min(delay, shorter) }

    /// Starts over with the first delay: the reason for the delays is gone.
    package mutating func reset() { delay = first }
}
