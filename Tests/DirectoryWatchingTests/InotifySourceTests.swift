import DirectoryWatching
import InotifyToolsWatching
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Scripts of file operations, and the notices that must follow.
@Suite(.ownThreads) struct InotifySourceTests {
    private static let kinds: DirectoryEvent.Kinds = [.created, .deleted, .movedIn, .movedOut, .modified]

    @Test(arguments: Access.allCases) func reportsTheFirstFastPathWriteBeforeAllElse(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir a; touch a/log a/other")
        try tree.source.watch(tree.path("a"), for: Self.kinds)
        tree.source.setFastPath("log", in: tree.path("a"), index: 7)
        _ = try tree.notices()
        // The first write identifies the event.
        try tree.script("echo x >> a/log")
        #expect(try tree.events("a") == ["modify log"])
        try tree.script("echo x >> a/log; echo x >> a/other")
        let (numbers, rest) = try tree.fastPathWrites()
        #expect(numbers == [7])
        #expect(rest == [.event(DirectoryEvent(directory: tree.path("a"), name: "other", kinds: .modified))])
        // After any other event it is reported as an event, and so it is without `onFastPath`.
        try tree.script("echo x >> a/other; echo x >> a/log")
        #expect(try tree.fastPathWrites().0.isEmpty)
        try tree.script("echo x >> a/log")
        #expect(try tree.events("a") == ["modify log"])
        tree.source.setFastPath("log", in: tree.path("a"), index: nil)
        try tree.script("echo x >> a/log")
        #expect(try tree.fastPathWrites().0.isEmpty)
    }

    @Test(arguments: Access.allCases) func forgetsFastPathsOfAReplacedDirectory(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir a b; touch a/log b/log")
        try tree.source.watch(tree.path("a"), for: Self.kinds)
        tree.source.setFastPath("log", in: tree.path("a"), index: 1)
        _ = try tree.notices()
        try tree.script("echo x >> a/log")
        _ = try tree.notices()
        try tree.script("mv a c; mv b a; echo x >> c/log")
        let (numbers, _) = try tree.fastPathWrites()
        #expect(numbers.isEmpty)
        _ = try tree.notices()
        try tree.script("echo x >> a/log; echo x >> c/log")
        #expect(try tree.events("a") == ["modify log"])
        try tree.script("echo x >> a/log")
        #expect(try tree.fastPathWrites().0 == [1])
    }

    @Test(arguments: Access.allCases) func changesTheKindsOfAWatchedDirectory(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir a; touch a/log")
        try tree.source.watch(tree.path("a"), for: Self.kinds)
        #expect(try tree.notices() == [.directoryAppeared(tree.path("a"))])
        try tree.script("echo x >> a/log")
        try tree.source.setKinds([.created], of: tree.path("a"))
        // An event that was queued before isn't lost.
        #expect(try tree.events("a") == [])
        try tree.script("echo x >> a/log; touch a/new")
        #expect(try tree.events("a") == ["create new"])
        try tree.source.setKinds(Self.kinds, of: tree.path("a"))
        #expect(try tree.notices() == [])
        try tree.script("echo x >> a/log")
        #expect(try tree.events("a") == ["modify log"])
        // The kinds hold for a directory that comes later, too.
        try tree.source.setKinds([.created], of: tree.path("a"))
        try tree.script("rm -r a; mkdir a; touch a/log")
        _ = try tree.notices()
        try tree.script("echo x >> a/log; touch a/more")
        #expect(try tree.events("a") == ["create more"])
    }

    /// Two requests for one directory, by two paths, keep their kinds.
    @Test(arguments: Access.allCases) func changesTheKindsOfOnePathAlone(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir a; ln -s a link; touch a/log")
        try tree.source.watch(tree.path("a"), for: Self.kinds)
        try tree.source.watch(tree.path("link"), for: Self.kinds)
        _ = try tree.notices()
        try tree.source.setKinds([.created], of: tree.path("link"))
        try tree.script("echo x >> a/log; touch a/new")
        let found = try tree.notices()
        let created = ["a", "link"].map { DirectoryEvent(directory: tree.path($0), name: "new", kinds: .created) }
        let modified = DirectoryEvent(directory: tree.path("a"), name: "log", kinds: .modified)
        #expect(Set(found.map { "\($0)" }) == Set((created + [modified]).map { "\(Notice.event($0))" }))
    }

    @Test(arguments: Access.allCases) func reportsEventsInOrder(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir a b; touch b/two")
        try tree.source.watch(tree.path("a"), for: Self.kinds)
        #expect(try tree.notices() == [.directoryAppeared(tree.path("a"))])
        try tree.script("touch a/one; echo x > a/one; mv b/two a/two; mv a/two a/three; rm a/one; touch b/unseen")
        #expect(
            try tree.events("a") == [
                "create one", "modify one", "in two", "out two", "in three", "delete one",
            ])
    }

    @Test(arguments: Access.allCases) func acceptsNamesOfAnyBytes(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir 'odd \" name'")
        let directory = try Directory(tree.path("odd \" name"))
        try tree.source.watch(directory.path, for: Self.kinds)
        _ = try tree.notices()
        let name = try #require(FilePath.Component(bytes: [0x62, 0xFF, 0x0A, 0x22]))
        _ = try directory.open(name, flags: 0o102, mode: 0o600)
        #expect(
            try tree.notices() == [
                .event(DirectoryEvent(directory: directory.path, name: name, kinds: .created))
            ])
    }

    @Test(arguments: Access.allCases) func findsADirectoryThatAppearsLater(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.source.watch(tree.path("x/y/z"), for: Self.kinds)
        #expect(try tree.notices() == [])
        try tree.script("mkdir x")
        #expect(try tree.notices() == [])
        try tree.script("mkdir -p x/y/z")
        #expect(try tree.notices() == [.directoryAppeared(tree.path("x/y/z"))])
        try tree.script("touch x/y/z/one")
        #expect(try tree.events("x/y/z") == ["create one"])
    }

    @Test(arguments: Access.allCases) func followsADirectoryThatIsRecreated(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir a")
        try tree.source.watch(tree.path("a"), for: Self.kinds)
        _ = try tree.notices()
        for _ in 1...3 {
            try tree.script("rmdir a")
            #expect(try tree.notices() == [.directoryVanished(tree.path("a"))])
            try tree.script("mkdir a")
            #expect(try tree.notices() == [.directoryAppeared(tree.path("a"))])
            try tree.script("touch a/one; rm a/one")
            #expect(try tree.events("a") == ["create one", "delete one"])
        }
    }

    @Test(arguments: Access.allCases) func reportsAReplacedDirectory(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir a b; touch b/there")
        try tree.source.watch(tree.path("a"), for: Self.kinds)
        _ = try tree.notices()
        try tree.script("mv a old; mv b a")
        let reported = try tree.notices()
        #expect(reported.first == .directoryVanished(tree.path("a")))
        #expect(reported.last == .directoryAppeared(tree.path("a")))
        try tree.script("touch a/one old/two")
        #expect(try tree.events("a") == ["create one"])
    }

    @Test(arguments: Access.allCases) func followsAMovedParent(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir -p p/a")
        try tree.source.watch(tree.path("p/a"), for: Self.kinds)
        _ = try tree.notices()
        try tree.script("mv p/a p/b; mkdir p/a; touch p/a/one")
        #expect(try tree.notices().contains(.directoryAppeared(tree.path("p/a"))))
        try tree.script("touch p/a/two p/b/three")
        #expect(try tree.events("p/a") == ["create two"])
    }

    @Test(arguments: Access.allCases) func reportsEventsUnderBothNamesOfADirectory(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir a; ln -s a b")
        try tree.source.watch(tree.path("a"), for: [.created])
        try tree.source.watch(tree.path("b"), for: [.created, .deleted])
        _ = try tree.notices()
        try tree.script("touch a/one; rm a/one")
        let reported = try tree.notices()
        let received = reported.map { notice -> String in
            guard case .event(let event) = notice else { return "\(notice)" }
            return "\(event.directory.lastComponent?.string ?? "") \(WatchedTree.word(event.kinds))"
        }
        #expect(received.sorted() == ["a create", "b create", "b delete"])
    }

    @Test(arguments: Access.allCases) func reportsNothingAfterUnwatch(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir a")
        try tree.source.watch(tree.path("a"), for: Self.kinds)
        _ = try tree.notices()
        tree.source.unwatch(tree.path("a"))
        try tree.script("touch a/one")
        #expect(try tree.events("a") == [])
        try tree.source.watch(tree.path("a"), for: Self.kinds)
        _ = try tree.notices()
        try tree.script("touch a/two")
        #expect(try tree.events("a") == ["create two"])
    }

    @Test(arguments: Access.allCases) func suspendsModifyEventsExceptForNamedFiles(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir a; touch a/log a/store a/linked; ln a/linked elsewhere; ln -s a b")
        try tree.source.watch(tree.path("a"), for: Self.kinds)
        try tree.source.watchFile("linked", in: tree.path("a"), enabled: true)
        _ = try tree.notices()
        for _ in 1...3 {
            try tree.source.withModifyEventsSuspended(except: [
                tree.path("a"): ["store", "linked", "absent"], tree.path("none"): ["x"],
            ]) {
                try tree.script(
                    "echo x >> a/log; echo x >> a/store; echo x >> elsewhere; mv a/store a/other; mv a/other a/store")
            }
            let reported = try tree.events("a")
            #expect(
                reported == ["modify store", "modify linked", "out store", "in other", "out other", "in store"])
            try tree.script("echo x >> a/log; echo x >> elsewhere; echo x >> a/store")
            #expect(try tree.events("a") == ["modify log", "modify linked", "modify store"])
        }
        // A directory that disappeared meanwhile is reported.
        try tree.source.withModifyEventsSuspended(except: [tree.path("a"): ["store"]]) { try tree.script("mv a c") }
        #expect(try tree.notices().contains(.directoryVanished(tree.path("a"))))
        try tree.script("echo x >> c/store; mkdir a")
        #expect(try tree.notices() == [.directoryAppeared(tree.path("a"))])
        try tree.script("touch a/log; echo x >> a/log")
        #expect(try tree.events("a") == ["create log", "modify log"])
    }

    @Test(arguments: Access.allCases) func anotherThreadCanWakeTheSource(_ access: Access) throws {
        let tree = try WatchedTree(access)
        // `wake()` before the wait ends the wait, without a timeout.
        tree.source.wake()
        #expect(try tree.source.next(timeout: nil) == [.woken])
    }

    /// Causes more events than the kernel's queue holds. It renames one file: to create and remove as many would slow
    /// down all other tests, too, whose new files then pass over the inodes of the removed ones.
    private func overflow(_ directory: FilePath) throws {
        let file = try Descriptor(opening: "/proc/sys/fs/inotify/max_queued_events", flags: O_RDONLY)
        let limit = try #require(
            Int(String(decoding: try file.read(count: 32, at: 0).prefix { $0 != 0x0A }, as: UTF8.self)))
        let (one, other) = (directory.appending("one").string, directory.appending("other").string)
        _ = try Directory(directory).open("one", flags: O_WRONLY | O_CREAT, mode: 0o600)
        // A rename is two events.
        for _ in 0...(limit / 4 + 25) { #expect(rename(one, other) == 0 && rename(other, one) == 0) }
    }

    @Test(arguments: Access.allCases) func reportsAnOverflowAndContinues(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir a")
        try tree.source.watch(tree.path("a"), for: Self.kinds)
        _ = try tree.notices()
        try overflow(tree.path("a"))
        #expect(try tree.notices().contains(.overflow))
        try tree.script("touch a/after")
        #expect(try tree.events("a") == ["create after"])
    }

    /// The lost events may include a watch's end, and the new directory may have its number.
    @Test(arguments: Access.allCases) func watchesADirectoryRecreatedDuringAnOverflow(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir a b; touch a/log; ln a/log other")
        try tree.source.watch(tree.path("b"), for: Self.kinds)
        try tree.source.watch(tree.path("a"), for: Self.kinds)
        try tree.source.watchFile("log", in: tree.path("a"), enabled: true)
        _ = try tree.notices()
        try overflow(tree.path("b"))
        try tree.script("rm a/log; rmdir a; mkdir a")
        #expect(try tree.notices().contains(.overflow))
        try tree.script("touch a/after")
        #expect(try tree.events("a") == ["create after"])
        // Watches the file again, as the source requires.
        try tree.script("ln other a/log")
        try tree.source.watchFile("log", in: tree.path("a"), enabled: true)
        _ = try tree.notices()
        try tree.script("echo x >> other")
        #expect(try tree.events("a") == ["modify log"])
    }

    @Test(arguments: Access.allCases) func reportsChangedDirectoryPermissions(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir a b")
        try tree.source.watch(tree.path("a"), for: [.modified, .attributes])
        try tree.source.watch(tree.path("b"), for: [.modified])
        _ = try tree.notices()
        try tree.script("chmod 000 a b")
        #expect(try tree.notices() == [.directoryChanged(tree.path("a"))])
        try tree.script("chmod 755 a b; touch a/one; chmod 600 a/one")
        let reported = try tree.notices()
        #expect(reported.first == .directoryChanged(tree.path("a")))
        #expect(reported.last == .event(DirectoryEvent(directory: tree.path("a"), name: "one", kinds: .attributes)))
    }

    /// The directory can't be watched as before, which must not end the tree.source.
    @Test(.enabled(if: geteuid() != 0, "root may read any directory"), arguments: Access.allCases)
    func reportsADirectoryClosedWhileSuspendedAsUnwatchable(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir a b; touch a/store")
        try tree.source.watch(tree.path("a"), for: Self.kinds)
        try tree.source.watch(tree.path("b"), for: Self.kinds)
        _ = try tree.notices()
        try tree.source.withModifyEventsSuspended(except: [tree.path("a"): ["store"], tree.path("b"): ["x"]]) {
            try tree.script("chmod 000 a")
        }
        let reported = try tree.notices()
        guard case .unwatchable(tree.path("a"), let error)? = reported.first else {
            Issue.record("\(reported)")
            return
        }
        #expect(error.errno == .permissionDenied)
        try tree.script("touch b/log; echo x >> b/log; chmod 755 a")
        #expect(try tree.events("b") == ["create log", "modify log"])
    }

    #if InotifyTools
        @Test func allowsOneSourceAtATime() throws {
            let tree = try WatchedTree(.libinotifytools)
            #expect(throws: SystemError.self) {
                try InotifySource(privateDirectory: tree.privateDirectory.path, through: .libinotifytools)
            }
        }
    #endif
}
