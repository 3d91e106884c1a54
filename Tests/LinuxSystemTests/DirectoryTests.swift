import Glibc
import SystemPackage
import TestSupport
import Testing

@testable import LinuxSystem

@Suite struct DirectoryTests {
    private let root: TemporaryDirectory
    private let directory: Directory

    init() throws {
        root = try TemporaryDirectory()
        directory = try Directory(root.path)
    }

    private func make(_ name: FilePath.Component) throws {
        _ = try directory.open(name, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
    }

    @Test func refusingRenameReplacesNothing() throws {
        try make("one")
        try make("two")
        let two = try directory.status("two")?.identity
        #expect(throws: SystemError.self) { try directory.rename("one", to: "two", in: directory, .refuse) }
        #expect(try directory.status("two")?.identity == two)
    }

    @Test func doesNotFollowASymbolicLink() throws {
        try make("file")
        try directory.makeSymbolicLink("link", to: "file")
        #expect(throws: SystemError.self) { _ = try directory.open("link", flags: O_RDONLY) }
        #expect(throws: SystemError.self) { try directory.directory("link") }
        #expect(try directory.status("link")?.kind == .symbolicLink)
    }

    @Test func staysInADirectoryThatWasReplacedByALink() throws {
        try directory.makeDirectory("inner", mode: 0o700)
        let inner = try directory.directory("inner")
        let elsewhere = try TemporaryDirectory()
        try directory.rename("inner", to: "moved", in: directory, .refuse)
        try directory.makeSymbolicLink("inner", to: elsewhere.path)
        _ = try inner.open("file", flags: O_RDWR | O_CREAT, mode: 0o600)
        #expect(try Directory(elsewhere.path).names().isEmpty)
        #expect(try directory.directory("moved").names() == ["file"])
    }

    @Test func removingATreeKeepsLinkTargets() throws {
        let elsewhere = try TemporaryDirectory()
        _ = try Directory(elsewhere.path).open("kept", flags: O_RDWR | O_CREAT, mode: 0o600)
        try directory.makeDirectory("tree", mode: 0o700)
        let tree = try directory.directory("tree")
        try tree.makeSymbolicLink("link", to: elsewhere.path)
        try tree.makeDirectory("deeper", mode: 0o700)
        try directory.removeTree("tree")
        #expect(try directory.names().isEmpty)
        #expect(try Directory(elsewhere.path).names() == ["kept"])
    }

    @Test func followsTheUsersOwnLink() throws {
        try directory.makeDirectory("real", mode: 0o700)
        try directory.makeSymbolicLink("link", to: "real")
        try directory.makeSymbolicLink("longer", to: root.path.appending("link").appending("..").appending("link"))
        let real = try directory.directory("real")
        for name in ["link", "longer"] {
            #expect(try Directory(root.path.appending(name)).identity == real.identity)
            #expect(try Directory(resolving: root.path.appending(name)).path.lastComponent == "real")
        }
        try directory.makeSymbolicLink("one", to: "two")
        try directory.makeSymbolicLink("two", to: "one")
        #expect(throws: SystemError.self) { try Directory(root.path.appending("one")) }
    }

    @Test func resolvesALinkToAFile() throws {
        try directory.makeDirectory("real", mode: 0o700)
        let real = try directory.directory("real")
        _ = try real.open("file", flags: O_RDWR | O_CREAT, mode: 0o600)
        try directory.makeSymbolicLink("link", to: "real/file")
        let found = try Directory.resolving(file: root.path.appending("link"))
        #expect(found.directory.identity == real.identity)
        #expect(found.name == "file")
        #expect(try Directory.resolving(file: root.path.appending("none")).name == "none")
        try directory.makeSymbolicLink("dangling", to: "nowhere")
        #expect(throws: SystemError.self) { try Directory.resolving(file: root.path.appending("dangling")) }
    }

    @Test(.enabled(if: geteuid() == 0, "only root can give a link away"))
    func followsAnotherUsersLinkOnlyToTheirOwnFiles() throws {
        for name: FilePath.Component in ["mine", "theirs"] { try directory.makeDirectory(name, mode: 0o700) }
        let theirs = try directory.directory("theirs")
        _ = try theirs.open("file", flags: O_RDWR | O_CREAT, mode: 0o600)
        #expect(fchown(theirs.raw, 54_321, 54_321) == 0)
        for (link, target) in [("to-mine", "mine"), ("to-theirs", "theirs"), ("to-file", "theirs/file")] {
            try directory.makeSymbolicLink(try #require(FilePath.Component(link)), to: FilePath(target))
            #expect(fchownat(directory.raw, link, 54_321, 54_321, AT_SYMLINK_NOFOLLOW) == 0)
        }
        #expect(throws: SystemError("open", .tooManySymbolicLinkLevels, path: root.path.appending("to-mine"))) {
            try Directory(root.path.appending("to-mine"))
        }
        #expect(try Directory(root.path.appending("to-theirs")).identity == theirs.identity)
        // The file is root's.
        #expect(throws: SystemError.self) { try Directory.resolving(file: root.path.appending("to-file")) }
    }

    @Test func durableFilesAreReplacedAtomically() throws {
        #expect(try DurableFile.read("record", in: directory) == nil)
        try DurableFile.write([1, 2, 3], as: "record", in: directory, mode: 0o600)
        try DurableFile.write([4], as: "record", in: directory, mode: 0o600)
        #expect(try DurableFile.read("record", in: directory) == [4])
        #expect(try directory.names() == ["record"])
    }

    @Test func doesNotWaitForAFIFO() throws {
        #expect(mkfifoat(directory.raw, "fifo", 0o600) == 0)
        let opened = try? directory.open("fifo", flags: O_WRONLY).raw
        #expect(opened == nil)
        #expect(throws: SystemError.self) { try DurableFile.read("fifo", in: directory) }
    }

    @Test func namesAreBytes() throws {
        let name = try #require(FilePath.Component(bytes: [0x61, 0xFF, 0x0A]))
        try make(name)
        #expect(try directory.names() == [name])
        #expect(PrintablePath(name).description == "a\\xff\\x0a")
        #expect(FilePath.Component(bytes: [0x61, 0x2F]) == nil)
        #expect(FilePath.Component(bytes: []) == nil)
        #expect(FilePath.Component(bytes: [0x61, 0x00]) == nil)
    }

    @Test func namesAHolder() throws {
        try make("held")
        let process = try RunningProcess(
            "sh", ["-c", Word("exec 3<'\(root.path.string)/held'; echo ready; read line")])
        try process.line { $0 == "ready" }
        let identity = try #require(try directory.status("held")?.identity)
        let holder = FileHolder(pid: process.pid, program: "sh")
        #expect(FileHolder.of(identity) == [holder])
        #expect(FileHolder(process: process.pid) == holder)
        process.closeInput()
        try process.wait()
        #expect(FileHolder.of(identity).isEmpty)
        // It may end between the look at its files and the look at its name.
        #expect(FileHolder(process: process.pid) == nil)
    }
}

@Suite struct MountPointTests {
    @Test(arguments: [("/a", "/a"), ("/a\\040b\\134\\011", "/a b\\\t"), ("/a\\04", "/a\\04"), ("/\\303\\251", "/é")])
    func unescapesMountTablePaths(_ escaped: String, _ path: String) {
        #expect(MountPoints.unescaped(Array(escaped.utf8)[...]) == Array(path.utf8))
    }

    @Test func aPlainDirectoryIsNoMountPoint() throws {
        let place = try TemporaryDirectory()
        let directory = try Directory(place.path)
        try directory.makeDirectory("inside", mode: 0o700)
        #expect(try directory.mountPoint(within: "inside") == nil)
        #expect(try directory.mountPoint(within: "nothing") == nil)
        #expect(try Directory("/").isMountPoint("proc"))
    }
}
