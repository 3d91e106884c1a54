import DirectoryWatching
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
            try tree.script("mkdir a")
            try tree.watch("a")
            try tree.script("touch a/one")
            #expect(try tree.events("a") == ["create one"])
        }
    }
}
