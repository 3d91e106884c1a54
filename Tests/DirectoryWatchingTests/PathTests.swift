import CLinux
import DirectoryWatching
import InotifyToolsWatching
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Changes higher up the path of a watched directory, and the cost of unrelated work in its parents.
@Suite(.ownThreads) struct PathTests {
    private static let created = DirectoryEvent.Kinds.created.rawValue

    @Test(
        arguments: [
            "mv x old; mv new x", "mv x/y old; mv new/y x/y", "mv x/y/z old; mv new/y/z x/y/z",
            "mv x old; mkdir -p x/y/z/a", "rm -r x; mv new x",
        ], Access.allCases)
    func detectsAReplacedDirectoryOnTheWay(_ change: String, _ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir -p x/y/z/a new/y/z/a")
        try tree.watch("x/y/z/a")
        try tree.script(change)
        try tree.expectReplacement("x/y/z/a")
    }

    @Test(
        arguments: [
            "ln -s two t; mv -T t current", "ln -sfn two current", "rm current; ln -s two current",
            "mv current old; ln -s two current", "rm current; mv two current", "mv one old; mv two one",
            "mv one/data old; mv two/data one/data",
        ], Access.allCases)
    func detectsAReplacedLinkOrTarget(_ change: String, _ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir -p one/data/a two/data/a; ln -s one current")
        try tree.watch("current/data/a")
        try tree.script(change)
        try tree.expectReplacement("current/data/a")
    }

    @Test(arguments: Access.allCases) func followsLinksToLinksAndParents(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script(
            "mkdir -p one/a two/a links; ln -s \(tree.root.path.string)/links/second first; ln -s ../one links/second")
        try tree.watch("first/a")
        try tree.script("ln -sfn ../two links/second")
        try tree.expectReplacement("first/a")
        try tree.script("rm links/second")
        #expect(try tree.notices() == [.directoryVanished(tree.path("first/a"))])
        try tree.script("ln -s ../one links/second")
        #expect(try tree.notices() == [.directoryAppeared(tree.path("first/a"))])
        try tree.script("ln -sfn second links/second")
        #expect(try tree.notices() == [.directoryVanished(tree.path("first/a"))])
    }

    @Test(arguments: Access.allCases) func followsAProcLinkLikeTheKernel(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir -p x/a new/a")
        let held = try Directory(tree.path("x"))
        let linked = FilePath("/proc/self/fd/\(held.raw)/a")
        try tree.source.watch(linked, for: [.created])
        #expect(try tree.notices() == [.directoryAppeared(linked)])
        try tree.script("mv x old; mv new x; mv old/a old/b; mkdir old/a")
        #expect(try tree.notices() == [.directoryVanished(linked), .directoryAppeared(linked)])
        try tree.script("touch old/a/one")
        #expect(try tree.notices() == [.event(DirectoryEvent(directory: linked, name: "one", kinds: .created))])
    }

    @Test(arguments: Access.allCases) func waitsWhileAFileTakesTheDirectorysPlace(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir x; touch x/y")
        try tree.source.watch(tree.path("x/y/a"), for: [.created])
        #expect(try tree.notices() == [])
        try tree.script("rm x/y; mkdir -p x/y/a")
        #expect(try tree.notices() == [.directoryAppeared(tree.path("x/y/a"))])
        try tree.script("mkdir -p new; touch new/file; mv x/y old; mv new/file x/y")
        #expect(try tree.notices() == [.directoryVanished(tree.path("x/y/a"))])
        try tree.script("mv old/a new/a; mv -T --exchange new x/y 2>/dev/null || { rm x/y; mv new x/y; }")
        #expect(try tree.notices() == [.directoryAppeared(tree.path("x/y/a"))])
    }

    /// If a removed directory is still open, for example as a shell's working directory, only its parent gets an event.
    @Test(arguments: ["rmdir x/a; mkdir x/a", "rmdir x/a x; mkdir -p x/a"], Access.allCases)
    func detectsRemovalOfAnOpenEmptyDirectory(_ change: String, _ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir -p x/a; touch x/a/one")
        try tree.watch("x/a")
        let held = (try Directory(tree.path("x/a")), try Directory(tree.path("x")))
        try tree.script("rm x/a/one")
        #expect(try tree.notices() == [])
        try tree.script(change)
        try tree.expectReplacement("x/a")
        withExtendedLifetime(held) {}
    }

    @Test(arguments: Access.allCases) func ignoresUnrelatedWork(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir -p x/y/a; touch x/y/a/one; ln -s x l")
        try tree.source.watch(tree.path("l/y/a"), for: [.created, .modified])
        _ = try tree.notices()
        for parent in ["x", "x/y"] {
            let mask = try #require(try tree.mask(of: parent))
            let own = DirectoryEvent.Kinds([
                .modified, .opened, .closedAfterWriting, .closedAfterReading, .created, .deleted, .movedIn, .movedOut,
                .attributes,
            ])
            #expect(mask & own.rawValue == 0, "\(parent)")
        }
        #expect(try tree.mask(of: ".") == nil || tree.mask(of: ".").map { $0 & Self.created } == 0)
    }

    /// A name awaited in a busy directory, such as `/tmp`, is polled for.
    @Test(arguments: Access.allCases) func awaitsADirectoryInABusyOne(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir x")
        try tree.source.watch(tree.path("x/a"), for: [.created])
        _ = try tree.notices()
        #expect(try tree.mask(of: "x").map { $0 & Self.created } == Self.created)
        try tree.script("for i in $(seq 100); do touch x/$i; done")
        #expect(try tree.notices() == [])
        try tree.script("for i in $(seq 100); do rm x/$i; done; mkdir x/a; touch x/a/one")
        let deadline = Deadline(after: .ample)
        var reported: [Notice] = []
        while reported.isEmpty, !deadline.hasPassed { reported = try tree.source.next(timeout: .ample) }
        #expect(reported == [.directoryAppeared(tree.path("x/a"))])
        _ = try tree.notices()
        #expect(try tree.mask(of: "x").map { $0 & Self.created } == 0)
    }

    /// Many paths may wait for one name there, and others lead through it.
    @Test(arguments: Access.allCases) func manyPathsLeadThroughABusyDirectory(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir -p x/there/1 x/there/2 x/there/3")
        let (present, absent) = (["1", "2", "3"].map { "x/there/\($0)" }, ["1", "2", "3"].map { "x/a/\($0)" })
        for path in present + absent { try tree.source.watch(tree.path(path), for: [.created]) }
        _ = try tree.notices()
        try tree.script("for i in $(seq 100); do touch x/$i; done")
        #expect(try tree.notices() == [])
        try tree.script("mkdir -p x/a/1 x/a/2 x/a/3")
        var reported: [Notice] = []
        let deadline = Deadline(after: .ample)
        while reported.count < 3, !deadline.hasPassed { reported += try tree.source.next(timeout: .ample) }
        #expect(reported == absent.map { .directoryAppeared(tree.path($0)) })
        // The way of each path is still watched.
        _ = try tree.notices()
        try tree.script("mv x y")
        reported = []
        while reported.count < 6, !deadline.hasPassed { reported += try tree.source.next(timeout: .ample) }
        let all = (present + absent).map { Notice.directoryVanished(tree.path($0)) }
        #expect(reported.count == 6 && all.allSatisfy(reported.contains), "\(reported)")
    }

    @Test(arguments: Access.allCases) func unwatchingKeepsWatchesOfOtherPaths(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir -p x/y/a x/y/b")
        try tree.watch("x/y/a")
        try tree.watch("x/y")
        try tree.watch("x/y/b")
        tree.source.unwatch(tree.path("x/y/b"))
        tree.source.unwatch(tree.path("x/y"))
        try tree.script("mv x old; mkdir -p x/y/a")
        try tree.expectReplacement("x/y/a")
    }

    /// The new directory is found before the events of the removed one that had its inode number, which are not its
    /// own. Not every file system uses a number again soon.
    @Test(arguments: Access.allCases)
    func tellsADirectoryFromARemovedOneWithItsInodeNumber(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir -p p/a q/b n")
        try tree.watch("p/a")
        try tree.watch("q/b")
        let old = try Directory(tree.path("p/a")).identity
        try tree.script("rmdir q/b; touch p/a/one; rm -r p/a; cd n; mkdir $(seq 200)")
        let new = try Directory(tree.path("n")).names().first { name in
            try Directory(tree.path("n").appending(name)).identity == old
        }
        try tree.script("mv n/\(new?.string ?? "1") q/b")
        #expect(try tree.events("q/b") == [])
        try tree.script("touch q/b/two")
        #expect(try tree.events("q/b") == ["create two"])
    }

    @Test(arguments: Access.allCases) func recheckingReportsNoUnchangedDirectory(_ access: Access) throws {
        let tree = try WatchedTree(access)
        try tree.script("mkdir -p x/a")
        try tree.watch("x/a")
        tree.source.recheckPaths()
        #expect(try tree.notices() == [])
    }
}
