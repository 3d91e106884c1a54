import CLinux
import Glibc

/// Waits for many descriptors on one thread, through epoll(7). All calls but `wake()` and
/// `watch(_:token:readable:writable:)` belong to the loop's own thread.
///
/// Hand-written because Dispatch calls back on threads of its own choice, and SwiftNIO would replace four system calls
/// by a dozen modules and its own threads and buffers.
package final class EventLoop: Sendable {
    package struct Readiness: Sendable {
        /// The token that the descriptor was registered with.
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

    /// Reports changes of a descriptor's content as `isClosed`. Files of proc(5) that support poll(2) report changes in
    /// this way.
    package func add(changesOf raw: CInt, token: UInt64) throws(SystemError) {
        try register(gs_epoll_add, raw, events: gs_epoll_priority, token: token)
    }

    /// Selects the readiness that `wait` reports for `raw`: bytes or the peer's end of file to read, and room to write.
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

    /// Makes the current or next `wait` return. May be called on any thread.
    package func wake() {
        var one: UInt64 = 1
        _ = write(waker.raw, &one, 8)
    }

    /// Waits until a descriptor is ready, `wake()` is called, or `timeout` has passed (nil: no timeout).
    package func wait(timeout: Duration?) throws(SystemError) -> [Readiness] {
        var found = [gs_epoll_event](repeating: gs_epoll_event(), count: 64)
        let deadline = timeout.map(Deadline.init(after:)) ?? .none
        let raw = epoll.raw
        let count = try retrying("epoll_wait") {
            let left = deadline.remaining.map { CInt(clamping: ($0.nanoseconds + 999_999) / 1_000_000) } ?? -1
            return gs_epoll_wait(raw, &found, 64, left)
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

/// Signals delivered as bytes to read. They are blocked in every thread created afterwards and handled one by one in
/// the loop.
package struct SignalSource: ~Copyable, Sendable {
    private let descriptor: Descriptor
    package var raw: CInt { descriptor.raw }

    /// Blocks the signals. Call it before any other thread is created, because a thread inherits its creator's mask.
    package init(_ signals: [CInt]) throws(SystemError) {
        descriptor = Descriptor(
            owning: try retrying("signalfd") { gs_signalfd(signals, CInt(signals.count)) })
    }

    /// Returns the next pending signal, or nil if there is none.
    package func next() -> CInt? {
        let signal = gs_signalfd_read(descriptor.raw)
        return signal > 0 ? signal : nil
    }
}
