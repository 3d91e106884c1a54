import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of `groupstore recover`, which shows and finishes an interrupted relocation.
@Suite(.ownThreads) struct RecoverTests {
    /// Kills a relocation before call number `count`, counted from the first call on its journal. How many calls come
    /// before depends on the machine: root's relocation reads the units of all services.
    private func interrupt(_ store: FilePath, _ places: Places, before count: Int) throws {
        let stepper = places.scratch("stepper")
        try Programs.compile(["Tests/Torture/stepper.c", "Tests/Torture/calls.c"], to: stepper, options: ["-O1"])
        try run(
            Word(stepper),
            ["--marker", "journal.json.new", "--changes-only", "--kill", "\(count)", "--", Programs.groupstore]
                + ["relocate", Word(store), Word(places.group)],
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
    }

    @Test func succeedsWithNothingToRecover() throws {
        let places = try Places()
        let done = try groupstore("recover", Word(places.group), "--json")
        #expect(done.status == 0)
        #expect(done.outcome == "nothing_to_do")
        #expect(try Directory(places.group).names().isEmpty)
        #expect(try groupstore("recover", Word(places.scratch("nowhere"))).status == 74)
    }

    /// At every interruption point, a dry run changes nothing, and recovery leaves one store and no journal.
    @Test(arguments: [8, 30, 50, 70])
    func showsAndFinishesAnInterruptedRelocation(_ count: Int) throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 20)
        try interrupt(store.path, places, before: count)
        let before = [try DirectorySnapshot(places.legacy), try DirectorySnapshot(places.group)]
        let dryRun = try groupstore("recover", Word(places.group), "--dry-run", "--json")
        #expect(dryRun.status == 0, "\(dryRun.errors)")
        #expect([try DirectorySnapshot(places.legacy), try DirectorySnapshot(places.group)] == before)
        let shown = try #require(dryRun.objects.first { $0.type == "interrupted" }, "\(dryRun.output)")
        #expect(shown.string("purpose") == "relocate")
        #expect(shown.path("from") == store.path.bytes)

        let done = try groupstore("recover", Word(places.group), "--json")
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.outcome == dryRun.outcome)
        #expect(done.outcome == (shown.string("will") == "finish" ? "finished" : "undone"))
        let place = done.outcome == "finished" ? places.group.appending("Notes.sqlite") : store.path
        #expect(try noteCount(place) == 20)
        #expect(try groupstore("recover", Word(places.group), "--json").outcome == "nothing_to_do")
    }
}
