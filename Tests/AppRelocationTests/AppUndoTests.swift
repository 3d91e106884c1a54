import AppRelocation
import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

/// What stays of a move that was taken back.
@Suite(.ownThreads) struct AppUndoTests {
    private func records(_ rig: AppRig) -> FilePath {
        rig.destination.removingLastComponent().appending(".groupstore")
    }

    @Test(arguments: AppRig.FileSystem.allCases) func aSecondUndoHasNothingToDo(_ fileSystem: AppRig.FileSystem) throws
    {
        let rig = try AppRig(fileSystem)
        let move = AppRelocation(rig.request())
        #expect(try move.undo().outcome == .nothingToUndo)
        #expect(FileStatus(following: records(rig)) == nil)
        _ = try move.run()
        #expect(try move.undo().outcome == .undone)
        #expect(FileStatus(following: records(rig)) == nil)
        #expect(try AppRelocation.recorded(rig.source) == nil)
        #expect(try move.undo().outcome == .nothingToUndo)
        #expect(try rig.rows(rig.source) == "100")
    }

    /// A kill between the removal of the journal and that of the note.
    @Test func theNextRunRemovesTheNoteOfAFinishedMove() throws {
        let rig = try AppRig(.same)
        let parent = try Directory(rig.source.removingLastComponent())
        var note: AppMove?
        _ = try AppRelocation(rig.request()) {
            false
        } report: { _ in
        } step: { step in
            if step == .journalled { note = AppUndoNote.find(from: rig.source, in: parent) }
        }.run()
        #expect(try rig.leftovers() == [])
        try AppUndoNote.write(try #require(note), in: parent)
        #expect(try AppRelocation(rig.request()).run().outcome == .alreadyMoved)
        #expect(try rig.leftovers() == [])
    }

    /// A kill between the removal of the journal and that of the note. The directory then moves to another place.
    @Test(arguments: [true, false]) func theNextMoveRemovesTheNoteOfAFinishedUndo(_ isInSameGroup: Bool) throws {
        let rig = try AppRig(.same)
        let parent = try Directory(rig.source.removingLastComponent())
        _ = try AppRelocation(rig.request()).run()
        var note: AppMove?
        _ = try AppRelocation(rig.request()) {
            false
        } report: { _ in
        } step: { step in
            if step == .journalled { note = AppUndoNote.find(for: rig.source, in: parent) }
        }.undo()
        try AppUndoNote.write(try #require(note), in: parent)
        let group = (isInSameGroup ? rig.destination : rig.source).removingLastComponent()
        let third = AppMoveRequest(source: rig.source, destination: group.appending("third"))
        #expect(try AppRelocation(third).run().outcome == .moved)
        let places = try #require(try AppRelocation.recorded(rig.source))
        #expect(places.destination == third.destination)
        #expect(try AppRelocation(third).undo().outcome == .undone)
        #expect(try rig.leftovers() == [])
        #expect(try rig.rows(rig.source) == "100")
    }

    /// An installer makes its directory again where the link was.
    @Test func eitherPlaceTellsThatTheLinkWasReplaced() throws {
        let rig = try AppRig(.same)
        _ = try AppRelocation(rig.request()).run()
        let parent = try Directory(rig.source.removingLastComponent())
        try parent.removeFile("app")
        try parent.makeDirectory("app", mode: 0o755)
        #expect(try AppRelocation.recorded(rig.source) == nil, "no group is known")
        let places = try #require(
            try AppRelocation.recorded(rig.source) { [rig.destination.removingLastComponent()] })
        #expect(places == (rig.source, rig.destination))
        let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(rig.request()).undo() }
        #expect(failure?.code == "destination_taken")
    }

    /// Another directory at the new place may be the one that the user means.
    @Test func anUndoWithoutARecordIsRefusedIfBothPlacesAreTaken() throws {
        let rig = try AppRig(.same)
        try Directory(rig.destination.removingLastComponent()).makeDirectory("moved", mode: 0o755)
        let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(rig.request()).undo() }
        #expect(failure?.code == "no_receipt")
    }

    /// The store's receipt names its old place, which the link of the directory's move makes another one.
    @Test(arguments: AppRig.FileSystem.allCases)
    func theUndoOfARelocationNamesTheMoveOfItsDirectory(_ fileSystem: AppRig.FileSystem) throws {
        let rig = try AppRig(fileSystem)
        let group = rig.source.removingLastComponent().appending("group")
        try Directory(group.removingLastComponent()).makeDirectory("group", mode: 0o755)
        let store = rig.source.appending("store.db")
        var request = RelocationRequest(source: store, group: group)
        request.retirement = .symlink
        _ = try Relocation(request).run()
        _ = try AppRelocation(rig.request()).run()
        let commands = "groupstore move-app --undo \(rig.source) && groupstore relocate \(store) \(group) --undo"
        for path in [store, rig.destination.appending("store.db")] {
            let named = RelocationRequest(source: path, group: group)
            let failure = #expect(throws: RelocationFailure.self) { try Relocation(named).undo() }
            #expect(failure?.remedy.hasSuffix(": " + commands) == true, "\(failure?.remedy ?? "")")
        }
        #expect(try AppRelocation(rig.request()).undo().outcome == .undone)
        #expect(try Relocation(request).undo().outcome == .undone)
        #expect(try rig.rows(rig.source) == "100")
    }

    @Test func theRemedyForAnImmutableFileInTheWayRuns() throws {
        let rig = try AppRig(.same)
        _ = try AppRelocation(rig.request()).run()
        let script = "rm \"$1\" && echo text >\"$1\" && chattr +i \"$1\""
        guard try run("sh", ["-c", Word(script), "sh", Word(rig.source)]).status == 0 else { return }
        let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(rig.request()).undo() }
        let foreseen = #expect(throws: RelocationFailure.self) { try AppRelocation(rig.request()).dryRunOfUndo() }
        #expect(foreseen?.remedy == failure?.remedy)
        #expect(failure?.code == "destination_taken" && failure?.message.hasSuffix("and immutable") == true)
        let remedy = try #require(failure?.remedy.split(separator: ": ").last)
        #expect(try run("sh", ["-c", Word(String(remedy))]).status == 0, "\(remedy)")
        #expect(try AppRelocation(rig.request()).undo().outcome == .undone)
    }

    @Test func anImmutableDirectoryIsRefused() throws {
        let rig = try AppRig(.same)
        guard try run("chattr", ["+i", Word(rig.source)]).status == 0 else { return }
        for isDry in [true, false] {
            let failure = #expect(throws: RelocationFailure.self) {
                let move = AppRelocation(rig.request())
                _ = try isDry ? move.dryRun().outcome.rawValue : move.run().outcome.rawValue
            }
            #expect(failure?.code == "immutable" && failure?.remedy.hasSuffix("chattr -ia \(rig.source)") == true)
        }
        try run("chattr", ["-ia", Word(rig.source)])
        #expect(try AppRelocation(rig.request()).run().outcome == .moved)
    }

    @Test func theRecordsOfAnotherMoveStay() throws {
        let (rig, other) = (try AppRig(.same), try AppRig(.same))
        var request = other.request()
        request.destination = rig.destination.removingLastComponent().appending("other")
        _ = try AppRelocation(request).run()
        _ = try AppRelocation(rig.request()).run()
        _ = try AppRelocation(rig.request()).undo()
        #expect(FileStatus(following: records(rig)) != nil)
        #expect(try AppRelocation(request).undo().outcome == .undone)
        #expect(FileStatus(following: records(rig)) == nil)
    }

    @Test func aFileOfSomebodyElseKeepsTheRecords() throws {
        let rig = try AppRig(.same)
        _ = try AppRelocation(rig.request()).run()
        try run("touch", [Word(records(rig).appending("mine"))])
        _ = try AppRelocation(rig.request()).undo()
        #expect(try Directory(records(rig)).names().contains("mine"))
    }

    /// A process that waits for the lock gets one on a file that has a name.
    @Test func theLockOutlivesTheRecords() throws {
        let rig = try AppRig(.same)
        let container = try GroupContainer(rig.destination.removingLastComponent())
        guard let first = try container.lock() else { throw Errno.deadlock }
        container.removeUnusedRecords()
        #expect(FileStatus(following: records(rig)) == nil)
        guard let second = try container.lock() else { throw Errno.deadlock }
        if try container.lock() != nil { throw Errno.fileExists }
        withExtendedLifetime(first) { _ in }
        withExtendedLifetime(second) { _ in }
    }
}
