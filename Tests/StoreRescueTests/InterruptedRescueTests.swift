import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import StoreRelocation
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import StoreRescue

/// A program ends, or a rescue fails or is killed, between the copy of a branch and its join.
@Suite(.ownThreads) struct InterruptedRescueTests {
    private let rig: RescueRig

    init() throws {
        rig = try RescueRig()
    }

    /// Returns a program with a row in a lost log, beside another row at the name.
    private func split() throws -> SQLiteHolder {
        let first = try rig.holder()
        try first.insert(2, "first")
        rig.unlink("-wal", "-shm")
        try rig.sql(rig.path, "INSERT INTO t VALUES (3, 'other')")
        return first
    }

    /// Fails once the branch is archived. Returns the failure.
    private func failLate() throws -> RelocationFailure {
        let container = try Relocation.container(at: rig.store.directory.path)
        let failure = #expect(throws: RelocationFailure.self) {
            try rig.rescue(isCancelled: { (try? SavedBranches(container).archived().isEmpty) == false }).run()
        }
        return try #require(failure)
    }

    @Test func aLateFailureNamesTheArchiveAndTheNextRunJoinsIt() throws {
        let first = try split()
        let failure = try failLate()
        #expect(try rig.rows() == ["1=base", "3=other"])
        let archived = try #require(try rig.archivedBranches().first)
        #expect(archived.rows == ["1=base", "2=first"] && !archived.isJoined)
        #expect(failure.message.contains("/.groupstore/archive/"), "\(failure.message)")
        // The only other copy goes.
        try first.kill()
        #expect(try StoreRescue.interrupted(in: rig.store.directory.path, settling: false, rig.request()).count == 1)
        let plan = try rig.rescue().dryRun()
        #expect(plan.outcome == .rescued && plan.branches.map(\.code) == ["archived"])
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "3=other"])
        #expect(try rig.archivedBranches().map(\.isJoined) == [true])
        #expect(try rig.rescue().run().outcome == .nothingToDo)
        #expect(try StoreRescue.interrupted(in: rig.store.directory.path, settling: true, rig.request()).isEmpty)
    }

    /// A later copy of the same files replaces an earlier one: what was deleted in between must not come back.
    @Test func joinsOnlyTheLatestCopyOfABranch() throws {
        let first = try split()
        _ = try failLate()
        try first.run("c.execute('DELETE FROM t WHERE id = 2')")
        try first.insert(4, "late")
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "3=other", "4=late"])
        try first.kill()
        #expect(try rig.rescue().run().outcome == .nothingToDo)
        #expect(try rig.rows() == ["1=base", "3=other", "4=late"])
    }

    @Test func savesABranchBeforeItWaitsForOtherPrograms() throws {
        // Used by the rescue's thread alone, which is this one.
        nonisolated(unsafe) let first = try split()
        nonisolated(unsafe) let other = try rig.holder()
        try other.insert(4, "open")
        let hasEnded = Atomic<Bool>(false)
        let report = try rig.rescue(isCancelled: {
            // Called first while the rescue waits.
            guard !hasEnded.exchange(true, ordering: .relaxed) else { return false }
            try? first.kill()
            try? other.end()
            return false
        }).run()
        #expect(report.outcome == .rescued && report.branches.map(\.code) == ["archived"])
        #expect(try rig.rows() == ["1=base", "2=first", "3=other", "4=open"])
    }

    /// A presenter that closes its lost log checkpoints it into the store, and removes the log at the store's name.
    @Test func savesABranchBeforeItAsksItsProgramToCloseTheStore() throws {
        let first = try rig.holder()
        try first.insert(2, "first")
        rig.unlink("-wal", "-shm")
        let other = try rig.holder()
        try other.insert(3, "other")
        try other.kill()
        let registry = try rig.presenting(first) { try? first.run("c.close()") }
        let report = try rig.rescue(registry: registry).run()
        #expect(report.outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "3=other"])
        try first.end()
    }

    /// A program has a former database open, and the store at its name too: told to close it, it closes both.
    @Test func keepsABranchWhoseProgramIsToldToCloseTheStore() throws {
        let first = try rig.holder()
        try rig.replace(rows: "(1, 'base')")
        rig.unlink("-wal", "-shm")
        try first.insert(2, "first")
        try first.run("d = sqlite3.connect(path); d.execute('SELECT * FROM t').fetchall()")
        let failure = #expect(throws: RelocationFailure.self) { try rig.rescue(deadline: .zero).run() }
        #expect(failure?.code == "in_use" && failure?.holders.map(\.pid) == [first.pid])
        #expect(failure?.message.contains("/.groupstore/archive/") == true, "\(failure?.message ?? "")")
        try first.end()
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first"])
    }

    /// The program may end right after a refusal. There is one copy, however often the rescue is refused.
    @Test func keepsACopyOfABranchInConflict() throws {
        let first = try split()
        try first.insert(3, "conflict")
        let saved = try SavedBranches(Relocation.container(at: rig.store.directory.path))
        for value in 4...5 {
            try first.insert(value, "more")
            let failure = #expect(throws: RelocationFailure.self) { try rig.rescue().run() }
            let copies = try saved.copies()
            #expect(copies.count == 1)
            let place = try #require(copies.first).location
            #expect(failure?.message.contains(place.directory.path.string) == true, "\(failure?.message ?? "")")
            #expect(try rig.rows(place.path).count == value)
        }
        try first.kill()
        #expect(try rig.rescue(prefer: .legacy).run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "3=conflict", "4=more", "5=more"])
        #expect(try saved.copies().isEmpty)
    }

    @Test func copiesABranchWithoutJoiningIt() throws {
        let first = try split()
        let saved = try SavedBranches(Relocation.container(at: rig.store.directory.path))
        let failure = #expect(throws: RelocationFailure.self) { try rig.rescue().copyBranches(limit: 4096) }
        #expect(try failure?.code == "too_large" && saved.copies().isEmpty)
        for value in 4...5 {
            try first.insert(value, "more")
            let report = try rig.rescue().copyBranches(limit: 1 << 20)
            #expect(try report.outcome == .copied && report.branches.count == 1 && saved.copies().count == 1)
            #expect(try rig.rows(try #require(saved.copies().first).location.path).count == value - 1)
        }
        #expect(try rig.rows() == ["1=base", "3=other"])
        #expect(try rig.rescue().run().outcome == .rescued)
        // The archive has the content: it must not come back as a later copy.
        let report = try rig.rescue().copyBranches()
        #expect(report.branches.map(\.isJoined) == [true] && report.branches.first?.copy == nil)
        #expect(try saved.copies().isEmpty)
        try first.kill()
        #expect(try rig.rescue().run().outcome == .nothingToDo)
    }

    /// Copies alone must not sound like nothing.
    @Test func namesTheCopiesOfProgramsThatHaveEnded() throws {
        let first = try split()
        let copied = try rig.rescue().copyBranches()
        try first.kill()
        let report = try rig.rescue().copyBranches()
        #expect(report.outcome == .copied && report.branches.map(\.code) == ["archived"])
        #expect(report.branches.first?.copy == copied.branches.first?.copy)
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rescue().copyBranches().outcome == .nothingToDo)
    }

    /// A rescue was killed as it copied, and nothing proves that the files are elsewhere.
    @Test(arguments: [false, true]) func leavesAnUnfinishedCopyOfFilesThatAreGone(isRecorded: Bool) throws {
        let first = try split()
        let branch = try #require(OrphanedBranch.find(rig.store).first)
        let container = try Relocation.container(at: rig.store.directory.path)
        func interrupt() throws -> FilePath {
            let run = try GroupContainer.child("7-a", of: GroupContainer.child("rescue", of: container.bookkeeping()))
            let place = try GroupContainer.child("branch-0", of: run)
            if isRecorded { try BranchRecord(name: rig.store.name.database, branch: branch.record).write(in: place) }
            let file = place.path.appending("building")
            try rig.sql(file, "CREATE TABLE IF NOT EXISTS x (y)")
            return file
        }
        // Its files are open: they can be copied again.
        let file = try interrupt()
        #expect(try StoreRescue.interrupted(in: rig.store.directory.path, settling: true, rig.request()).isEmpty)
        #expect((FileStatus(following: file) == nil) == isRecorded)
        _ = try interrupt()
        try first.kill()
        // Used by this thread alone.
        var notes: [String] = []
        let rescue = StoreRescue(
            rig.store, .init(), rig.request(),
            report: { event in
                if case .note(let text) = event { notes.append(text) }
            })
        #expect(try rescue.run().outcome == .nothingToDo)
        #expect(FileStatus(following: file) != nil)
        #expect(notes.contains { $0.contains(file.removingLastComponent().string) }, "\(notes)")
        // `recover` names it too.
        for settling in [false, true] {
            var said: [String] = []
            _ = try StoreRescue.interrupted(in: rig.store.directory.path, settling: settling, rig.request()) {
                said.append($0)
            }
            #expect(said.count == 1 && said[0].contains("/.groupstore/rescue"), "\(said)")
        }
    }

    /// A rescue was killed before it copied anything: no content is there.
    @Test(arguments: ["rescue", "copy", "recover", "record half written", "no record"])
    func removesADirectoryWithoutACopy(how: String) throws {
        let first = try split()
        let branch = try #require(OrphanedBranch.find(rig.store).first)
        let container = try Relocation.container(at: rig.store.directory.path)
        let run = try GroupContainer.child("7-a", of: GroupContainer.child("rescue", of: container.bookkeeping()))
        let place = try GroupContainer.child("branch-0", of: run)
        let record = BranchRecord(name: rig.store.name.database, branch: branch.record)
        if how != "no record" { try record.write(in: place) }
        if how == "record half written" { try place.rename("branch.json", to: "branch.json.new", in: place, .refuse) }
        try first.end()
        // The branch's program may have closed the store as the last one.
        let directory = rig.store.directory.path
        #expect(try StoreRescue.interrupted(in: directory, settling: false, rig.request()).isEmpty)
        #expect(FileStatus(following: place.path) != nil, "a dry run removes nothing")
        switch how {
        case "copy": _ = try rig.rescue().copyBranches()
        case "recover": _ = try StoreRescue.interrupted(in: directory, settling: true, rig.request())
        default: #expect(try rig.rescue().run().outcome == .nothingToDo)
        }
        #expect(FileStatus(following: run.path.removingLastComponent()) == nil)
    }

    /// Another store of the same directory.
    @Test func leavesTheCopiesOfOtherStores() throws {
        let first = try split()
        let container = try Relocation.container(at: rig.store.directory.path)
        let run = try GroupContainer.child("7-a", of: GroupContainer.child("rescue", of: container.bookkeeping()))
        let place = try GroupContainer.child("branch-0", of: run)
        try BranchRecord(
            name: "Other.sqlite",
            branch: .init(
                database: .init(identity: FileIdentity(device: 1, inode: 1), birth: nil), log: nil, holders: "another")
        ).write(in: place)
        try rig.sql(place.path.appending("store"), "CREATE TABLE x (y)")
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "3=other"])
        #expect(try rig.archivedBranches().count == 1)
        #expect(try SavedBranches(container).copies().map(\.name) == ["Other.sqlite"])
        // `recover` moves it to the archive, and names the command that joins it.
        let left = try StoreRescue.interrupted(in: rig.store.directory.path, settling: true, rig.request())
        #expect(left.map(\.store) == [rig.store.directory.path.appending("Other.sqlite")])
        #expect(try SavedBranches(container).copies().isEmpty)
        try first.end()
    }

    /// A joined branch is joined again if the result has lost the store's name since.
    @Test(arguments: [false, true]) func joinsABranchAgainIfTheResultIsGone(isReplaced: Bool) throws {
        let first = try split()
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rescue().dryRun().outcome == .nothingToDo)
        if isReplaced { try rig.replace(rows: "(1, 'base'), (9, 'backup')") } else { rig.unlink("", "-wal", "-shm") }
        #expect(try rig.rescue().dryRun().outcome == .rescued)
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first"] + (isReplaced ? ["9=backup"] : []))
        try first.end()
    }
}
