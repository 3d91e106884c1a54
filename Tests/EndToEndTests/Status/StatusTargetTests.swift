import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `status` of a group or a store.
@Suite(.ownThreads, .timeLimit(.minutes(60))) struct StatusTargetTests {
    private let places: Places
    private let legacy: FilePath
    private var store: FilePath { places.group.appending("Notes.sqlite") }

    init() throws {
        places = try Places()
        legacy = places.legacy.appending("Notes.sqlite")
        try sqlite(places.group.appending("Tags.sqlite"), "CREATE TABLE tag (text)")
    }

    private func stores(_ done: FinishedProcess) -> Set<String> {
        Set(done.objects.filter { $0.type == "store" }.compactMap { $0.string("store") })
    }

    @Test func showsAGroupAndAStoreByEachOfTheirNames() throws {
        try makeStore(legacy, rows: 3)
        let agent = try AgentProcess(places, legacy: [legacy])
        let subscriber = try agent.subscribe("Notes.sqlite")
        let other = try agent.subscribe("Tags.sqlite")
        if try Directory(places.legacy).status("Notes.sqlite") != nil { try subscriber.next("relocated") }
        let name = "\(AgentProcess.group)/Notes.sqlite"

        for target in [Word(AgentProcess.group), Word(places.group)] {
            let done = try groupstore("status", "--json", target, environment: agent.environment)
            #expect(done.status == 0, "\(done.errors)")
            #expect(stores(done) == [name, "\(AgentProcess.group)/Tags.sqlite"], "\(target): \(done.output)")
            #expect(done.objects.filter { $0.type == "file" }.count == 2)
            #expect(done.summary.string("group") == AgentProcess.group)
        }
        // Nothing is at the former place any more.
        for target in [Word(name), Word(store), Word(legacy)] {
            let done = try groupstore("status", "--json", target, environment: agent.environment)
            #expect(done.status == 0, "\(target): \(done.errors)")
            #expect(stores(done) == [name], "\(target): \(done.output)")
            #expect(done.objects.filter { $0.type == "file" }.compactMap { $0.string("name") } == ["Notes.sqlite"])
            #expect(done.objects.filter { $0.type == "subscription" }.count == 1)
            #expect(done.objects.filter { $0.type == "legacy" }.count == 1)
        }
        withExtendedLifetime(other) {}
    }

    /// As the directory does.
    @Test func theAgentsStatusShowsStoresThatNobodyListensTo() throws {
        try makeStore(store, rows: 3)
        let agent = try AgentProcess(places, legacy: [legacy])
        let done = try groupstore("status", "--json", environment: agent.environment)
        let rows = done.objects.filter { $0.type == "store" }
        let names = ["Notes", "Tags"].map { "\(AgentProcess.group)/\($0).sqlite" }
        #expect(rows.compactMap { $0.string("store") } == names)
        #expect(rows.allSatisfy { $0.string("state") == "idle" && $0.integer("subscribers") == 0 })
        #expect(rows.allSatisfy { $0["counts"] == nil && $0.bool("exists") == true }, "\(done.output)")
        let subscriber = try agent.subscribe("Tags.sqlite")
        let after = try groupstore("status", "--json", environment: agent.environment).objects
        #expect(after.filter { $0.type == "store" }.compactMap { $0.string("state") } == ["idle", "following"])
        withExtendedLifetime(subscriber) {}
    }

    @Test func worksWithoutAnAgent() throws {
        try sqlite(store, "CREATE TABLE note (text)")
        let containers = [
            "GROUPSTORE_CONTAINERS": places.scratch("containers").string, "HOME": places.scratch(".").string,
        ]
        try run("mkdir", ["-p", Word(places.scratch("containers"))])
        try run("ln", ["-s", Word(places.group), Word(places.scratch("containers").appending(AgentProcess.group))])
        let group = try groupstore("status", "--json", Word(AgentProcess.group), environment: containers)
        #expect(
            group.status == 0 && group.objects.filter { $0.type == "file" }.count == 2, "\(group.output)\(group.errors)"
        )
        for target in [Word(store), "\(AgentProcess.group)/Notes.sqlite"] {
            let done = try groupstore("status", "--json", target, environment: containers)
            #expect(done.status == 0, "\(done.errors)")
            #expect(done.objects.filter { $0.type == "file" }.compactMap { $0.string("name") } == ["Notes.sqlite"])
            #expect(done.summary.bool("agent") == false)
        }
    }

    @Test func refusesWhatIsNeitherAGroupNorAStore() throws {
        let agent = try AgentProcess(places, legacy: [])
        for target: Word in ["group.example.none", "\(AgentProcess.group)/None.sqlite", "/nowhere/None.sqlite"] {
            for environment in [agent.environment, [:]] {
                let done = try groupstore("status", "--json", target, environment: environment)
                #expect(done.status == 74, "\(target): \(done.output)")
                #expect(done.summary.object("error")?.string("code") == "not_found", "\(target): \(done.output)")
            }
        }
    }
}
