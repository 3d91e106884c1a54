import DirectoryWatching
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Scripts of file operations, and the notices that must follow.
@Suite(.serialized) struct InotifySourceTests {
    private let tree: WatchedTree
    private var source: InotifySource { tree.source }

    init() throws { tree = try WatchedTree() }

    private func path(_ relative: String) -> FilePath { tree.path(relative) }
    private func script(_ commands: String) throws { try tree.script(commands) }
    private func notices() throws -> [Notice] { try tree.notices() }

    private static let kinds: DirectoryEvent.Kinds = [.created, .deleted, .movedIn, .movedOut, .modified]

    private func events(_ directory: String) throws -> [String] {
        try notices().compactMap { notice in
            guard case .event(let event) = notice, event.directory == path(directory) else { return nil }
            return "\(Self.word(event.kinds)) \(PrintablePath(event.name))"
        }
    }

    private static func word(_ kinds: DirectoryEvent.Kinds) -> String {
        let words: [(DirectoryEvent.Kinds, String)] = [
            (.created, "create"), (.deleted, "delete"), (.movedIn, "in"), (.movedOut, "out"), (.modified, "modify"),
        ]
        return words.filter { kinds.contains($0.0) }.map(\.1).joined(separator: "+")
    }

    /// Returns the indexes passed to `onFastPath`, and the notices.
    private func fastPathWrites() throws -> ([Int], [Notice]) {
        var numbers: [Int] = []
        let notices = try source.next(timeout: .zero) { numbers.append($0) }
        return (numbers, notices)
    }

    @Test func reportsTheFirstFastPathWriteBeforeAllElse() throws {
        try script("mkdir a; touch a/log a/other")
        try source.watch(path("a"), for: Self.kinds)
        source.setFastPath("log", in: path("a"), index: 7)
        _ = try notices()
        // The first write identifies the event.
        try script("echo x >> a/log")
        #expect(try events("a") == ["modify log"])
        try script("echo x >> a/log; echo x >> a/other")
        let (numbers, rest) = try fastPathWrites()
        #expect(numbers == [7])
        #expect(rest == [.event(DirectoryEvent(directory: path("a"), name: "other", kinds: .modified))])
        // After any other event it is reported as an event, and so it is without `onFastPath`.
        try script("echo x >> a/other; echo x >> a/log")
        #expect(try fastPathWrites().0.isEmpty)
        try script("echo x >> a/log")
        #expect(try events("a") == ["modify log"])
        source.setFastPath("log", in: path("a"), index: nil)
        try script("echo x >> a/log")
        #expect(try fastPathWrites().0.isEmpty)
    }

    @Test func forgetsFastPathsOfAReplacedDirectory() throws {
        try script("mkdir a b; touch a/log b/log")
        try source.watch(path("a"), for: Self.kinds)
        source.setFastPath("log", in: path("a"), index: 1)
        _ = try notices()
        try script("echo x >> a/log")
        _ = try notices()
        try script("mv a c; mv b a; echo x >> c/log")
        let (numbers, _) = try fastPathWrites()
        #expect(numbers.isEmpty)
        _ = try notices()
        try script("echo x >> a/log; echo x >> c/log")
        #expect(try events("a") == ["modify log"])
        try script("echo x >> a/log")
        #expect(try fastPathWrites().0 == [1])
    }

    @Test func reportsEventsInOrder() throws {
        try script("mkdir a b; touch b/two")
        try source.watch(path("a"), for: Self.kinds)
        #expect(try notices() == [.directoryAppeared(path("a"))])
        try script("touch a/one; echo x > a/one; mv b/two a/two; mv a/two a/three; rm a/one; touch b/unseen")
        #expect(
            try events("a") == [
                "create one", "modify one", "in two", "out two", "in three", "delete one",
            ])
    }

    @Test func acceptsNamesOfAnyBytes() throws {
        try script("mkdir 'odd \" name'")
        let directory = try Directory(path("odd \" name"))
        try source.watch(directory.path, for: Self.kinds)
        _ = try notices()
        let name = try #require(FilePath.Component(bytes: [0x62, 0xFF, 0x0A, 0x22]))
        _ = try directory.open(name, flags: 0o102, mode: 0o600)
        #expect(
            try notices() == [
                .event(DirectoryEvent(directory: directory.path, name: name, kinds: .created))
            ])
    }

    @Test func findsADirectoryThatAppearsLater() throws {
        try source.watch(path("x/y/z"), for: Self.kinds)
        #expect(try notices() == [])
        try script("mkdir x")
        #expect(try notices() == [])
        try script("mkdir -p x/y/z")
        #expect(try notices() == [.directoryAppeared(path("x/y/z"))])
        try script("touch x/y/z/one")
        #expect(try events("x/y/z") == ["create one"])
    }

    @Test func followsADirectoryThatIsRecreated() throws {
        try script("mkdir a")
        try source.watch(path("a"), for: Self.kinds)
        _ = try notices()
        for _ in 1...3 {
            try script("rmdir a")
            #expect(try notices() == [.directoryVanished(path("a"))])
            try script("mkdir a")
            #expect(try notices() == [.directoryAppeared(path("a"))])
            try script("touch a/one; rm a/one")
            #expect(try events("a") == ["create one", "delete one"])
        }
    }

    @Test func reportsAReplacedDirectory() throws {
        try script("mkdir a b; touch b/there")
        try source.watch(path("a"), for: Self.kinds)
        _ = try notices()
        try script("mv a old; mv b a")
        let reported = try notices()
        #expect(reported.first == .directoryVanished(path("a")))
        #expect(reported.last == .directoryAppeared(path("a")))
        try script("touch a/one old/two")
        #expect(try events("a") == ["create one"])
    }

    @Test func followsAMovedParent() throws {
        try script("mkdir -p p/a")
        try source.watch(path("p/a"), for: Self.kinds)
        _ = try notices()
        try script("mv p/a p/b; mkdir p/a; touch p/a/one")
        #expect(try notices().contains(.directoryAppeared(path("p/a"))))
        try script("touch p/a/two p/b/three")
        #expect(try events("p/a") == ["create two"])
    }

    @Test func reportsEventsUnderBothNamesOfADirectory() throws {
        try script("mkdir a; ln -s a b")
        try source.watch(path("a"), for: [.created])
        try source.watch(path("b"), for: [.created, .deleted])
        _ = try notices()
        try script("touch a/one; rm a/one")
        let reported = try notices()
        let received = reported.map { notice -> String in
            guard case .event(let event) = notice else { return "\(notice)" }
            return "\(event.directory.lastComponent?.string ?? "") \(Self.word(event.kinds))"
        }
        #expect(received.sorted() == ["a create", "b create", "b delete"])
    }

    @Test func reportsNothingAfterUnwatch() throws {
        try script("mkdir a")
        try source.watch(path("a"), for: Self.kinds)
        _ = try notices()
        source.unwatch(path("a"))
        try script("touch a/one")
        #expect(try events("a") == [])
        try source.watch(path("a"), for: Self.kinds)
        _ = try notices()
        try script("touch a/two")
        #expect(try events("a") == ["create two"])
    }

    @Test func suspendsModifyEventsExceptForNamedFiles() throws {
        try script("mkdir a; touch a/log a/store a/linked; ln a/linked elsewhere; ln -s a b")
        try source.watch(path("a"), for: Self.kinds)
        try source.watchFile("linked", in: path("a"), enabled: true)
        _ = try notices()
        for _ in 1...3 {
            try source.withModifyEventsSuspended(except: [
                path("a"): ["store", "linked", "absent"], path("none"): ["x"],
            ]) {
                try script(
                    "echo x >> a/log; echo x >> a/store; echo x >> elsewhere; mv a/store a/other; mv a/other a/store")
            }
            let reported = try events("a")
            #expect(
                reported == ["modify store", "modify linked", "out store", "in other", "out other", "in store"])
            try script("echo x >> a/log; echo x >> elsewhere; echo x >> a/store")
            #expect(try events("a") == ["modify log", "modify linked", "modify store"])
        }
        // A directory that disappeared meanwhile is reported.
        try source.withModifyEventsSuspended(except: [path("a"): ["store"]]) { try script("mv a c") }
        #expect(try notices().contains(.directoryVanished(path("a"))))
        try script("echo x >> c/store; mkdir a")
        #expect(try notices() == [.directoryAppeared(path("a"))])
        try script("touch a/log; echo x >> a/log")
        #expect(try events("a") == ["create log", "modify log"])
    }

    @Test func anotherThreadCanWakeTheSource() throws {
        // `wake()` before the wait ends the wait, without a timeout.
        source.wake()
        #expect(try source.next(timeout: nil) == [.woken])
    }

    /// Creates more files than the kernel's event queue holds.
    private func overflow(of directory: String) throws -> String {
        let limit = try #require(
            Int(
                run("cat", ["/proc/sys/fs/inotify/max_queued_events"]).output.trimmingPrefix(while: \.isWhitespace)
                    .prefix(while: \.isNumber)))
        return "seq \(limit + 100) | sed 's/.*/\(directory)\\/&/' | xargs touch"
    }

    @Test func reportsAnOverflowAndContinues() throws {
        try script("mkdir a")
        try source.watch(path("a"), for: Self.kinds)
        _ = try notices()
        try script(overflow(of: "a"))
        #expect(try notices().contains(.overflow))
        try script("touch a/after")
        #expect(try events("a") == ["create after"])
    }

    /// The lost events may include a watch's end, and the new directory may have its number.
    @Test func watchesADirectoryRecreatedDuringAnOverflow() throws {
        try script("mkdir a b; touch a/log; ln a/log other")
        try source.watch(path("b"), for: Self.kinds)
        try source.watch(path("a"), for: Self.kinds)
        try source.watchFile("log", in: path("a"), enabled: true)
        _ = try notices()
        try script(overflow(of: "b") + "; rm a/log; rmdir a; mkdir a")
        #expect(try notices().contains(.overflow))
        try script("touch a/after")
        #expect(try events("a") == ["create after"])
        // Watches the file again, as the source requires.
        try script("ln other a/log")
        try source.watchFile("log", in: path("a"), enabled: true)
        _ = try notices()
        try script("echo x >> other")
        #expect(try events("a") == ["modify log"])
    }

    @Test func reportsChangedDirectoryPermissions() throws {
        try script("mkdir a b")
        try source.watch(path("a"), for: [.modified, .attributes])
        try source.watch(path("b"), for: [.modified])
        _ = try notices()
        try script("chmod 000 a b")
        #expect(try notices() == [.directoryChanged(path("a"))])
        try script("chmod 755 a b; touch a/one; chmod 600 a/one")
        let reported = try notices()
        #expect(reported.first == .directoryChanged(path("a")))
        #expect(reported.last == .event(DirectoryEvent(directory: path("a"), name: "one", kinds: .attributes)))
    }

    /// The directory can't be watched as before, which must not end the source.
    @Test(.enabled(if: geteuid() != 0, "root may read any directory"))
    func reportsADirectoryClosedWhileSuspendedAsUnwatchable() throws {
        try script("mkdir a b; touch a/store")
        try source.watch(path("a"), for: Self.kinds)
        try source.watch(path("b"), for: Self.kinds)
        _ = try notices()
        try source.withModifyEventsSuspended(except: [path("a"): ["store"], path("b"): ["x"]]) {
            try script("chmod 000 a")
        }
        let reported = try notices()
        guard case .unwatchable(path("a"), let error)? = reported.first else {
            Issue.record("\(reported)")
            return
        }
        #expect(error.errno == .permissionDenied)
        try script("touch b/log; echo x >> b/log; chmod 755 a")
        #expect(try events("b") == ["create log", "modify log"])
    }

    @Test func allowsOneSourceAtATime() throws {
        #expect(throws: SystemError.self) { try InotifySource(privateDirectory: tree.privateDirectory.path) }
    }
}
