import DirectoryWatching
import LinuxSystem
import SystemPackage
import TestSupport

/// A directory to modify, and the source that watches it.
struct WatchedTree {
    let root: TemporaryDirectory
    let privateDirectory: TemporaryDirectory
    let source: InotifySource
    // Must be the last property, so that it is released after the source.
    private let turn: Turn

    init() throws {
        turn = Turn()
        root = try TemporaryDirectory()
        privateDirectory = try TemporaryDirectory()
        source = try InotifySource(privateDirectory: privateDirectory.path)
    }

    func path(_ relative: String) -> FilePath { root.path.pushing(FilePath(relative)) }

    func script(_ commands: String) throws {
        let done = try run("sh", ["-e", "-c", Word("cd \(root.path.string)\n" + commands)])
        guard done.status == 0 else { throw Unexpected("sh: \(done.errors)") }
    }

    /// Returns all notices of the operations so far.
    func notices() throws -> [Notice] {
        var all: [Notice] = []
        while true {
            let next = try source.next(timeout: .zero)
            if next.isEmpty { return all }
            all += next
        }
    }
}
