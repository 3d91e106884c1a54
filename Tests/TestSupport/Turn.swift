import Dispatch

/// The right to use what a process has only one of, libinotifytools for instance: had by one test at a time, whatever
/// suite it is in, and given back with the last reference. The tests that take turns must not suspend meanwhile.
package final class Turn: Sendable {
    private static let inotify = DispatchSemaphore(value: 1)

    package init() { Self.inotify.wait() }

    deinit { Self.inotify.signal() }
}
