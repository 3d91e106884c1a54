import Dispatch

/// Exclusive use of a per-process resource, such as libinotifytools. One test at a time holds it, in any suite, and
/// releases it with the last reference. Such a test must not suspend meanwhile.
package final class Turn: Sendable {
    private static let inotify = DispatchSemaphore(value: 1)

    package init() { Self.inotify.wait() }

    deinit { Self.inotify.signal() }
}
