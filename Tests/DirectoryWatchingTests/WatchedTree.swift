import DirectoryWatching
import LinuxSystem
import SystemPackage
import TestSupport

/// A directory to change, and the source that is to tell of it.
struct WatchedTree {
    let root: TemporaryDirectory
    let privateDirectory: TemporaryDirectory
    let source: InotifySource
    // The last property: it is given back when the source is gone.
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

    /// All notices that the operations so far have made.
    func notices() throws -> [Notice] {
        var all: [Notice] = []
        while true {
            let next = try source.next(timeout: .zero)
            if next.isEmpty { return all }
            all += next
        }
    }
}
