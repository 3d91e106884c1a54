import Glibc
import LinuxSystem
import SystemPackage

/// An inotify instance: watches, and the queue of their events. All methods but `wake()` belong to one thread.
///
/// The kernel assigns a removed watch's number again only after 2^31 others. Events that a watch left in the queue are
/// therefore never taken for those of a newer one.
package protocol InotifyInstance: AnyObject {
    /// Watches the file that the descriptor refers to, even a symbolic link, for exactly the events of `mask`. Returns
    /// the existing watch's number if there is one.
    func watch(_ file: borrowing Descriptor, mask: UInt32, path: FilePath) throws(SystemError) -> CInt
    /// Removes a watch. Does nothing if the kernel has ended it. Its events so far stay in the queue, and IN_IGNORED
    /// follows them.
    func remove(_ watch: CInt)
    /// Returns the next event, and waits for it at most `timeout` (nil: no timeout). Returns nil if there is none.
    ///
    /// If `fastPath` returns an index for the event's watch, mask and name, that index is returned instead. An instance
    /// calls `onReadable` when an event has ended its wait, before it reads the event; one that can't know it doesn't.
    func next(
        timeout: Duration?, onReadable: (() -> Void)?, fastPath: InotifyFastPath?
    ) throws(SystemError) -> QueuedEvent?
    /// Makes `next` return `woken`. May be called on any thread.
    func wake()
}

/// Maps an event's watch, mask and name, in place, to an index, or to nil.
package typealias InotifyFastPath = (CInt, UInt32, UnsafeRawBufferPointer) -> Int?

/// A result of `InotifyInstance.next`.
package enum QueuedEvent: Equatable {
    case event(InotifyEvent)
    /// The index that the fast path returned for the event.
    case fastPath(Int)
    /// `wake()` was called.
    case woken

    /// Makes a result of one event. The kernel pads its name with NULs.
    package init(watch: CInt, mask: UInt32, paddedName: UnsafeRawBufferPointer, fastPath: InotifyFastPath?) {
        let length = paddedName.baseAddress.map {
            strnlen($0.assumingMemoryBound(to: CChar.self), paddedName.count)
        }
        let name = UnsafeRawBufferPointer(rebasing: paddedName.prefix(length ?? 0))
        if let index = fastPath?(watch, mask, name) {
            self = .fastPath(index)
        } else {
            self = .event(InotifyEvent(watch: watch, mask: mask, name: Array(name)))
        }
    }
}

/// An event of inotify(7).
package struct InotifyEvent: Equatable {
    package let watch: CInt
    package let mask: UInt32
    /// The name, empty for an event of the watched file itself.
    package let name: [UInt8]
}

extension InotifyInstance {
    /// Adds a watch, or changes the existing one, in the instance with the descriptor `raw`.
    package func addWatch(
        _ file: borrowing Descriptor, mask: UInt32, path: FilePath, to raw: CInt
    ) throws(SystemError) -> CInt {
        let watch = inotify_add_watch(raw, "/proc/thread-self/fd/\(file.raw)", mask)
        guard watch > 0 else {
            let error = SystemError.last("inotify_add_watch", path: path)
            guard error.errno == .noSuchFileOrDirectory, !ProcFileSystem.isMounted else { throw error }
            throw SystemError("inotify_add_watch", error.errno, path: "/proc/thread-self/fd")
        }
        return watch
    }

    /// Changes the events of a watch to `mask`. Does nothing if the watch is no longer the directory's, because the
    /// kernel has ended it then.
    func change(
        _ watch: CInt, of directory: borrowing Descriptor, mask: UInt32, path: FilePath
    ) throws(SystemError) {
        let found = try self.watch(directory, mask: mask, path: path)
        if found != watch { remove(found) }
    }
}
