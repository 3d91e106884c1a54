import CLinux
import DirectoryWatching
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Changes higher up the path of a watched directory, and the cost of unrelated work in its parents.
@Suite(.serialized) struct PathTests {
    private let tree: WatchedTree
    private var source: InotifySource { tree.source }

    init() throws { tree = try WatchedTree() }

    private func path(_ relative: String) -> FilePath { tree.path(relative) }
    private func script(_ commands: String) throws { try tree.script(commands) }
    private func notices() throws -> [Notice] { try tree.notices() }

    /// Returns the events requested from the kernel for a directory, or nil if it isn't watched.
    private func mask(of directory: String) throws -> UInt32? {
        let inode = try Directory(path(directory)).identity.inode
        let descriptors = try Directory("/proc/self/fdinfo")
        for name in try descriptors.names() {
            guard let file = try? Descriptor(opening: descriptors.path.appending(name), flags: 0),
                let bytes = try? file.read(count: 1 << 16, at: 0)
            else { continue }
            let text = String(decoding: bytes, as: UTF8.self)
            for line in text.split(separator: "\n") where line.contains("ino:\(String(inode, radix: 16)) ") {
                guard let word = line.firstMatch(of: /mask:([0-9a-f]+)/)?.1 else { continue }
                return UInt32(word, radix: 16)
            }
        }
        return nil
    }

    private static let created = DirectoryEvent.Kinds.created.rawValue

    private func watch(_ directory: String) throws {
        try source.watch(path(directory), for: [.created])
        #expect(try notices() == [.directoryAppeared(path(directory))])
    }

    private func expectReplacement(_ directory: String) throws {
        #expect(try notices() == [.directoryVanished(path(directory)), .directoryAppeared(path(directory))])
        try script("touch \(directory)/after")
        let event = DirectoryEvent(directory: path(directory), name: "after", kinds: .created)
        #expect(try notices() == [.event(event)])
    }

    @Test(arguments: [
        "mv x old; mv new x", "mv x/y old; mv new/y x/y", "mv x/y/z old; mv new/y/z x/y/z",
        "mv x old; mkdir -p x/y/z/a", "rm -r x; mv new x",
    ])
    func detectsAReplacedDirectoryOnTheWay(_ change: String) throws {
        try script("mkdir -p x/y/z/a new/y/z/a")
        try watch("x/y/z/a")
        try script(change)
        try expectReplacement("x/y/z/a")
    }

    @Test(arguments: [
        "ln -s two t; mv -T t current", "ln -sfn two current", "rm current; ln -s two current",
        "mv current old; ln -s two current", "rm current; mv two current", "mv one old; mv two one",
        "mv one/data old; mv two/data one/data",
    ])
    func detectsAReplacedLinkOrTarget(_ change: String) throws {
        try script("mkdir -p one/data/a two/data/a; ln -s one current")
        try watch("current/data/a")
        try script(change)
        try expectReplacement("current/data/a")
    }

    @Test func followsLinksToLinksAndParents() throws {
        try script(
            "mkdir -p one/a two/a links; ln -s \(tree.root.path.string)/links/second first; ln -s ../one links/second")
        try watch("first/a")
        try script("ln -sfn ../two links/second")
        try expectReplacement("first/a")
        try script("rm links/second")
        #expect(try notices() == [.directoryVanished(path("first/a"))])
        try script("ln -s ../one links/second")
        #expect(try notices() == [.directoryAppeared(path("first/a"))])
        try script("ln -sfn second links/second")
        #expect(try notices() == [.directoryVanished(path("first/a"))])
    }

    @Test func followsAProcLinkLikeTheKernel() throws {
        try script("mkdir -p x/a new/a")
        let held = try Directory(path("x"))
        let linked = FilePath("/proc/self/fd/\(held.raw)/a")
        try source.watch(linked, for: [.created])
        #expect(try notices() == [.directoryAppeared(linked)])
        try script("mv x old; mv new x; mv old/a old/b; mkdir old/a")
        #expect(try notices() == [.directoryVanished(linked), .directoryAppeared(linked)])
        try script("touch old/a/one")
        #expect(try notices() == [.event(DirectoryEvent(directory: linked, name: "one", kinds: .created))])
    }

    @Test func waitsWhileAFileTakesTheDirectorysPlace() throws {
        try script("mkdir x; touch x/y")
        try source.watch(path("x/y/a"), for: [.created])
        #expect(try notices() == [])
        try script("rm x/y; mkdir -p x/y/a")
        #expect(try notices() == [.directoryAppeared(path("x/y/a"))])
        try script("mkdir -p new; touch new/file; mv x/y old; mv new/file x/y")
        #expect(try notices() == [.directoryVanished(path("x/y/a"))])
        try script("mv old/a new/a; mv -T --exchange new x/y 2>/dev/null || { rm x/y; mv new x/y; }")
        #expect(try notices() == [.directoryAppeared(path("x/y/a"))])
    }

    /// If a removed directory is still open, for example as a shell's working directory, only its parent gets an event.
    @Test(arguments: ["rmdir x/a; mkdir x/a", "rmdir x/a x; mkdir -p x/a"])
    func detectsRemovalOfAnOpenEmptyDirectory(_ change: String) throws {
        try script("mkdir -p x/a; touch x/a/one")
        try watch("x/a")
        let held = (try Directory(path("x/a")), try Directory(path("x")))
        try script("rm x/a/one")
        #expect(try notices() == [])
        try script(change)
        try expectReplacement("x/a")
        withExtendedLifetime(held) {}
    }

    @Test func ignoresUnrelatedWork() throws {
        try script("mkdir -p x/y/a; touch x/y/a/one; ln -s x l")
        try source.watch(path("l/y/a"), for: [.created, .modified])
        _ = try notices()
        for parent in ["x", "x/y"] {
            let mask = try #require(try mask(of: parent))
            let own = DirectoryEvent.Kinds([
                .modified, .opened, .closedAfterWriting, .closedAfterReading, .created, .deleted, .movedIn, .movedOut,
                .attributes,
            ])
            #expect(mask & own.rawValue == 0, "\(parent)")
        }
        #expect(try mask(of: ".") == nil || mask(of: ".").map { $0 & Self.created } == 0)
    }

    /// A name awaited in a busy directory, such as `/tmp`, is polled for.
    @Test func awaitsADirectoryInABusyOne() throws {
        try script("mkdir x")
        try source.watch(path("x/a"), for: [.created])
        _ = try notices()
        #expect(try mask(of: "x").map { $0 & Self.created } == Self.created)
        try script("for i in $(seq 100); do touch x/$i; done")
        #expect(try notices() == [])
        try script("for i in $(seq 100); do rm x/$i; done; mkdir x/a; touch x/a/one")
        let deadline = Deadline(after: .ample)
        var reported: [Notice] = []
        while reported.isEmpty, !deadline.hasPassed { reported = try source.next(timeout: .ample) }
        #expect(reported == [.directoryAppeared(path("x/a"))])
        _ = try notices()
        #expect(try mask(of: "x").map { $0 & Self.created } == 0)
    }

    @Test func unwatchingKeepsWatchesOfOtherPaths() throws {
        try script("mkdir -p x/y/a x/y/b")
        try watch("x/y/a")
        try watch("x/y")
        try watch("x/y/b")
        source.unwatch(path("x/y/b"))
        source.unwatch(path("x/y"))
        try script("mv x old; mkdir -p x/y/a")
        try expectReplacement("x/y/a")
    }

    @Test func recheckingReportsNoUnchangedDirectory() throws {
        try script("mkdir -p x/a")
        try watch("x/a")
        source.recheckPaths()
        #expect(try notices() == [])
    }
}
