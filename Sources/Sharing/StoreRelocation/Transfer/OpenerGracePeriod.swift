import LinuxSystem

/// The wait between withdrawing a store's old name and proving again that it is closed. A program that had looked the
/// name up before has finished opening the store by then.
///
/// From the lookup to the moment when its descriptor blocks a lease, an opener runs through one system call, which
/// takes microseconds. Only a runnable thread that gets no processor takes longer. So the wait is short while this
/// thread itself gets a processor in time, and goes on, up to its limit, while it doesn't.
package struct OpenerGracePeriod: Sendable {
    /// The time for which this thread must wake on schedule without interruption.
    package var quiet: Duration
    package var maximum: Duration

    /// In trials with eight openers in a loop, 5 ms and more lost nothing.
    package static let standard = OpenerGracePeriod(quiet: .milliseconds(10), maximum: .milliseconds(100))

    private static let step = Duration.milliseconds(1)
    /// More than the latency of the kernel's timers.
    private static let tolerance = Duration.microseconds(500)

    package init(quiet: Duration, maximum: Duration) {
        self.quiet = quiet
        self.maximum = maximum
    }

    package func wait() {
        let start = ContinuousClock.now
        var quietSince = start
        var now = start
        while quietSince.duration(to: now) < quiet, start.duration(to: now) < maximum {
            pause(Self.step)
            let woken = ContinuousClock.now
            if now.duration(to: woken) > Self.step + Self.tolerance { quietSince = woken }
            now = woken
        }
    }
}
