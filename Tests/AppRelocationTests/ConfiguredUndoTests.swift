import AppRelocation
import GroupContainers
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// A move that an agent's configuration has, and that a person takes back.
@Suite(.ownThreads) struct ConfiguredUndoTests {
    private func configured(_ rig: AppRig) -> AppRelocation {
        var request = rig.request()
        request.isConfigured = true
        return AppRelocation(request)
    }

    private func isRemembered(_ rig: AppRig) throws -> Bool {
        try GroupContainer(rig.destination.removingLastComponent())
            .isAppMoveUndone(from: rig.source)
    }

    @Test(arguments: AppRig.FileSystem.allCases, [true, false])
    func isNotRepeated(_ fileSystem: AppRig.FileSystem, _ isByAgent: Bool) throws {
        let rig = try AppRig(fileSystem)
        let person = AppRelocation(rig.request())
        _ = try isByAgent ? configured(rig).run() : person.run()
        #expect(try configured(rig).run().outcome == .alreadyMoved)
        #expect(try person.undo().outcome == .undone)
        #expect(try configured(rig).run().outcome == .undone)
        #expect(try !rig.isLink(rig.source))
        #expect(try rig.rows(rig.source) == "100")
        #expect(try person.undo().outcome == .nothingToUndo)
        // A person may move it, which forgets the undo.
        #expect(try person.run().outcome == .moved)
        #expect(try !isRemembered(rig))
        #expect(try person.undo().outcome == .undone)
    }

    /// The agent that comes after the kill finishes the undo, and no more.
    @Test(arguments: [(AppRig.FileSystem.same, AppMoveStep.renamed), (.another, .published), (.another, .retired)])
    func isNotRepeatedAfterAKilledUndo(_ fileSystem: AppRig.FileSystem, _ step: AppMoveStep) throws {
        let rig = try AppRig(fileSystem)
        _ = try configured(rig).run()
        let undo = AppRelocation(rig.request()) {
            false
        } report: { _ in
        } step: {
            if $0 == step { throw AppRelocation.Abandonment() }
        }
        #expect(throws: (any Error).self) { try undo.undo() }
        #expect(try configured(rig).run().outcome == .undone)
        #expect(try !rig.isLink(rig.source))
        #expect(try rig.rows(rig.source) == "100")
        #expect(try rig.leftovers() == [])
    }

    /// Another destination in the configuration doesn't say that the person wants it moved after all. To move it by
    /// hand does.
    @Test(arguments: [true, false]) func staysThoughTheDestinationChanges(isChangedBefore: Bool) throws {
        let rig = try AppRig(.same)
        _ = try configured(rig).run()
        var request = rig.request()
        request.destination = rig.destination.removingLastComponent().appending("elsewhere")
        let person = AppRelocation(request)
        request.isConfigured = true
        let changed = AppRelocation(request)
        if isChangedBefore { #expect(throws: (any Error).self) { try changed.run() } }
        _ = try AppRelocation(rig.request()).undo()
        #expect(try changed.run().outcome == .undone)
        #expect(try !rig.isLink(rig.source))
        #expect(try person.run().outcome == .moved)
        #expect(try changed.run().outcome == .alreadyMoved)
        #expect(try !isRemembered(rig))
    }
}
