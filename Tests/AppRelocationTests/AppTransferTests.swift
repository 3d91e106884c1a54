import AppRelocation
import Glibc
import LinuxSystem
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

/// What a copy keeps, and when it is refused.
@Suite(.ownThreads) struct AppTransferTests {
    private func status(_ path: FilePath) throws -> FileStatus {
        let name = try #require(path.lastComponent)
        return try #require(try Directory(path.removingLastComponent()).status(name))
    }

    @Test func keepsModesTimesLinksHolesAndFIFOs() throws {
        let rig = try AppRig(.another)
        let names = ["file", "sub", "sub/deep", "sparse", "fifo"]
        let before = try names.map { try status(rig.source.pushing(FilePath($0))) }
        let summary = try AppRelocation(rig.request()).run()
        #expect(summary.method == .copy)
        let after = try names.map { try status(rig.destination.pushing(FilePath($0))) }
        #expect(after.map(\.permissions) == before.map(\.permissions))
        #expect(after.map(\.owner) == before.map(\.owner))
        #expect(after.map(\.modified) == before.map(\.modified))
        #expect(after[0].identity == (try status(rig.destination.pushing("sub/hard"))).identity)
        #expect(after[3].allocated < 1 << 17)
        #expect(after[4].kind == .other)
        let link = try Directory(rig.destination).linkTarget("absolute")
        #expect(link == rig.source.appending("file"))
        #expect(summary.notes.contains { $0.contains("absolute") })
    }

    @Test func copiesAFileAgainThatChangesMeanwhile() throws {
        let rig = try AppRig(.another)
        var isChanged = false
        let file = rig.source.appending("file")
        let move = AppRelocation(rig.request()) {
            false
        } report: { _ in
        } step: { step in
            guard step == .copiedFile, !isChanged else { return }
            isChanged = true
            let writer = try Descriptor(opening: file, flags: O_WRONLY)
            try writer.write(Array("new!".utf8), at: 0)
        }
        _ = try move.run()
        let moved = try Descriptor(opening: rig.destination.appending("file"), flags: O_RDONLY)
        #expect(try moved.read(count: 4, at: 0) == Array("new!".utf8))
    }

    @Test func aChangeAfterTheCopyIsNotLost() throws {
        let rig = try AppRig(.another)
        var times = 0
        let file = rig.source.appending("file")
        let move = AppRelocation(rig.request()) {
            false
        } report: { _ in
        } step: { step in
            guard step == .copied else { return }
            times += 1
            guard times == 1 else { return }
            let writer = try Descriptor(opening: file, flags: O_WRONLY)
            try writer.write(Array("late".utf8), at: 0)
        }
        _ = try move.run()
        #expect(times == 2)
        let moved = try Descriptor(opening: rig.destination.appending("sub/hard"), flags: O_RDONLY)
        #expect(try moved.read(count: 4, at: 0) == Array("late".utf8))
    }

    @Test func refusesAFileThatKeepsChanging() throws {
        let rig = try AppRig(.another)
        let file = rig.source.appending("file")
        let move = AppRelocation(rig.request(deadline: .zero)) {
            false
        } report: { _ in
        } step: { step in
            guard step == .copied else { return }
            let writer = try Descriptor(opening: file, flags: O_WRONLY)
            try writer.write(Array("more".utf8), at: 0)
        }
        let failure = #expect(throws: RelocationFailure.self) { try move.run() }
        #expect(failure?.code == "changing")
        #expect(try !rig.isLink(rig.source))
        #expect(try rig.rows(rig.source) == "100")
        #expect(try rig.leftovers() == [])
        #expect(FileStatus(following: rig.destination) == nil)
    }

    /// After the commit, a file that appeared at the old place is not removed.
    @Test func keepsWhatWasNotCopied() throws {
        let rig = try AppRig(.another)
        let hidden = rig.source.removingLastComponent()
        let move = AppRelocation(rig.request()) {
            false
        } report: { _ in
        } step: { step in
            guard step == .receipt else { return }
            let name = try #require(try Directory(hidden).names().first { $0.string.hasPrefix(".groupstore-") })
            let file = try Directory(hidden).directory(name).open("late", flags: O_WRONLY | O_CREAT, mode: 0o600)
            try file.write(Array("precious".utf8), at: 0)
        }
        let summary = try move.run()
        #expect(summary.notes.contains { $0.hasPrefix("1 files stay") }, "\(summary.notes)")
        let name = try #require(try Directory(hidden).names().first { $0.string.hasPrefix(".groupstore-") })
        #expect(try Directory(hidden).directory(name).names() == ["late"])
    }

    @Test(arguments: AppRig.FileSystem.allCases) func refusesAnOpenStoreAndNamesItsProgram(
        _ fileSystem: AppRig.FileSystem
    ) throws {
        let rig = try AppRig(fileSystem)
        let store = rig.source.appending("store.db")
        let shell = try RunningProcess("sqlite3", ["-batch", "-init", "/dev/null", Word(store)])
        shell.send("SELECT 'open', count(*) FROM t;")
        try shell.line { $0.hasPrefix("open") }
        let failure = #expect(throws: RelocationFailure.self) {
            try AppRelocation(rig.request(deadline: .zero)).run()
        }
        #expect(failure?.code == "in_use")
        #expect(failure?.holders.map(\.program) == ["sqlite3"])
        #expect(try !rig.isLink(rig.source))
        shell.closeInput()
        try shell.wait()
        #expect(try AppRelocation(rig.request()).run().outcome == .moved)
        #expect(try rig.rows(rig.destination) == "100")
    }

    @Test(arguments: AppRig.FileSystem.allCases) func refusesATakenPlace(_ fileSystem: AppRig.FileSystem) throws {
        let rig = try AppRig(fileSystem)
        try Directory(rig.destination.removingLastComponent()).makeDirectory("moved", mode: 0o755)
        let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(rig.request()).run() }
        #expect(failure?.code == "destination_taken")
        #expect(try !rig.isLink(rig.source))
        let beside = try Directory(rig.destination.removingLastComponent()).names()
        #expect(!beside.contains(".groupstore"))
    }

    @Test func aDryRunChangesNothing() throws {
        let rig = try AppRig(.another)
        let before = try DirectorySnapshot(rig.source.removingLastComponent(), withBookkeeping: true)
        let preview = try AppRelocation(rig.request()).dryRun()
        #expect(preview.method == .copy)
        #expect(preview.contents.stores?.map(\.string).sorted() == ["store.db", "sub/small.db"])
        #expect(try DirectorySnapshot(rig.source.removingLastComponent(), withBookkeeping: true) == before)
        #expect(try Directory(rig.destination.removingLastComponent()).names() == [])
    }
}
