import Glibc

/// The processor time that a thread has used.
package enum ThreadTime {
    /// The processor time of the calling thread since it began (CLOCK_THREAD_CPUTIME_ID of clock_gettime(2)).
    package static var now: Duration {
        var time = timespec()
        guard clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0 else { return .zero }
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }
}
