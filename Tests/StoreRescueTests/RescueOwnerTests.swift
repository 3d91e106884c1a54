import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

@testable import StoreRescue

/// Root rescues another user's store. That user must be able to list the archive, and to run the next rescue.
@Suite(.ownThreads, .enabled(if: geteuid() == 0, "needs root, to give files away")) struct RescueOwnerTests {
    private let rig: RescueRig

    init() throws {
        rig = try RescueRig()
    }

    /// Returns a program with a row in a lost log of another user's store.
    private func split() throws -> SQLiteHolder {
        let first = try rig.holder()
        try first.insert(2, "first")
        let directory = rig.store.directory.path
        #expect(try run("chown", ["-R", "65534:65534", Word(directory)]).status == 0)
        #expect(chmod(rig.path.string, 0o600) == 0)
        rig.unlink("-wal", "-shm")
        return first
    }

    /// The files that are root's.
    private var rootsFiles: String {
        get throws { try run("find", [Word(rig.store.directory.path), "-not", "-uid", "65534"]).output }
    }

    @Test func theArchiveBelongsToTheStoresOwner() throws {
        let first = try split()
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rootsFiles == "")
        let container = try Relocation.container(at: rig.store.directory.path)
        let copy = try #require(try SavedBranches(container).archived().first)
        #expect(FileStatus(following: copy.location.path)?.permissions == 0o600)
        #expect(FileStatus(following: rig.path)?.permissions == 0o600)
        try first.end()
    }

    /// A rescue that is killed leaves copies, with the files of a program that may have ended meanwhile.
    @Test(arguments: [false, true]) func theCopiesBelongToTheStoresOwner(endsMeanwhile: Bool) throws {
        let first = try split()
        let branch = try #require(OrphanedBranch.find(rig.store).first)
        let container = try Relocation.container(at: rig.store.directory.path)
        let run = try GroupContainer.child("7-a", of: GroupContainer.child("rescue", of: container.bookkeeping()))
        if endsMeanwhile {
            let place = try GroupContainer.child("branch-0", of: run)
            _ = try BranchCopy(
                branch.database, nil,
                journal: .named {
                    // The database is open by now.
                    try? first.kill()
                    return nil
                }, ownWriters: false, in: place, of: rig.path, subject: "it",
                record: BranchRecord(name: rig.store.name.database, branch: branch.record))
        } else {
            _ = try BranchCopies.copy(branch, 0, of: rig.store, in: run, recording: true)
        }
        #expect(try rootsFiles == "")
        #expect(try SavedBranches(container).copies().count == 1)
    }
}
