import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// An inotify instance used through the system calls of inotify(7). A process may have any number of them, on any
/// descriptors.
package final class SystemInotify: InotifyInstance {
    private let instance: Descriptor
    /// The waker, if it is this instance's own.
    private let ownWaker: Descriptor?
    private let waker: CInt
    private let buffer: UnsafeMutableRawBufferPointer
    /// The part of the buffer with events that `next` has not returned yet.
    private var unread = 0..<0

    /// Holds at least 240 events, because a name has at most 255 bytes.
    private static let capacity = 1 << 16

    /// - Parameter waker: An eventfd that wakes it, which stays open for as long as the instance exists; nil for one of
    ///   its own.
    /// - Throws: EMFILE if the user has no inotify instance left, or this process no descriptor.
    package init(waker: CInt? = nil) throws(SystemError) {
        instance = Descriptor(owning: try retrying("inotify_init") { inotify_init1(O_NONBLOCK | O_CLOEXEC) })
        if let waker {
            ownWaker = nil
            self.waker = waker
        } else {
            let own = Descriptor(owning: try retrying("eventfd") { gs_eventfd() })
            self.waker = own.raw
            ownWaker = consume own
        }
        buffer = .allocate(byteCount: Self.capacity, alignment: MemoryLayout<inotify_event>.alignment)
    }

    deinit { buffer.deallocate() }

    package func watch(_ file: borrowing Descriptor, mask: UInt32, path: FilePath) throws(SystemError) -> CInt {
        try addWatch(file, mask: mask, path: path, to: instance.raw)
    }

    package func remove(_ watch: CInt) { inotify_rm_watch(instance.raw, watch) }

    package func wake() {
        var one: UInt64 = 1
        _ = write(waker, &one, 8)
    }

    /// Waits until `next` has something to return. Returns false once `wake` was called. Another thread than that of
    /// the other methods may call it.
    package func wait() throws(SystemError) -> Bool { try !readable(nil).contains(.waker) }

    package func next(
        timeout: Duration?, onReadable: (() -> Void)?, fastPath: InotifyFastPath?
    ) throws(SystemError) -> QueuedEvent? {
        if unread.isEmpty {
            let ready = try readable(timeout)
            if ready.contains(.waker) {
                var counter: UInt64 = 0
                _ = read(waker, &counter, 8)
                return .woken
            }
            guard ready.contains(.instance) else { return nil }
            onReadable?()
            try fill()
        }
        return try unread.isEmpty ? nil : takeEvent(fastPath)
    }

    /// Drops the events that are queued, without a look at them. It may leave some that come meanwhile.
    package func discard() throws(SystemError) {
        // The queue holds 16,384 events by default (inotify(7)).
        for _ in 0..<64 {
            unread = 0..<0
            try fill()
            if unread.isEmpty { return }
        }
        unread = 0..<0
    }

    private struct Readable: OptionSet {
        let rawValue: CInt
        static let instance = Readable(rawValue: 1)
        static let waker = Readable(rawValue: 2)
    }

    /// Waits until the instance or the waker can be read. Returns neither after the timeout.
    private func readable(_ timeout: Duration?) throws(SystemError) -> Readable {
        let deadline = timeout.map(Deadline.init(after:)) ?? .none
        let ready = try retrying("poll") {
            gs_wait_readable(instance.raw, waker, deadline.remaining?.nanoseconds ?? -1)
        }
        return Readable(rawValue: ready)
    }

    /// Reads as many events as are queued and fit. The kernel returns whole events only.
    private func fill() throws(SystemError) {
        do throws(SystemError) {
            unread = 0..<(try retrying("inotify read") { read(instance.raw, buffer.baseAddress, buffer.count) })
        } catch {
            guard error.errno == .resourceTemporarilyUnavailable else { throw error }
        }
    }

    private func takeEvent(_ fastPath: InotifyFastPath?) throws(SystemError) -> QueuedEvent {
        let nameOffset = unread.lowerBound + MemoryLayout<inotify_event>.size
        guard nameOffset <= unread.upperBound else { throw SystemError("inotify read", .ioError) }
        let event = buffer.loadUnaligned(fromByteOffset: unread.lowerBound, as: inotify_event.self)
        let end = nameOffset + Int(event.len)
        guard end <= unread.upperBound else { throw SystemError("inotify read", .ioError) }
        unread = end..<unread.upperBound
        return QueuedEvent(
            watch: event.wd, mask: event.mask, paddedName: UnsafeRawBufferPointer(rebasing: buffer[nameOffset..<end]),
            fastPath: fastPath)
    }
}
