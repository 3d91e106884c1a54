import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import DirectoryWatching

/// The cost of unrelated work in a directory on the way to many paths.
@Suite struct BusyDirectoryTests {
    /// Counts the watches that are set, and reports nothing by itself.
    private final class CountingInstance: InotifyInstance {
        private var numbers: [FileIdentity: CInt] = [:]
        private var next: CInt = 1
        private(set) var calls = 0

        func watch(_ file: borrowing Descriptor, mask: UInt32, path: FilePath) throws(SystemError) -> CInt {
            calls += 1
            let identity = try file.status(path: path).identity
            if let known = numbers[identity] { return known }
            numbers[identity] = next
            defer { next += 1 }
            return next
        }

        func remove(_ watch: CInt) { numbers = numbers.filter { $0.value != watch } }

        func next(
            timeout: Duration?, onReadable: (() -> Void)?, fastPath: InotifyFastPath?
        ) throws(SystemError) -> QueuedEvent? { nil }

        func wake() {}
    }

    /// Some hundred places may lie below a home directory, in which programs make files all the time.
    @Test func unrelatedFilesCostTheSameForAnyNumberOfPaths() throws {
        func calls(_ count: Int) throws -> Int {
            let scratch = try TemporaryDirectory()
            let home = scratch.path.appending("home")
            try run("mkdir", ["-p", Word(home.appending("there")), Word(home.appending("other"))])
            let instance = CountingInstance()
            let paths = WatchedPaths(instance)
            for number in 0..<count {
                _ = try paths.add(home.pushing(FilePath("absent/\(number)/data")), [.created])
                try run("mkdir", [Word(home.pushing(FilePath("there/\(number)")))])
                _ = try paths.add(home.pushing(FilePath("there/\(number)")), [.created])
            }
            let watch = try #require(paths.watchIDs[Directory(home).identity])
            let before = instance.calls
            // More than a quiet directory has in a second.
            for number in 0..<20 where paths.watches[watch] != nil {
                _ = paths.notices(
                    of: InotifyEvent(watch: watch, mask: UInt32(IN_CREATE), name: Array("file\(number)".utf8)))
            }
            let polled = Dictionary(grouping: paths.polledNames.keys) { paths.polledNames[$0] }
            #expect(polled.count == 1 && paths.polledNames.count == count)
            for (name, waiting) in polled {
                #expect(paths.poll(try #require(name), for: waiting.sorted { $0.string < $1.string }).isEmpty)
            }
            #expect(paths.polledNames.isEmpty && paths.recheckTimes.isEmpty)
            // All of them are found once the name comes.
            try run("mkdir", ["-p"] + (0..<count).map { Word(home.pushing(FilePath("absent/\($0)/data"))) })
            let again = try #require(paths.watchIDs[Directory(home).identity])
            let calls = instance.calls - before
            let created = InotifyEvent(watch: again, mask: UInt32(IN_CREATE), name: Array("absent".utf8))
            let found = paths.notices(of: created)
            #expect(found.count == count)
            return calls
        }
        #expect(try calls(2) == calls(60))
    }

    /// An empty directory is watched from its parent, too, and a file that comes and goes empties it each time.
    @Test func unrelatedFilesInAnEmptyDirectoryCostTheSameForAnyNumberOfPaths() throws {
        func calls(_ count: Int) throws -> Int {
            let scratch = try TemporaryDirectory()
            let home = scratch.path.appending("home")
            try run("mkdir", [Word(home)])
            let instance = CountingInstance()
            let paths = WatchedPaths(instance)
            for number in 0..<count { _ = try paths.add(home.pushing(FilePath("absent/\(number)/data")), [.created]) }
            let before = instance.calls
            for _ in 0..<20 {
                for (mask, command) in [(IN_CREATE, "touch" as Word), (IN_DELETE, "rm")] {
                    try run(command, [Word(home.appending("unrelated"))])
                    guard let watch = try paths.watchIDs[Directory(home).identity] else { break }
                    let event = InotifyEvent(watch: watch, mask: UInt32(mask), name: Array("unrelated".utf8))
                    #expect(paths.notices(of: event).isEmpty)
                }
            }
            try run("rm", ["-f", Word(home.appending("unrelated"))])
            for (name, waiting) in Dictionary(grouping: paths.polledNames.keys, by: { paths.polledNames[$0] }) {
                #expect(waiting.count == count)
                #expect(paths.poll(try #require(name), for: waiting.sorted { $0.string < $1.string }).isEmpty)
            }
            let calls = instance.calls - before
            // The directory's removal is found by all of them, though only its parent reports it.
            try run("rmdir", [Word(home)])
            let parent = try #require(paths.watchIDs[Directory(scratch.path).identity])
            _ = paths.notices(of: InotifyEvent(watch: parent, mask: UInt32(IN_DELETE), name: Array("home".utf8)))
            let awaiting = try paths.watchIDs[Directory(scratch.path).identity].flatMap { paths.watches[$0]?.awaiting }
            #expect(awaiting?.values.filter { $0 == "home" }.count == count)
            return calls
        }
        #expect(try calls(2) == calls(60))
    }

    /// Another name tells that the directory isn't empty. A burst of renamings must not have its path walked each time.
    @Test func aNameThatComesAndGoesIsLookedForOnce() throws {
        let scratch = try TemporaryDirectory()
        let directory = scratch.path.appending("directory")
        try run("mkdir", [Word(directory)])
        try run("touch", [Word(directory.appending("one"))])
        let instance = CountingInstance()
        let paths = WatchedPaths(instance)
        _ = try paths.add(directory, [.created])
        try run("touch", [Word(directory.appending("other"))])
        let watch = try #require(paths.watchIDs[Directory(directory).identity])
        func callsForARenaming() -> Int {
            let before = instance.calls
            _ = paths.notices(of: InotifyEvent(watch: watch, mask: UInt32(IN_MOVED_FROM), name: Array("one".utf8)))
            return instance.calls - before
        }
        #expect(callsForARenaming() > 0)
        #expect((1...20).allSatisfy { _ in callsForARenaming() == 0 })
    }
}
