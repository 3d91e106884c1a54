import DirectoryWatching
import Glibc
import InotifyToolsWatching
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

/// Other threads open and close inotify instances while a source is created.
@Suite struct ConcurrentInstanceTests {
    @Test(arguments: Access.allCases) func aSourceFindsItsOwnInstance(_ access: Access) throws {
        let isOver = Mutex(false)
        let threads = try (1...3).map { number in
            try SystemThread(name: "opener \(number)") {
                while !isOver.withLock({ $0 }) { _ = try? InotifySource() }
            }
        }
        defer {
            isOver.withLock { $0 = true }
            for thread in threads { _ = thread.join(within: .seconds(60)) }
        }
        for _ in 1...20 {
            let tree = try WatchedTree(access)
            // Not by programs: the threads keep a core busy while they run.
            try Directory(tree.root.path).makeDirectory("a", mode: 0o700)
            try tree.watch("a")
            _ = try Directory(tree.path("a")).open("one", flags: O_WRONLY | O_CREAT, mode: 0o600)
            #expect(try tree.events("a") == ["create one"])
        }
    }
}
