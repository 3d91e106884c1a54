import CLinux
import Glibc

/// A counting semaphore whose limits are measured by the monotonic clock.
///
/// Dispatch's measures them by the clock of the day on Linux (`_dispatch_sema4_timedwait` in libdispatch's lock.c): if
/// that is set back by an hour during a wait of a second, the wait lasts an hour.
package final class MonotonicSemaphore: Sendable {
    /// The C library lets any thread use it.
    private nonisolated(unsafe) let raw: UnsafeMutablePointer<sem_t>

    package init() {
        raw = .allocate(capacity: 1)
        sem_init(raw, 0, 0)
    }

    deinit {
        sem_destroy(raw)
        raw.deallocate()
    }

    /// Lets one wait end, the present one or the next.
    package func signal() { sem_post(raw) }

    /// Waits for a signal.
    package func wait() {
        while sem_wait(raw) != 0, errno == EINTR {}
    }

    /// Waits for a signal, at most that long. Returns false if none came.
    @discardableResult
    package func wait(within limit: Duration) -> Bool {
        guard limit > .zero else { return sem_trywait(raw) == 0 }
        return gs_semaphore_wait(raw, min(limit, .longestWait).nanoseconds) == 1
    }
}
