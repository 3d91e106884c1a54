import GRDB
import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelocation

/// Tests that a dry run refuses what the run would refuse after some of its work, and that neither leaves anything.
@Suite(.ownThreads) struct PreconditionTests {
    private let rig: TransferRig
    private let elsewhere: TemporaryDirectory
    private let support: Directory

    init() throws {
        rig = try TransferRig()
        elsewhere = try TemporaryDirectory(in: "/dev/shm")
        let queue = try DatabaseQueue(path: rig.legacy.path.string)
        try queue.writeWithoutTransaction { try $0.execute(sql: "CREATE TABLE note (id)") }
        try queue.close()
        try rig.legacy.directory.makeDirectory(rig.legacy.name.support, mode: 0o755)
        support = try rig.legacy.directory.directory(rig.legacy.name.support)
        try DurableFile.write([1], as: "1F2E", in: support, mode: 0o644)
    }

    private func expectRefusal(_ code: String, of path: FilePath, to group: FilePath) throws {
        let relocation = Relocation(RelocationRequest(source: rig.legacy.path, group: group))
        for attempt in [{ _ = try relocation.dryRun() }, { try relocation.refuseBeforeFirstRecord() }] {
            let failure = #expect(throws: RelocationFailure.self) { try attempt() }
            #expect(failure?.code == code && failure?.message.contains(path.string) == true, "\(failure as Any)")
        }
        #expect(try Directory(group).names() == [])
    }

    @Test func aLinkAmongExternalFilesIsNotCopied() throws {
        try #require(symlink("/etc", support.path.appending("link").string) == 0)
        try expectRefusal("unusual_file", of: support.path.appending("link"), to: elsewhere.path)
        // On the same file system the folder moves as it is.
        let relocation = Relocation(RelocationRequest(source: rig.legacy.path, group: rig.container.directory.path))
        #expect(try relocation.dryRun().outcome == .relocated)
    }

    @Test func aFIFOAmongExternalFilesIsNotCopied() throws {
        try #require(mkfifo(support.path.appending("fifo").string, 0o600) == 0)
        try expectRefusal("unusual_file", of: support.path.appending("fifo"), to: elsewhere.path)
    }

    @Test(.enabled(if: geteuid() == 0, "needs root, for chattr"), arguments: ["a", "i"])
    func whatNobodyMayMoveIsNamed(attribute: String) throws {
        for (path, group) in [
            (rig.legacy.path, rig.container.directory.path), (rig.legacy.directory.path, rig.container.directory.path),
            (rig.container.directory.path, rig.container.directory.path),
            (support.path.appending("1F2E"), elsewhere.path),
        ] {
            // Not every file system has the attributes.
            guard try run("chattr", [Word("+" + attribute), Word(path)]).status == 0 else { return }
            defer { _ = try? run("chattr", [Word("-" + attribute), Word(path)]) }
            try expectRefusal("not_writable", of: path, to: group)
        }
    }
}
