import LinuxSystem

/// The wait between taking a store's old name away and proving once more that nobody has it open: whoever had looked
/// the name up before is then through with opening it.
///
/// From looking the name up to the lease's being in its way an opener runs through one system call, microseconds long.
/// Only a thread that is ready to run and gets no processor takes longer. So the wait is short while this thread itself
/// gets a processor in time, and goes on, within its bound, while it doesn't.
package struct OpenerGracePeriod: Sendable {
    /// That long this thread must have been woken in time, without a break.
    package var quiet: Duration
    package var longest: Duration

    /// Trials with eight openers in a loop lost nothing from 5 ms on.
    package static let standard = OpenerGracePeriod(quiet: .milliseconds(10), longest: .milliseconds(100))

    private static let step = Duration.milliseconds(1)
    /// What the kernel's timers may be late by, and more.
    private static let tolerance = Duration.microseconds(500)

    package init(quiet: Duration, longest: Duration) {
        self.quiet = quiet
        self.longest = longest
    }

    func perform() {
        let start = ContinuousClock.now
        var quietSince = start
        var now = start
        while quietSince.duration(to: now) < quiet, start.duration(to: now) < longest {
            pause(Self.step)
            let woken = ContinuousClock.now
            if now.duration(to: woken) > Self.step + Self.tolerance { quietSince = woken }
            now = woken
        }
    }
}
