import Dispatch
import Glibc
import GroupContainers
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

@Suite struct CreationTests {
    private let scratch: TemporaryDirectory

    init() throws { scratch = try TemporaryDirectory() }

    private func mode(_ path: FilePath) -> mode_t? { FileStatus(following: path)?.permissions }

    @Test func makesTheDirectoryAndItsParentsForTheirOwnerAlone() throws {
        let path = scratch.path.pushing("a/b/group.example")
        #expect(try GroupContainer.create(path))
        for directory in [path, path.removingLastComponent(), scratch.path.appending("a")] {
            #expect(mode(directory) == 0o700)
        }
        #expect(try !GroupContainer.create(path))
    }

    @Test func leavesAnExistingDirectoryAsItIs() throws {
        try Directory(scratch.path).makeDirectory("g", mode: 0o700)
        try Directory(scratch.path.appending("g")).setPermissions(0o2770)
        try Directory(scratch.path).makeSymbolicLink("link", to: "g")
        #expect(try !GroupContainer.create(scratch.path.appending("g")))
        #expect(try !GroupContainer.create(scratch.path.appending("link")))
        #expect(mode(scratch.path.appending("g")) == 0o2770)
    }

    @Test func refusesAFileOrALinkToNowhereInItsPlace() throws {
        let root = try Directory(scratch.path)
        try DurableFile.write([1], as: "file", in: root, mode: 0o600)
        try root.makeSymbolicLink("link", to: "nowhere")
        for name in ["file", "link", "file/g"] {
            #expect(throws: SystemError.self) { try GroupContainer.create(scratch.path.pushing(FilePath(name))) }
        }
        #expect(try root.names().count == 2)
    }

    @Test func severalMayCreateItAtOnce() throws {
        let path = scratch.path.pushing("x/y/z/g")
        let outcomes = Mutex<(made: Int, failed: Int)>((0, 0))
        DispatchQueue.concurrentPerform(iterations: 16) { _ in
            let isNew = try? GroupContainer.create(path)
            outcomes.withLock { counts in
                if isNew == true { counts.made += 1 }
                if isNew == nil { counts.failed += 1 }
            }
        }
        #expect(outcomes.withLock { $0.made == 1 && $0.failed == 0 })
    }
}
