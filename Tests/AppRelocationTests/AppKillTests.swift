import AppRelocation
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

/// A move that ends at each of its steps as a kill ends it, and the run after it.
@Suite(.ownThreads) struct AppKillTests {
    /// Runs a move, or its way back, up to the first time of a step. Returns false if that doesn't come.
    private func kill(_ rig: AppRig, at wanted: AppMoveStep, undoing: Bool = false) throws -> Bool {
        let move = AppRelocation(rig.request()) {
            false
        } report: { _ in
        } step: { step in
            if step == wanted { throw AppRelocation.Abandonment() }
        }
        do {
            _ = try undoing ? move.undo() : move.run()
            return false
        } catch {
            #expect(error.underlyingError is AppRelocation.Abandonment, "\(error)")
            return true
        }
    }

    /// The steps before which something else is on the disk than before the step before. `script/soak apps` tries each
    /// call that changes a disk.
    private static let points: [(AppRig.FileSystem, AppMoveStep)] =
        [(.same, .linked), (.same, .renamed)]
        + [AppMoveStep.copied, .withdrawn, .committing, .published, .removedFile, .retired].map { (.another, $0) }

    /// The next undo needs only the old path, also when the directory has its name back and no link leads anywhere.
    @Test(arguments: points)
    func theNextRunAndTheNextUndoFinishIt(_ fileSystem: AppRig.FileSystem, _ step: AppMoveStep) throws {
        let rig = try AppRig(fileSystem)
        let before = try rig.files(rig.source)
        #expect(try kill(rig, at: step))
        let summary = try AppRelocation(rig.request()).run()
        #expect([.moved, .alreadyMoved].contains(summary.outcome))
        #expect(try rig.isLink(rig.source))
        #expect(try rig.files(rig.destination) == before)
        #expect(try rig.rows(rig.destination) == "100")
        #expect(try rig.leftovers() == [])
        #expect(try AppRelocation(rig.request()).run().outcome == .alreadyMoved)
        #expect(try kill(rig, at: step, undoing: true))
        let places = try #require(try AppRelocation.recorded(rig.source))
        #expect(places.destination == rig.destination)
        #expect(try AppRelocation(rig.request()).undo().outcome == .undone)
        try expectReturned(rig, before)
    }

    /// `recover` ends the move as its journal and the disk say, and not as the next run of the same move would.
    @Test(arguments: points)
    func recoverFinishesItOrTakesItBack(_ fileSystem: AppRig.FileSystem, _ step: AppMoveStep) throws {
        let rig = try AppRig(fileSystem)
        let before = try rig.files(rig.source)
        let group = rig.destination.removingLastComponent()
        #expect(try AppRelocation.interrupted(in: group) == nil)
        #expect(try kill(rig, at: step))
        let expected = try #require(try AppRelocation.interrupted(in: group))
        #expect(expected.purpose == .moveApp && expected.from == rig.source && expected.to == rig.destination)
        var found: [String] = []
        let request = AppMoveRequest(source: group, destination: group)
        let recovered = try AppRelocation(request).recover { found.append($0.id) }
        #expect(found == [expected.id] && recovered?.remedy == expected.remedy)
        switch expected.remedy {
        case .finish:
            #expect(try rig.isLink(rig.source))
            #expect(try rig.files(rig.destination) == before)
            #expect(try rig.rows(rig.destination) == "100")
            #expect(try rig.leftovers() == [])
        case .undo: try expectReturned(rig, before)
        }
        #expect(try AppRelocation.interrupted(in: group) == nil)
        #expect(try AppRelocation(rig.request()).run().outcome == (expected.remedy == .finish ? .alreadyMoved : .moved))
    }

    private func expectReturned(_ rig: AppRig, _ before: [[UInt8]: DirectorySnapshot.Entry]) throws {
        #expect(try !rig.isLink(rig.source))
        #expect(try rig.files(rig.source) == before)
        #expect(try rig.rows(rig.source) == "100")
        #expect(FileStatus(following: rig.destination) == nil)
        let leftovers = try rig.leftovers()
        #expect(leftovers == [])
    }

    /// Two moves at once: the other one has taken the directory to its place meanwhile.
    @Test func aMoveThatAnotherHasOvertakenLeavesNothing() throws {
        let rig = try AppRig(.another)
        let before = try rig.files(rig.source)
        #expect(try kill(rig, at: .copied))
        let parent = rig.source.removingLastComponent()
        let note = try #require(try Directory(parent).names().first { $0.string.hasSuffix(".undo") })
        let journal = rig.destination.removingLastComponent().pushing(".groupstore/app-journal.json")
        // The other one has seen neither.
        for file in [parent.appending(note), journal] { try run("mv", [Word(file), Word("\(file).aside")]) }
        let winner = try TemporaryDirectory(in: "/dev/shm")
        let request = AppMoveRequest(source: rig.source, destination: winner.path.appending("taken"))
        #expect(try AppRelocation(request).run().outcome == .moved)
        for file in [parent.appending(note), journal] { try run("mv", [Word("\(file).aside"), Word(file)]) }
        let group = rig.destination.removingLastComponent()
        let recovered = try AppRelocation(AppMoveRequest(source: group, destination: group)).recover()
        #expect(recovered?.remedy == .undo)
        #expect(try rig.leftovers() == [])
        #expect(try rig.files(request.destination) == before)
        #expect(try rig.isLink(rig.source))
    }

    /// A directory that is named as the one to move, or as the place to move to, is first brought back whole.
    @Test(arguments: [true, false]) func aMoveFinishesAKilledUndo(_ isForward: Bool) throws {
        let rig = try AppRig(.another)
        let before = try rig.files(rig.source)
        _ = try AppRelocation(rig.request()).run()
        #expect(try kill(rig, at: .published, undoing: true))
        var request = AppMoveRequest(source: rig.destination, destination: rig.source)
        if isForward {
            let elsewhere = rig.source.removingLastComponent().appending("elsewhere")
            request = AppMoveRequest(source: rig.source, destination: elsewhere)
        }
        #expect(try AppRelocation(request).run().outcome == (isForward ? .moved : .undone))
        if isForward { #expect(try AppRelocation(request).undo().outcome == .undone) }
        try expectReturned(rig, before)
    }

    @Test func aKilledCopyGoesOn() throws {
        let rig = try AppRig(.another)
        var files = 0
        let killed = AppRelocation(rig.request()) {
            false
        } report: { _ in
        } step: { step in
            files += step == .copiedFile ? 1 : 0
            if step == .copied { throw AppRelocation.Abandonment() }
        }
        #expect(throws: RelocationFailure.self) { try killed.run() }
        let summary = try AppRelocation(rig.request()).run()
        // The two stores are locked anew, which may write to them.
        #expect(summary.resumedFiles >= files - 3, "\(summary.resumedFiles) of \(files)")
        #expect(try rig.rows(rig.destination) == "100")
    }

    /// A kill loses lines that were not written yet, so also that of a link that was made.
    @Test func aLinkWithoutItsLineIsRecordedAgain() throws {
        let rig = try AppRig(.another)
        #expect(try kill(rig, at: .copied))
        let beside = try Directory(rig.destination.removingLastComponent())
        let staged = try #require(try beside.names().first { $0.string.hasSuffix(".staged") })
        try beside.directory(staged).removeFile("manifest")
        let summary = try AppRelocation(rig.request()).run()
        #expect(summary.resumedFiles == 0)
        #expect(summary.notes.filter { $0.contains("stay") } == [])
        #expect(try rig.leftovers() == [])
    }

    /// Either name finds the journal, which is beside the new place.
    @Test(arguments: [true, false]) func anUndoOfEitherPlaceRemovesAPartialCopy(_ isOld: Bool) throws {
        let rig = try AppRig(.another)
        let before = try rig.files(rig.source)
        #expect(try kill(rig, at: .copied))
        let places = try #require(try AppRelocation.recorded(isOld ? rig.source : rig.destination))
        #expect(places == (rig.source, rig.destination))
        _ = try AppRelocation(rig.request()).undo()
        #expect(try rig.leftovers() == [])
        #expect(try rig.files(rig.source) == before)
    }

    /// The copy goes before the directory does; without the note, once a link leads to the directory.
    @Test(arguments: [true, false]) func aMoveToAnotherPlaceUndoesIt(hasNote: Bool) throws {
        let rig = try AppRig(.another)
        #expect(try kill(rig, at: .copied))
        let parent = try Directory(rig.source.removingLastComponent())
        let note = try #require(try parent.names().first { $0.string.hasSuffix(".undo") })
        if !hasNote { try parent.removeFile(note) }
        var request = rig.request()
        request.destination = parent.path.appending("elsewhere")
        #expect(try AppRelocation(request).run().outcome == .moved)
        #expect(try rig.leftovers().isEmpty == hasNote)
        let group = rig.destination.removingLastComponent()
        _ = try AppRelocation(AppMoveRequest(source: group, destination: group)).recover()
        #expect(try rig.leftovers() == [])
        #expect(try rig.rows(request.destination) == "100")
    }

    @Test(arguments: AppRig.FileSystem.allCases)
    func aMoveThatAnotherOneOvertakesIsRefused(_ fileSystem: AppRig.FileSystem) throws {
        let rig = try AppRig(fileSystem)
        var request = rig.request()
        request.destination = rig.source.removingLastComponent().appending("elsewhere")
        let other = AppRelocation(request)
        let move = AppRelocation(rig.request()) {
            false
        } report: { _ in
        } step: { step in
            if step == .planned { _ = try other.run() }
        }
        let failure = #expect(throws: RelocationFailure.self) { try move.run() }
        #expect(failure?.code == "symbolic_link", "\(failure?.message ?? "")")
        #expect(try rig.leftovers() == [])
    }

    /// A killed move must not stand in the way of another one to the same group.
    @Test func anotherMoveUndoesIt() throws {
        let rig = try AppRig(.another)
        let before = try rig.files(rig.source)
        #expect(try kill(rig, at: .withdrawn))
        let other = try AppRig(.another)
        var request = other.request()
        request.destination = rig.destination.removingLastComponent().appending("other")
        #expect(try AppRelocation(request).run().outcome == .moved)
        #expect(try rig.files(rig.source) == before)
        #expect(try rig.rows(rig.source) == "100")
        #expect(FileStatus(following: rig.destination) == nil)
        #expect(try rig.leftovers() == [])
    }

    /// The program has begun anew at its old place, while the directory had no name: neither of the two is hidden.
    @Test(arguments: ["recover", "run", "undo", "elsewhere"], [AppMoveStep.withdrawn, .committing])
    func aNewDirectoryAtTheOldPlaceStays(_ command: String, _ step: AppMoveStep) throws {
        let rig = try AppRig(.another)
        let before = try rig.files(rig.source)
        #expect(try kill(rig, at: step))
        try makeAnew(rig)
        let group = rig.destination.removingLastComponent()
        func end() throws {
            switch command {
            case "recover": _ = try AppRelocation(AppMoveRequest(source: group, destination: group)).recover()
            case "undo": _ = try AppRelocation(rig.request()).undo()
            case "run": _ = try AppRelocation(rig.request()).run()
            default:
                let elsewhere = rig.source.removingLastComponent().appending("elsewhere")
                _ = try AppRelocation(AppMoveRequest(source: rig.source, destination: elsewhere)).run()
            }
        }
        for _ in 1...2 {
            let failure = #expect(throws: RelocationFailure.self) { try end() }
            #expect(failure?.code == "old_place_taken", "\(failure?.message ?? "")")
            #expect(try Directory(rig.source).names() == ["new"])
            let unfinished = try #require(AppRelocation.unfinished(in: GroupContainer(group)))
            #expect(unfinished.isHidden && unfinished.isReplaced)
        }
        let aside = rig.source.removingLastComponent().appending("aside")
        try run("mv", [Word(rig.source), Word(aside)])
        try end()
        let place = ["run": rig.destination, "elsewhere": rig.source.removingLastComponent().appending("elsewhere")]
        #expect(try rig.files(place[command] ?? rig.source) == before)
        #expect(try rig.rows(place[command] ?? rig.source) == "100")
        #expect(try Directory(aside).names() == ["new"])
        #expect(try rig.leftovers() == [])
    }

    /// Past the commit point the directory is at its new place, and what its program has begun anew is named.
    @Test(arguments: [(AppRig.FileSystem.same, AppMoveStep.renamed), (.another, .published)])
    func aNewDirectoryInPlaceOfTheLinkIsNamed(_ fileSystem: AppRig.FileSystem, _ step: AppMoveStep) throws {
        let rig = try AppRig(fileSystem)
        #expect(try kill(rig, at: step))
        try makeAnew(rig)
        let summary = try AppRelocation(rig.request()).run()
        #expect(summary.outcome == .moved)
        let link = "ln -s \(rig.destination) \(rig.source)"
        #expect(summary.notes.contains { $0.contains("\(rig.source) is a directory") && $0.contains(link) })
        #expect(try Directory(rig.source).names() == ["new"])
        #expect(try rig.rows(rig.destination) == "100")
    }

    @Test(arguments: [AppMoveStep.copied, .withdrawn, .published]) func recoverFollowsARenamedGroup(
        _ step: AppMoveStep
    ) throws {
        let rig = try AppRig(.another)
        let before = try rig.files(rig.source)
        #expect(try kill(rig, at: step))
        let (group, renamed) = (rig.destination.removingLastComponent(), try TemporaryDirectory(in: "/dev/shm"))
        try run("mv", ["-T", Word(group), Word(renamed.path)])
        defer { _ = try? run("mv", ["-T", Word(renamed.path), Word(group)]) }
        let found = try AppRelocation(AppMoveRequest(source: renamed.path, destination: renamed.path)).recover()
        let isFinished = step == .published
        #expect(found?.remedy == (isFinished ? .finish : .undo))
        let place = isFinished ? renamed.path.appending("moved") : rig.source
        #expect(try rig.files(place) == before)
        #expect(try rig.rows(place) == "100")
        #expect(try Directory(renamed.path).names().allSatisfy { !$0.string.hasPrefix(".groupstore-") })
    }

    private func makeAnew(_ rig: AppRig) throws {
        #expect(try rig.isLink(rig.source))
        try run("sh", ["-c", "rm \"$1\" && mkdir \"$1\" && touch \"$1/new\"", "sh", Word(rig.source)])
    }

    /// Somebody took the hidden directory of a killed move for rubbish: the copy is all there is.
    @Test func theOnlyCopyIsNotRemoved() throws {
        let rig = try AppRig(.another)
        #expect(try kill(rig, at: .withdrawn))
        let (old, new) = (rig.source.removingLastComponent(), rig.destination.removingLastComponent())
        let hidden = try #require(try Directory(old).names().first(where: AppRig.isHidden))
        try Directory(old).removeTree(hidden)
        let staged = try #require(try Directory(new).names().first { $0.string.hasSuffix(".staged") })
        let other = try AppRig(.another)
        var request = other.request()
        request.destination = new.appending("other")
        let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(request).run() }
        #expect(failure?.code == "source_gone")
        #expect(try rig.rows(new.appending(staged).appending("tree")) == "100")
        try Directory(new).rename(staged, to: "kept", in: Directory(new), .refuse)
        #expect(try AppRelocation(request).run().outcome == .moved)
    }
}
