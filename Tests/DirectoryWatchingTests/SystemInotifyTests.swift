import CLinux
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import DirectoryWatching
import InotifyToolsWatching

/// Guarantees of the source that calls inotify(7) itself, and of both while they wait.
@Suite(.ownThreads) struct SystemInotifyTests {
    @Test func severalSourcesExistAtOnce() throws {
        let tree = try WatchedTree(.systemCalls)
        let other = try InotifySource(privateDirectory: tree.privateDirectory.path, through: .systemCalls)
        try tree.script("mkdir a b")
        try tree.source.watch(tree.path("a"), for: [.created])
        try other.watch(tree.path("b"), for: [.created])
        _ = (try tree.notices(), try other.allNotices())
        try tree.script("touch a/one b/two")
        other.wake()
        #expect(try tree.events("a") == ["create one"])
        #expect(
            try other.allNotices() == [
                .woken, .event(DirectoryEvent(directory: tree.path("b"), name: "two", kinds: .created)),
            ])
    }

    /// select(2), which libinotifytools waits with, accepts no descriptor above 1023.
    @Test(.enabled(if: ResourceLimit.maxDescriptors > 4096, "the hard limit on open files is too low"))
    func hearsWithManyDescriptors() throws {
        // No other test may get an inotify instance with such a high number meanwhile.
        let turn = Turn()
        defer { withExtendedLifetime(turn) {} }
        let tree = try WatchedTree(.systemCalls)
        let directory = try Directory(tree.root.path)
        let files = ManyDescriptors()
        defer { files.close() }
        var sources: [InotifySource] = []
        // A test that closes files meanwhile may free a low number.
        while try Self.highestInstance() < 1024 {
            files.fill(to: 2000)
            sources.append(try InotifySource(privateDirectory: tree.privateDirectory.path, through: .systemCalls))
            try #require(sources.count < 100)
        }
        let source = try #require(sources.last)
        try source.watch(tree.root.path, for: [.created])
        #expect(try source.next(timeout: nil) == [.directoryAppeared(tree.root.path)])
        try directory.makeDirectory("one", mode: 0o700)
        let event = DirectoryEvent(directory: tree.root.path, name: "one", kinds: .created)
        #expect(try source.next(timeout: .ample) == [.event(event)])
        source.wake()
        #expect(try source.next(timeout: nil) == [.woken])
    }

    /// Returns the highest number of an inotify instance in this process.
    private static func highestInstance() throws -> CInt {
        let directory = try Directory("/proc/self/fd")
        return try directory.names().compactMap { name in
            let link = try? Descriptor(opening: directory.path.appending(name), flags: gs_o_path | O_NOFOLLOW)
            let target = try? link?.linkTarget(path: directory.path)
            return target?.string.hasPrefix("anon_inode:inotify") == true ? CInt(name.string) : nil
        }.max() ?? 0
    }

    /// A name of 255 bytes is the longest event; many of them need several reads.
    @Test func readsLongNamesInSeveralParts() throws {
        let tree = try WatchedTree(.systemCalls)
        let directory = try Directory(tree.root.path)
        try tree.source.watch(tree.root.path, for: [.created])
        _ = try tree.notices()
        let names = (0..<1000).compactMap { number in
            FilePath.Component(
                "\(10_000 + number)" + String(repeating: "x", count: number % 2 == 0 ? 250 : number % 250))
        }
        for name in names { _ = try directory.open(name, flags: O_WRONLY | O_CREAT, mode: 0o600) }
        #expect(
            try tree.notices()
                == names.map { .event(DirectoryEvent(directory: tree.root.path, name: $0, kinds: .created)) })
    }

    @Test(arguments: Access.allCases) func aTimeoutEndsTheWait(_ access: Access) throws {
        let tree = try WatchedTree(access)
        for timeout in [Duration.microseconds(200), .milliseconds(3), .milliseconds(20)] {
            let began = ContinuousClock.now
            #expect(try tree.source.next(timeout: timeout).isEmpty)
            #expect(began.duration(to: .now) >= timeout)
        }
    }

    /// Events of a removed watch are still in the queue when another directory is watched.
    @Test(arguments: Access.allCases) func reportsNoEventOfARemovedWatch(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir a b")
        for (old, new) in [("a", "b"), ("b", "a"), ("a", "b")] {
            try tree.source.watch(tree.path(old), for: [.created, .deleted])
            _ = try tree.notices()
            try tree.script("touch \(old)/one; rm \(old)/one")
            tree.source.unwatch(tree.path(old))
            try tree.source.watch(tree.path(new), for: [.created, .deleted])
            try tree.script("touch \(old)/two; rm \(old)/two; touch \(new)/three; rm \(new)/three")
            let events = [DirectoryEvent.Kinds.created, .deleted].map {
                Notice.event(DirectoryEvent(directory: tree.path(new), name: "three", kinds: $0))
            }
            #expect(try tree.notices() == [.directoryAppeared(tree.path(new))] + events)
            tree.source.unwatch(tree.path(new))
        }
    }

    @Test(.enabled(if: geteuid() == 0, "only root may mount"), arguments: Access.allCases)
    func reportsAnUnmountedDirectory(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir m")
        try #require(
            mount("none", tree.path("m").string, "tmpfs", 0, nil) == 0, "\(SystemError.last("mount").description)")
        defer { umount2(tree.path("m").string, CInt(MNT_DETACH)) }
        try tree.source.watch(tree.path("m"), for: [.created])
        #expect(try tree.notices() == [.directoryAppeared(tree.path("m"))])
        let deadline = ContinuousClock.now + .ample
        // A child process of another test may have the directory's descriptor until it calls execve(2).
        while umount2(tree.path("m").string, 0) != 0 {
            try #require(errno == EBUSY && ContinuousClock.now < deadline)
            pause(.milliseconds(10))
        }
        // The kernel reports it when no mount namespace has a copy of the mount. Other tests make some for a moment.
        var notices: [Notice] = []
        while notices.count < 2, ContinuousClock.now < deadline {
            notices += try tree.source.next(timeout: ContinuousClock.now.duration(to: deadline))
        }
        #expect(notices == [.directoryVanished(tree.path("m")), .directoryAppeared(tree.path("m"))])
        try tree.script("touch m/one")
        #expect(try tree.events("m") == ["create one"])
    }

    /// A thread that makes a system call runs, and the kernel counts each time that it stops running.
    @Test(arguments: Access.allCases) func doesNothingWhileItWaits(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir -p a/b")
        try tree.source.watch(tree.path("a/b"), for: [.created, .modified])
        _ = try tree.notices()
        // The thread has the source to itself until it ends; only `wake()` is called meanwhile.
        nonisolated(unsafe) let source = tree.source
        nonisolated(unsafe) var result: [Notice]?
        let thread = try SystemThread(name: "inotify-idle") { result = try? source.next(timeout: nil) }
        var isIdle = false
        for _ in 1...10 where !isIdle {
            let before = try Self.switches(of: "inotify-idle")
            try tree.script("mkdir c; echo x > c/one; rm -r c")
            pause(.milliseconds(300))
            isIdle = try before != nil && before == Self.switches(of: "inotify-idle")
        }
        #expect(isIdle)
        source.wake()
        #expect(thread.join(within: .ample))
        #expect(result == [.woken])
    }

    /// Returns the counts of context switches of this process's thread with the name, or nil if there is none yet.
    private static func switches(of thread: String) throws -> [Substring]? {
        let tasks = try Directory("/proc/self/task")
        for task in try tasks.names() {
            let path = tasks.path.appending(task).appending("status")
            // A thread may end at any time.
            guard let file = try? Descriptor(opening: path, flags: 0), let bytes = try? file.read(count: 4096, at: 0)
            else { continue }
            let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n")
            guard lines.first == "Name:\t\(thread)" else { continue }
            return lines.filter { $0.contains("ctxt_switches") }
        }
        return nil
    }
}

/// Descriptors opened only to use up the low numbers.
private final class ManyDescriptors {
    private var numbers: [CInt] = []
    private let file = Descriptor(owning: open("/dev/null", O_RDONLY | O_CLOEXEC))
    private let limit: rlimit

    /// Raises the soft limit, which `close()` restores.
    init() {
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        self.limit = limit
        ResourceLimit.raiseDescriptors()
    }

    func fill(to highest: CInt) {
        while true {
            let number = fcntl(file.raw, F_DUPFD_CLOEXEC, 0)
            if number >= 0 { numbers.append(number) }
            if number < 0 || number >= highest { return }
        }
    }

    func close() {
        for number in numbers { Glibc.close(number) }
        numbers = []
        var limit = limit
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }
}
