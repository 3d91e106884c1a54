import CLinux
import Glibc

/// One thread's wait on many descriptors, by epoll(7). All calls but `wake` and `watch(writable:)` are the
/// loop's own thread's.
package final class EventLoop: Sendable {
    package struct Readiness: Sendable {
        /// What the descriptor was registered under.
        package let token: UInt64
        package let isReadable: Bool
        package let isWritable: Bool
        package let isClosed: Bool
    }

    private let epoll: Descriptor
    private let waker: Descriptor
    private static let wakeToken = UInt64.max

    package init() throws(SystemError) {
        epoll = Descriptor(owning: try retrying("epoll_create") { gs_epoll_create() })
        waker = Descriptor(owning: try retrying("eventfd") { gs_eventfd() })
        try register(gs_epoll_add, waker.raw, events: gs_epoll_in, token: Self.wakeToken)
    }

    private func register(_ operation: CInt, _ raw: CInt, events: UInt32, token: UInt64) throws(SystemError) {
        let loop = epoll.raw
        try retrying("epoll_ctl") { gs_epoll_set(loop, operation, raw, events, token) }
    }

    package func add(_ raw: CInt, token: UInt64) throws(SystemError) {
        try register(gs_epoll_add, raw, events: gs_epoll_in, token: token)
    }

    /// Tells of a change of what the descriptor shows, as the files of proc(5) do that can be polled: it comes as `isClosed`.
    package func add(changesOf raw: CInt, token: UInt64) throws(SystemError) {
        try register(gs_epoll_add, raw, events: gs_epoll_priority, token: token)
    }

    /// Which of the two `wait` tells of: that `raw` has bytes (or its peer's end of file), that it takes bytes again.
    /// May be called on any thread.
    package func watch(
        _ raw: CInt, token: UInt64, readable: Bool = true, writable: Bool
    ) throws(SystemError) {
        let events = (readable ? gs_epoll_in : 0) | (writable ? gs_epoll_out : 0)
        try register(gs_epoll_modify, raw, events: events, token: token)
    }

    package func remove(_ raw: CInt) throws(SystemError) {
        try register(gs_epoll_delete, raw, events: 0, token: 0)
    }

    /// Makes a `wait` under way, or the next one, return. May be called on any thread.
    package func wake() {
        var one: UInt64 = 1
        _ = write(waker.raw, &one, 8)
    }

    /// Waits until a descriptor is ready, somebody called `wake`, or `timeout` is over (nil: for ever).
    package func wait(timeout: Duration?) throws(SystemError) -> [Readiness] {
        var found = [gs_epoll_event](repeating: gs_epoll_event(), count: 64)
        let milliseconds = timeout.map { CInt(clamping: ($0.nanoseconds + 999_999) / 1_000_000) } ?? -1
        let count = gs_epoll_wait(epoll.raw, &found, 64, milliseconds)
        guard count >= 0 else {
            if errno == EINTR { return [] }
            throw .last("epoll_wait")
        }
        return found.prefix(Int(count)).compactMap { event in
            if event.token == Self.wakeToken {
                var counter: UInt64 = 0
                _ = read(waker.raw, &counter, 8)
                return nil
            }
            return Readiness(
                token: event.token, isReadable: event.events & gs_epoll_in != 0,
                isWritable: event.events & gs_epoll_out != 0, isClosed: event.events & gs_epoll_hangup != 0)
        }
    }
}

/// Signals as bytes to read: blocked in every thread made afterwards, and taken one by one in the loop's turn.
package struct SignalSource: ~Copyable, Sendable {
    private let descriptor: Descriptor
    package var raw: CInt { descriptor.raw }

    /// Call it before any other thread is made: a thread keeps the mask that its maker had.
    package init(_ signals: [CInt]) throws(SystemError) {
        descriptor = Descriptor(
            owning: try retrying("signalfd") { gs_signalfd(signals, CInt(signals.count)) })
    }

    /// Nil when none waits.
    package func next() -> CInt? {
        let signal = gs_signalfd_read(descriptor.raw)
        return signal > 0 ? signal : nil
    }
}
