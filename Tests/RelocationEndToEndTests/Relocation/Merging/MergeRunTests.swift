import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// A merge that is killed, one beside an agent, and configurations.
@Suite(.ownThreads) struct MergeRunTests {
    private static let digest =
        "SELECT count(*), sum(Z_PK), group_concat(ZUUID) FROM (SELECT * FROM ZITEM ORDER BY ZUUID)"

    /// Kills the program at times spread over a run. Afterwards both originals are as they were, or the result is
    /// whole; the same command then leads to the whole result, with both originals in the archive.
    @Test(.soak) func aKillLeavesBothOriginalsOrTheWholeResult() throws {
        let first = try MergeStores()
        try first.make()
        let started = ContinuousClock.now
        #expect(try first.merge("--prefer", "legacy").outcome == "merged")
        let span = started.duration(to: .now)
        let wanted = try first.rows(Self.digest)
        var interrupted = 0
        for kill in 0..<14 {
            let stores = try MergeStores()
            try stores.make()
            let before = try StoreFiles(stores.group).dump()
            let legacy = try StoreFiles(stores.legacy).dump()
            let words: [Word] = [
                "relocate", Word(stores.legacy), Word(stores.places.group), "--on-conflict", "merge", "--json",
                "--prefer",
                "legacy",
            ]
            let command = try RunningProcess(
                Programs.groupstore, words + MergeStores.keys,
                environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
            if try !command.hasEnded(within: span * Double(kill) / 14) {
                try command.killAtOnce()
                interrupted += 1
            }
            // Anybody's next relocation ends what was begun, and merges nothing by itself.
            let refused = try groupstore("relocate", Word(stores.legacy), Word(stores.places.group), "--json")
            let isMerged = try stores.rows(Self.digest) == wanted
            if isMerged {
                #expect(["merged", "nothing_to_do"].contains(refused.outcome), "kill \(kill): \(refused.output)")
            } else {
                #expect(refused.outcome == "conflict", "kill \(kill): \(refused.output)")
                #expect(try StoreFiles(stores.group).dump() == before, "kill \(kill)")
                #expect(try StoreFiles(stores.legacy).dump() == legacy, "kill \(kill)")
                #expect(try stores.archived().isEmpty, "kill \(kill)")
                #expect(try stores.merge("--prefer", "legacy").outcome == "merged", "kill \(kill)")
            }
            #expect(try stores.rows(Self.digest) == wanted, "kill \(kill)")
            #expect(try Set(stores.archived().map { try $0.dump() }) == [before, legacy], "kill \(kill)")
            #expect(try holdsLinkAlone(stores.places.legacy, to: stores.group), "kill \(kill)")
            let staging = stores.places.group.appending(".groupstore/staging")
            #expect(try Directory(staging).names().isEmpty, "kill \(kill)")
        }
        #expect(interrupted > 0)
    }

    // MARK: Beside an agent

    private func agent(_ stores: MergeStores, _ lines: String...) throws -> AgentProcess {
        let configuration = stores.places.scratch("config.yaml")
        let text = lines.map { "        \($0)\n" }.joined()
        try write(
            """
            groups:
              - id: \(AgentProcess.group)
                directory: \(stores.places.group)
                stores:
                  - name: Notes.sqlite
                    settle: 1ms

            """ + text, to: configuration)
        return try AgentProcess(["--config", Word(configuration)], socket: stores.places.scratch("agent.sock"))
    }

    @Test func anAgentMergesForTheCommandAndTellsSubscribers() throws {
        let stores = try MergeStores()
        try stores.make()
        let agent = try agent(stores)
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", Word("\(AgentProcess.group)/Notes.sqlite"), "--json"],
            environment: agent.environment)
        try watch.line { $0.contains("\"token\"") }
        let planned = try stores.merge("--prefer", "group", "--dry-run", environment: agent.environment)
        #expect(planned.objects.contains { $0.string("type") == "merge" })
        let done = try stores.merge("--prefer", "group", environment: agent.environment)
        #expect(done.outcome == "merged", "\(done.output)\(done.errors)")
        #expect(done.summary.object("merge")?.integer("only_legacy") == 7)
        let event = try watch.line { $0.contains("\"relocated\"") }
        #expect(event.contains(stores.legacy.string))
        // The agent goes on following the store.
        try sqlite(stores.group, "INSERT INTO ZTAG VALUES (50, 6, 1, 'later')")
        try watch.line { $0.contains("\"type\":\"change\"") }
    }

    @Test func aConfigurationCannotAskForAMerge() throws {
        let stores = try MergeStores()
        let configuration = stores.places.scratch("config.yaml")
        try write(
            """
            groups:
              - id: \(AgentProcess.group)
                directory: \(stores.places.group)
                stores:
                  - { name: Notes.sqlite, legacy: [\(stores.legacy)], on-conflict: merge }

            """, to: configuration)
        let checked = try groupstore("agent", "--config", Word(configuration), "--check")
        #expect(checked.status == 78)
        #expect(checked.errors.contains("a merge is never done unattended"), "\(checked.errors)")
    }
}
