import Glibc

/// Lets the readers of a line run before the thread that wrote it does its other work.
///
/// The kernel often places a program that a line has woken on the writing thread's processor, where it would wait for
/// that work. A processor with a third program to run is kept from the thread for a whole time slice, though: then the
/// thread doesn't yield for a while.
struct ReaderYield {
    /// Until then, it doesn't yield.
    private var pausedUntil: ContinuousClock.Instant?
    /// A reader takes less time than this for a line.
    private static let limit = Duration.microseconds(300)
    private static let pause = Duration.seconds(1)

    /// Yields the processor once, unless it is paused.
    mutating func yield() {
        let began = ContinuousClock.now
        guard isDue(at: began) else { return }
        sched_yield()
        record(from: began, to: .now)
    }

    func isDue(at time: ContinuousClock.Instant) -> Bool { pausedUntil.map { $0 <= time } ?? true }

    /// Records when the thread yielded and when it had the processor again.
    mutating func record(from began: ContinuousClock.Instant, to ended: ContinuousClock.Instant) {
        pausedUntil = began.duration(to: ended) > Self.limit ? ended.advanced(by: Self.pause) : nil
    }
}
