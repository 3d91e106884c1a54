import CInotifyTools
import CLinux
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage

/// An owning wrapper of libinotifytools. The library has one inotify instance and one static buffer per process, so
/// only one wrapper exists at a time, and one thread uses it.
///
/// It works around these traps. The library knows a watch only by its path and keeps a dead one's path for ever, so
/// each watch gets a name that was never used before. A request for several events spins, so it asks for one at a time.
/// The library counts time in seconds. Child processes inherit its descriptor unless that is changed. It waits with
/// select(2), which crashes a process whose descriptor is 1024 or more.
final class InotifyTools {
    private static let isInUse = Mutex(false)
    private var generation: UInt64 = 0
    /// False if initialization failed. Such an object must not release the library that another one owns.
    private var isReady = false
    /// The library's descriptor, or nil if it could not be determined.
    private var raw: CInt?

    /// An inotify event.
    struct Event: Equatable {
        let watch: CInt
        let mask: UInt32
        /// The name, empty for an event of the watched file itself.
        let name: [UInt8]
    }

    /// Initializes the library. Throws EBUSY while another wrapper exists, and EMFILE if the user has no inotify
    /// instance left or this process has too many files open for the library.
    init() throws(SystemError) {
        let isFree = Self.isInUse.withLock { isInUse in
            defer { isInUse = true }
            return !isInUse
        }
        guard isFree else { throw SystemError("inotify_init", .resourceBusy) }
        let others = Self.instances()
        guard inotifytools_initialize() != 0 else {
            let code = inotifytools_error()
            Self.isInUse.withLock { $0 = false }
            throw SystemError("inotify_init", Errno(rawValue: code))
        }
        raw = Self.instances().subtracting(others).max()
        if let raw { _ = fcntl(raw, F_SETFD, FD_CLOEXEC) }
        guard raw.map({ $0 < CInt(FD_SETSIZE) }) ?? true else {
            inotifytools_cleanup()
            Self.isInUse.withLock { $0 = false }
            throw SystemError("inotify_init", .tooManyOpenFiles)
        }
        isReady = true
    }

    deinit {
        guard isReady else { return }
        // Events left in the static buffer would be the next instance's first ones.
        while inotifytools_next_events(0, 1) != nil {}
        inotifytools_cleanup()
        Self.isInUse.withLock { $0 = false }
    }

    /// Returns the inotify instances that this process has open. One may be inherited from the parent process.
    private static func instances() -> Set<CInt> {
        guard let directory = try? Directory("/proc/self/fd"), let names = try? directory.names() else { return [] }
        var found: Set<CInt> = []
        for name in names {
            var target = [CChar](repeating: 0, count: 32)
            let length = name.withPlatformString { name in
                readlinkat(directory.raw, name, &target, target.count)
            }
            guard length > 0, target.starts(with: "anon_inode:inotify".utf8.map(CChar.init)),
                let raw = CInt(name.string)
            else { continue }
            found.insert(raw)
        }
        return found
    }

    /// Returns a path suffix that was never given to the library before. "/" and "/." don't change where a path leads,
    /// and spell a number.
    private func uniqueSuffix() -> String {
        generation += 1
        return String(generation, radix: 2).map { $0 == "0" ? "/" : "/." }.joined()
    }

    /// Watches an open file that is not a directory. Returns the watch's id, which is the existing one if the file is
    /// watched already.
    func watch(opened file: borrowing Descriptor, mask: UInt32, path: FilePath) throws(SystemError) -> CInt {
        try add("/proc/self\(uniqueSuffix())/fd/\(file.raw)", mask: mask, storedAs: "", path: path)
    }

    /// Watches a file by its path, which must never have been watched before.
    func watch(file path: FilePath, mask: UInt32) throws(SystemError) -> CInt {
        try add(path.string, mask: mask, storedAs: "", path: path)
    }

    private func add(
        _ name: String, mask: UInt32, storedAs suffix: String, path: FilePath
    ) throws(SystemError) -> CInt {
        guard inotifytools_watch_file(name, CInt(bitPattern: mask)) != 0 else {
            throw SystemError("inotify_add_watch", Errno(rawValue: inotifytools_error()), path: path)
        }
        let watch = inotifytools_wd_from_filename(name + suffix)
        guard watch > 0 else { throw SystemError("inotify_add_watch", .noSuchFileOrDirectory, path: path) }
        return watch
    }

    // MARK: Without the library, which keeps every name it is given

    /// Changes the events of a watch to `mask`. Does nothing if the watch is no longer the directory's, because the
    /// kernel has ended it then.
    func change(
        _ watch: CInt, of directory: borrowing Descriptor, mask: UInt32, path: FilePath
    ) throws(SystemError) {
        let found = try self.watchDirectly(directory, mask: mask, path: path)
        if found != watch { removeDirectly(found) }
    }

    /// Watches the file that the descriptor refers to, even a symbolic link, for exactly the events of `mask`, until
    /// `removeDirectly(_:)`. Returns the existing watch id if there is one.
    func watchDirectly(_ file: borrowing Descriptor, mask: UInt32, path: FilePath) throws(SystemError) -> CInt {
        guard let raw else { throw SystemError("inotify_add_watch", .badFileDescriptor, path: path) }
        let watch = inotify_add_watch(raw, "/proc/self/fd/\(file.raw)", mask)
        guard watch > 0 else { throw SystemError("inotify_add_watch", Errno(rawValue: errno), path: path) }
        return watch
    }

    func removeDirectly(_ watch: CInt) {
        if let raw { inotify_rm_watch(raw, watch) }
    }

    // MARK: Events

    /// Removes a live watch. Never call it for a watch that the kernel has ended (IN_IGNORED).
    func remove(_ watch: CInt) { inotifytools_remove_watch_by_wd(watch) }

    /// Waits for an event after `next` returned none, for at most `limit` and possibly less.
    func wait(_ limit: Duration) {
        let milliseconds = limit.nanoseconds / 1_000_000
        // poll(2) can't wait less than a millisecond.
        guard let raw, milliseconds > 1 else { return pause(min(limit, .milliseconds(1))) }
        var request = pollfd(fd: raw, events: Int16(POLLIN), revents: 0)
        _ = poll(&request, 1, CInt(clamping: milliseconds))
    }

    /// The result of reading one event.
    enum NextEvent {
        case event(Event)
        /// The index that `fastPath` returned for the event.
        case fastPath(Int)
    }

    /// Returns the next event, or nil if there is none. If `waits`, it waits for one.
    func next(waits: Bool) throws(SystemError) -> Event? {
        guard case .event(let event)? = try next(waits: waits, fastPath: { _, _, _ in nil }) else { return nil }
        return event
    }

    /// Reads the next event like `next(waits:)`. `fastPath` first sees the event's watch, mask and name in place.
    func next(
        waits: Bool, fastPath: (CInt, UInt32, UnsafeRawBufferPointer) -> Int?
    ) throws(SystemError) -> NextEvent? {
        guard let event = inotifytools_next_events(waits ? -1 : 0, 1) else {
            let code = inotifytools_error()
            if code == 0 || code == EINTR { return nil }
            throw SystemError("inotify read", Errno(rawValue: code))
        }
        // The kernel pads the name with NULs.
        let start = UnsafeRawPointer(event).advanced(by: MemoryLayout<inotify_event>.size)
        let length = strnlen(start.assumingMemoryBound(to: CChar.self), Int(event.pointee.len))
        let name = UnsafeRawBufferPointer(start: start, count: length)
        if let index = fastPath(event.pointee.wd, event.pointee.mask, name) { return .fastPath(index) }
        return .event(Event(watch: event.pointee.wd, mask: event.pointee.mask, name: Array(name)))
    }
}
