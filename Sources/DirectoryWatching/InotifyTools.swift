import CInotifyTools
import CLinux
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage

/// libinotifytools behind owned values. The library has one inotify instance and one static buffer a process, so
/// there is one of these at a time, and one thread uses it.
///
/// Its traps, and what is done about them here: it knows a watch by its path only, and keeps a dead one's path for
/// ever, so each watch gets a name that was never used before; a request for several events spins, so one is asked
/// for at a time; it counts time in seconds; its descriptor is inherited by child processes unless that is changed; it waits
/// with select(2), which ends a process whose descriptor is 1024 or more.
final class InotifyTools {
    private static let isTaken = Mutex(false)
    private var generation: UInt64 = 0
    /// False in one that could not be made: it must not take the library from the one that lives.
    private var isReady = false
    /// The library's descriptor; nil where it couldn't be found.
    private var raw: CInt?

    /// One inotify event.
    struct Event: Equatable {
        let watch: CInt
        let mask: UInt32
        /// Empty for an event of the watched file itself.
        let name: [UInt8]
    }

    /// Throws EBUSY while another one lives, EMFILE when the user has no inotify instance left, or this process has too many files
    /// open for the library.
    init() throws(SystemError) {
        let isFree = Self.isTaken.withLock { taken in
            defer { taken = true }
            return !taken
        }
        guard isFree else { throw SystemError("inotify_init", .resourceBusy) }
        let others = Self.instances()
        guard inotifytools_initialize() != 0 else {
            let code = inotifytools_error()
            Self.isTaken.withLock { $0 = false }
            throw SystemError("inotify_init", Errno(rawValue: code))
        }
        raw = Self.instances().subtracting(others).max()
        if let raw { _ = fcntl(raw, F_SETFD, FD_CLOEXEC) }
        guard raw.map({ $0 < CInt(FD_SETSIZE) }) ?? true else {
            inotifytools_cleanup()
            Self.isTaken.withLock { $0 = false }
            throw SystemError("inotify_init", .tooManyOpenFiles)
        }
        isReady = true
    }

    deinit {
        guard isReady else { return }
        // What is left in the static buffer would be the next instance's first events.
        while inotifytools_next_events(0, 1) != nil {}
        inotifytools_cleanup()
        Self.isTaken.withLock { $0 = false }
    }

    /// The inotify instances that this process has open. One may be inherited from the program that started it.
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

    /// "/" and "/." lead nowhere else, and spell a number: a name with them was never given to the library before.
    private func unused() -> String {
        generation += 1
        return String(generation, radix: 2).map { $0 == "0" ? "/" : "/." }.joined()
    }

    /// Watches a file, no directory, that is open, and returns the watch's number: the one that it has, when it is watched
    /// already.
    func watch(opened file: borrowing Descriptor, mask: UInt32, path: FilePath) throws(SystemError) -> CInt {
        try add("/proc/self\(unused())/fd/\(file.raw)", mask: mask, storedAs: "", path: path)
    }

    /// Watches one file by its path, which must never have been watched before.
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

    // MARK: Without the library, which keeps each name that it is given

    /// Has the watch tell of events of `mask` and no others. Nothing where it is no longer the directory's: then the kernel has
    /// ended it.
    func change(
        _ watch: CInt, of directory: borrowing Descriptor, mask: UInt32, path: FilePath
    ) throws(SystemError) {
        let found = try self.watch(again: directory, mask: mask, path: path)
        if found != watch { end(found) }
    }

    /// Watches what the descriptor leads to, a symbolic link itself too, for events of `mask` and no others, until `end`.
    /// Returns the number that the watch has already, where there is one.
    func watch(again file: borrowing Descriptor, mask: UInt32, path: FilePath) throws(SystemError) -> CInt {
        guard let raw else { throw SystemError("inotify_add_watch", .badFileDescriptor, path: path) }
        let watch = inotify_add_watch(raw, "/proc/self/fd/\(file.raw)", mask)
        guard watch > 0 else { throw SystemError("inotify_add_watch", Errno(rawValue: errno), path: path) }
        return watch
    }

    func end(_ watch: CInt) {
        if let raw { inotify_rm_watch(raw, watch) }
    }

    // MARK: Events

    /// Ends a watch that lives; never call it for one that the kernel has ended (IN_IGNORED).
    func remove(_ watch: CInt) { inotifytools_remove_watch_by_wd(watch) }

    /// Waits until an event is there, where `first` had none; at most that long, and perhaps less.
    func wait(_ limit: Duration) {
        let milliseconds = limit.nanoseconds / 1_000_000
        // poll(2) counts no less than milliseconds.
        guard let raw, milliseconds > 1 else { return pause(min(limit, .milliseconds(1))) }
        var one = pollfd(fd: raw, events: Int16(POLLIN), revents: 0)
        _ = poll(&one, 1, CInt(clamping: milliseconds))
    }

    /// What came first.
    enum First {
        case event(Event)
        /// What `mark` said of it.
        case marked(Int)
    }

    /// The next event; nil when none is there. Waits for one when `waits`.
    func next(waits: Bool) throws(SystemError) -> Event? {
        guard case .event(let event)? = try first(waits: waits, mark: { _, _, _ in nil }) else { return nil }
        return event
    }

    /// As `next`; `mark` sees the event where it lies: its watch, its mask and its name.
    func first(
        waits: Bool, mark: (CInt, UInt32, UnsafeRawBufferPointer) -> Int?
    ) throws(SystemError) -> First? {
        guard let event = inotifytools_next_events(waits ? -1 : 0, 1) else {
            let code = inotifytools_error()
            if code == 0 || code == EINTR { return nil }
            throw SystemError("inotify read", Errno(rawValue: code))
        }
        // The name is padded with NULs to the event's length.
        let start = UnsafeRawPointer(event).advanced(by: MemoryLayout<inotify_event>.size)
        let length = strnlen(start.assumingMemoryBound(to: CChar.self), Int(event.pointee.len))
        let name = UnsafeRawBufferPointer(start: start, count: length)
        if let number = mark(event.pointee.wd, event.pointee.mask, name) { return .marked(number) }
        return .event(Event(watch: event.pointee.wd, mask: event.pointee.mask, name: Array(name)))
    }
}
