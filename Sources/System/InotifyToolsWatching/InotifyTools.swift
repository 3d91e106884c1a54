#if InotifyTools
    import CInotifyTools
    import DirectoryWatching
    import Glibc
    import LinuxSystem
    import Synchronization
    import SystemPackage

    /// The process's one inotify instance that libinotifytools has.
    ///
    /// The library knows a watch only by its path and keeps a dead one's path for ever, so watches are set without it.
    /// A request for several events spins, so one event is requested at a time.
    package final class InotifyTools: InotifyInstance {
        private let library: InotifyToolsLibrary
        private let wakeFile: WakeFile

        /// Throws `SystemError`, with EBUSY while another such instance exists, and EMFILE if the user has no inotify
        /// instance left or this process has too many files open for the library.
        package init(privateDirectory: FilePath) throws {
            library = try InotifyToolsLibrary()
            wakeFile = try WakeFile(in: privateDirectory, library)
            try library.findDescriptor(watching: wakeFile.inode, as: wakeFile.watch)
        }

        package func watch(_ file: borrowing Descriptor, mask: UInt32, path: FilePath) throws(SystemError) -> CInt {
            guard let raw = library.raw else { throw SystemError("inotify_add_watch", .badFileDescriptor, path: path) }
            return try addWatch(file, mask: mask, path: path, to: raw)
        }

        package func remove(_ watch: CInt) {
            if let raw = library.raw { inotify_rm_watch(raw, watch) }
        }

        package func wake() { wakeFile.wake() }

        /// The library's timeouts are whole seconds, and most timeouts here are shorter.
        package func next(
            timeout: Duration?, onReadable: (() -> Void)?, fastPath: InotifyFastPath?
        ) throws(SystemError) -> QueuedEvent? {
            let deadline = timeout.map(Deadline.init(after:)) ?? .none
            var interruptions = Interruptions()
            while true {
                // The library may have read an event that it hasn't returned yet.
                if let event = try next(waits: false, fastPath) { return event }
                let left = deadline.remaining
                guard left.map({ $0 > .zero }) ?? true else { return nil }
                guard library.raw != nil || left != nil else {
                    if let event = try next(waits: true, fastPath) { return event }
                    continue
                }
                if try wait(left, &interruptions) { onReadable?() }
            }
        }

        private func next(waits: Bool, _ fastPath: InotifyFastPath?) throws(SystemError) -> QueuedEvent? {
            guard let event = inotifytools_next_events(waits ? -1 : 0, 1) else {
                let code = inotifytools_error()
                if code == 0 || code == EINTR { return nil }
                throw SystemError("inotify read", Errno(rawValue: code))
            }
            if event.pointee.wd == wakeFile.watch { return .woken }
            let start = UnsafeRawPointer(event).advanced(by: MemoryLayout<inotify_event>.size)
            return QueuedEvent(
                watch: event.pointee.wd, mask: event.pointee.mask,
                paddedName: UnsafeRawBufferPointer(start: start, count: Int(event.pointee.len)), fastPath: fastPath)
        }

        /// Waits for an event after `next` returned none, for `limit` (nil: no limit) at most, or less. Returns
        /// true if one has come.
        private func wait(_ limit: Duration?, _ interruptions: inout Interruptions) throws(SystemError) -> Bool {
            let milliseconds = limit.map { $0.nanoseconds / 1_000_000 }
            // poll(2) can't wait less than a millisecond.
            guard let raw = library.raw, milliseconds.map({ $0 > 1 }) ?? true else {
                pause(min(limit ?? .zero, .milliseconds(1)))
                return false
            }
            var request = pollfd(fd: raw, events: Int16(POLLIN), revents: 0)
            let ready = poll(&request, 1, milliseconds.map { CInt(clamping: $0) } ?? -1)
            guard ready >= 0 || errno == EINTR && interruptions.allowsAnother(at: .now) else {
                throw SystemError.last("poll")
            }
            return ready > 0
        }
    }

    /// Ownership of libinotifytools. The library has one inotify instance and one static buffer per process, so it has
    /// one owner at a time, and one thread uses it.
    ///
    /// Child processes inherit its descriptor unless that is changed. It waits with select(2), which crashes a process
    /// whose descriptor is 1024 or more.
    private final class InotifyToolsLibrary {
        private static let isInUse = Mutex(false)
        /// False if initialization failed. Such an object must not release the library that another one owns.
        private var isReady = false
        /// The instances that other parts of the process had before.
        private let others: Set<CInt>
        /// The library's descriptor, or nil if it could not be determined.
        private(set) var raw: CInt?

        init() throws(SystemError) {
            let isFree = Self.isInUse.withLock { isInUse in
                defer { isInUse = true }
                return !isInUse
            }
            guard isFree else { throw SystemError("inotify_init", .resourceBusy) }
            others = Self.instances()
            guard inotifytools_initialize() != 0 else {
                let code = inotifytools_error()
                Self.isInUse.withLock { $0 = false }
                throw SystemError("inotify_init", Errno(rawValue: code))
            }
            isReady = true
        }

        /// Finds the library's descriptor, which the library keeps to itself, by its watch: other threads may open and
        /// close instances at the same time.
        func findDescriptor(watching inode: UInt64, as watch: CInt) throws(SystemError) {
            let all = Self.instances()
            raw = all.first { Self.instance($0, watches: inode, as: watch) } ?? all.subtracting(others).max()
            if let raw { _ = fcntl(raw, F_SETFD, FD_CLOEXEC) }
            guard raw.map({ $0 < CInt(FD_SETSIZE) }) ?? true else {
                // Reading its events would crash.
                isReady = false
                inotifytools_cleanup()
                Self.isInUse.withLock { $0 = false }
                throw SystemError("inotify_init", .tooManyOpenFiles)
            }
        }

        /// Reads proc(5), /proc/pid/fdinfo.
        private static func instance(_ raw: CInt, watches inode: UInt64, as watch: CInt) -> Bool {
            guard let file = try? Descriptor(opening: FilePath("/proc/thread-self/fdinfo/\(raw)"), flags: O_RDONLY),
                let bytes = try? file.read(count: 1 << 16, at: 0)
            else { return false }
            let start = "inotify wd:\(String(watch, radix: 16)) ino:\(String(inode, radix: 16)) "
            return String(decoding: bytes, as: UTF8.self).split(separator: "\n").contains { $0.hasPrefix(start) }
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
            guard let directory = try? Directory("/proc/thread-self/fd"), let names = try? directory.names() else {
                return []
            }
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

        /// Watches a file by its path, which must never have been watched before.
        func watch(_ path: FilePath, mask: UInt32) throws(SystemError) -> CInt {
            guard inotifytools_watch_file(path.string, CInt(bitPattern: mask)) != 0 else {
                throw SystemError("inotify_add_watch", Errno(rawValue: inotifytools_error()), path: path)
            }
            let watch = inotifytools_wd_from_filename(path.string)
            guard watch > 0 else { throw SystemError("inotify_add_watch", .noSuchFileOrDirectory, path: path) }
            return watch
        }
    }

    /// A private file. Writing to it wakes the thread that waits in the library, which waits for nothing but events.
    private final class WakeFile: Sendable {
        let watch: CInt
        let inode: UInt64
        private let file: Descriptor
        private let directory: Directory
        private let name: FilePath.Component

        init(in path: FilePath, _ library: InotifyToolsLibrary) throws {
            directory = try Directory(path)
            let unique = "wake-\(getpid())-\(String(UInt64.random(in: 0...UInt64.max), radix: 36))"
            name = FilePath.Component(unique) ?? "wake"
            file = try directory.open(name, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
            inode = try file.status().identity.inode
            watch = try library.watch(
                FilePath("/proc/thread-self/fd/\(directory.raw)/\(unique)"), mask: UInt32(IN_MODIFY))
        }

        deinit { try? directory.removeFile(name) }

        func wake() {
            var byte: UInt8 = 0
            _ = pwrite(file.raw, &byte, 1, 0)
        }
    }
#endif
