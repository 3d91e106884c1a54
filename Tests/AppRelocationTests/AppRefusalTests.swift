import AppRelocation
import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

/// What a move refuses, its dry run as the run.
@Suite(.ownThreads) struct AppRefusalTests {
    /// Returns the failure of a move, which its dry run has, too.
    private func refusal(_ request: AppMoveRequest) -> RelocationFailure? {
        let previewed = #expect(throws: RelocationFailure.self) { try AppRelocation(request).dryRun() }
        let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(request).run() }
        #expect(previewed?.message == failure?.message)
        #expect(previewed?.remedy == failure?.remedy)
        #expect(previewed?.kind == failure?.kind)
        return failure
    }

    private func shell(_ script: String, _ rig: AppRig) throws {
        let done = try run("sh", ["-ec", Word(script), "sh", Word(rig.source)])
        guard done.status == 0 else { throw Unexpected(done.errors) }
    }

    /// SQLite would find no log at the new place, and the last commits would be missing.
    @Test(arguments: AppRig.FileSystem.allCases)
    func refusesALogThatIsALinkToOutside(_ fileSystem: AppRig.FileSystem) throws {
        let rig = try AppRig(fileSystem)
        try shell("cd \"$1\" && mv store.db-wal ../log && ln -s ../log store.db-wal && rm store.db-shm", rig)
        let failure = refusal(rig.request())
        #expect(failure?.code == "log_outside" && failure?.kind == .badData, "\(failure?.message ?? "")")
        #expect(failure?.message.contains("store.db-wal") == true)
        try shell((failure?.remedy.split(separator: ": ", maxSplits: 1).last).map(String.init) ?? "false", rig)
        _ = try AppRelocation(rig.request()).run()
        #expect(try rig.rows(rig.destination) == "100")
    }

    /// Each name has a log of its own.
    @Test(arguments: AppRig.FileSystem.allCases)
    func copiesNoStoreWithTwoNames(_ fileSystem: AppRig.FileSystem) throws {
        let rig = try AppRig(fileSystem)
        try shell("ln \"$1\"/sub/small.db \"$1\"/twin.db", rig)
        guard fileSystem == .another else {
            #expect(try AppRelocation(rig.request()).run().outcome == .moved)
            return
        }
        let failure = refusal(rig.request())
        #expect(failure?.code == "two_names", "\(failure?.message ?? "")")
        #expect(failure?.message.contains("twin.db") == true && failure?.message.contains("small.db") == true)
    }
}
