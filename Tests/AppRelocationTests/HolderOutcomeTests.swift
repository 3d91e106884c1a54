import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

@testable import AppRelocation

/// What is known before the first stop, and what becomes of a service after its start.
@Suite(.ownThreads) struct HolderOutcomeTests {
    private static let active = [
        // A time that has not yet passed for a second.
        "Type": "simple", "ActiveState": "active", "ActiveEnterTimestampMonotonic": "\(UInt64.max)",
    ]

    private func machine(_ rig: AppRig) throws -> FakeMachine {
        try FakeMachine("notes.service", group: "0::/system.slice/notes.service\n", holding: rig.source)
    }

    private func request(_ rig: AppRig, _ machine: FakeMachine) -> AppMoveRequest {
        var request = rig.request()
        (request.stopsHolders, request.managers) = (true, machine.managers)
        return request
    }

    private func expectRefusal(
        _ code: String, _ request: AppMoveRequest, _ machine: FakeMachine, _ rig: AppRig
    ) throws {
        for isDry in [true, false] {
            let failure = #expect(throws: RelocationFailure.self) {
                if isDry { _ = try AppRelocation(request).dryRun() } else { _ = try AppRelocation(request).run() }
            }
            #expect(failure?.code == code && failure?.kind == .badData, "\(failure?.message ?? "")")
        }
        #expect(!machine.commands.contains { $0.contains("stop") }, "\(machine.commands)")
        #expect(machine.isRunning && machine.starts == [:])
        #expect(try !rig.isLink(rig.source) && rig.leftovers() == [])
    }

    @Test(arguments: AppRig.FileSystem.allCases)
    func nothingIsStoppedForARecipeWhoseTableIsMissing(_ fileSystem: AppRig.FileSystem) throws {
        let rig = try AppRig(fileSystem)
        let machine = try machine(rig)
        var request = request(rig, machine)
        let text = "{recipe: 1, name: n, about: n, stores: [store.db], after: [{store: store.db, table: nope}]}"
        request.recipe = try AppRecipe(Array(text.utf8), at: "/r.yaml")
        try expectRefusal("check", request, machine, rig)
    }

    /// A program that has the store open may change the files of its log at any time.
    @Test func findsAMissingTableInAStoreThatIsWritten() throws {
        let rig = try AppRig(.same)
        let script = """
            import sqlite3, sys
            store = sqlite3.connect(sys.argv[1], isolation_level=None)
            while True:
                store.execute("INSERT INTO t VALUES (1)")
                print("written", flush=True)
            """
        let store = Word(rig.source.appending("store.db"))
        let program = try RunningProcess("python3", ["-c", Word(script), store])
        defer { try? program.killAtOnce() }
        #expect(try program.line() == "written")
        let text = "{recipe: 1, name: n, about: n, stores: [store.db], after: [{store: store.db, table: nope}]}"
        let recipe = try AppRecipe(Array(text.utf8), at: "/r.yaml")
        let failure = #expect(throws: RelocationFailure.self) { try recipe.report(on: rig.source) }
        #expect(failure?.code == "check", "\(failure?.message ?? "")")
    }

    @Test func nothingIsStoppedForAStoreWhosePathsCannotBeChanged() throws {
        let rig = try AppRig(.same)
        let script = """
            import sqlite3, sys
            c = sqlite3.connect(sys.argv[1] + "/names.db")
            c.create_collation("own", lambda a, b: (a > b) - (a < b))
            c.execute("CREATE TABLE p (x COLLATE own)"); c.execute("CREATE INDEX i ON p (x)")
            c.execute("INSERT INTO p VALUES (?)", (sys.argv[1] + "/file",)); c.commit()
            """
        try #require(try run("python3", ["-c", Word(script), Word(rig.source)]).status == 0)
        let machine = try machine(rig)
        var request = request(rig, machine)
        request.rewriteOwnPath()
        try expectRefusal("collation", request, machine, rig)
    }

    /// systemd calls a simple service started before its program has begun.
    @Test(arguments: [
        ["ActiveState": "failed", "Result": "exit-code"],
        ["ActiveState": "activating", "SubState": "auto-restart", "Result": "exit-code"],
    ])
    func aServiceThatFailsSoonAfterItsStartIsReportedAndStaysRecorded(_ end: [String: String]) throws {
        let rig = try AppRig(.same)
        let machine = try machine(rig)
        let group = rig.destination.removingLastComponent()
        machine.afterStart = [Self.active, end.merging(["Type": "simple"]) { $1 }]
        let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(request(rig, machine)).run() }
        #expect(failure?.code == "not_started" && failure?.message.contains("notes.service") == true)
        #expect(failure?.message.contains("exit-code") == true && failure?.kind == .failed)
        #expect(try AppRelocation.stopped(in: group)?.startable.map(\.name) == ["notes.service"])
        machine.afterStart = []
        var recovery = AppMoveRequest(source: group, destination: group)
        recovery.managers = machine.managers
        _ = try AppRelocation(recovery).recover()
        #expect(try AppRelocation.stopped(in: group) == nil)
        #expect(try rig.isLink(rig.source))
    }

    @Test func aServiceThatHasRunForASecondIsNotWaitedFor() throws {
        let rig = try AppRig(.same)
        let machine = try machine(rig)
        machine.afterStart = [Self.active.merging(["ActiveEnterTimestampMonotonic": "1"]) { $1 }]
        #expect(try AppRelocation(request(rig, machine)).run().outcome == .moved)
        let afterwards = machine.commands.drop { !$0.contains(" start ") }.dropFirst()
        #expect(afterwards.count == 1, "\(machine.commands)")
    }

    @Test func aFingerprintIsOfNamesAndTables() throws {
        let rig = try AppRig(.same)
        let (store, other) = (rig.source.appending("store.db"), rig.source.appending("other"))
        // Its tables come from the log to the store.
        try run("sqlite3", [Word(store), "INSERT INTO t VALUES (1)"])
        let first = try #require(AppFingerprint(rig.source))
        // Its side files come and go with its programs.
        try run("sqlite3", [Word(store), "INSERT INTO t VALUES (1)"])
        try run("sqlite3", [Word(store), "PRAGMA wal_checkpoint(TRUNCATE)"])
        #expect(AppFingerprint(rig.source) == first)
        try run("touch", [Word(other)])
        #expect(AppFingerprint(rig.source) != first)
        try run("rm", [Word(other)])
        #expect(AppFingerprint(rig.source) == first)
        try run("sqlite3", [Word(rig.source.pushing("sub/small.db")), "CREATE TABLE u (x)"])
        #expect(AppFingerprint(rig.source) != first)
        #expect(AppFingerprint(rig.destination) == nil)
    }

    /// A move that a process performs is not left unfinished, wherever its directory is.
    @Test func aMoveThatWasKilledIsUnfinishedUntilItIsEnded() throws {
        let rig = try AppRig(.another)
        let container = try GroupContainer(rig.destination.removingLastComponent())
        var underWay: UnfinishedAppMove?
        let move = AppRelocation(
            rig.request(),
            step: { step in
                guard step == .withdrawn else { return }
                underWay = AppRelocation.unfinished(in: container)
                throw AppRelocation.Abandonment()
            })
        #expect(throws: RelocationFailure.self) { try move.run() }
        #expect(underWay == nil)
        let killed = try #require(AppRelocation.unfinished(in: container))
        #expect(killed.isHidden && killed.source == rig.source && killed.destination == rig.destination)
        let group = container.directory.path
        let recovery = AppRelocation(AppMoveRequest(source: group, destination: group))
        _ = try recovery.recover(keepingCopy: true)
        #expect(AppRelocation.unfinished(in: container)?.isHidden == false)
        _ = try recovery.recover()
        #expect(AppRelocation.unfinished(in: container) == nil)
    }
}
