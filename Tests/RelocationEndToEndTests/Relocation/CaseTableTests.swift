import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of each line of the case table: by the command alone, by the command through an agent, and by the agent alone.
@Suite(.ownThreads) struct CaseTableTests {
    @Test(arguments: CaseTable.lines, Places.FileSystem.allCases)
    func theCommandAlone(_ line: CaseTableLine, _ fileSystem: Places.FileSystem) throws {
        guard line.fileSystems.contains(fileSystem) else { return }
        try whenArranged(line, fileSystem) { places in
            let done = try groupstore(
                "relocate", Word(places.legacyStore), Word(places.group), "--json", "--deadline", "5",
                options: line.options)
            try expectOutput(line, done)
        }
    }

    @Test(arguments: CaseTable.lines)
    func theCommandThroughAnAgent(_ line: CaseTableLine) throws {
        try whenArranged(line) { places in
            let agent = try AgentProcess(places, legacy: [])
            let done = try groupstore(
                "relocate", Word(places.legacyStore), Word(places.group), "--json", "--deadline", "5",
                options: line.options, environment: agent.environment)
            try expectOutput(line, done)
            #expect(try agent.stop().status == 0)
        }
    }

    @Test(arguments: CaseTable.lines.filter { $0.state != nil }) func theAgentAlone(_ line: CaseTableLine) throws {
        try whenArranged(line) { places in
            let policy = line.options.count == 2 ? line.options[1].description : "refuse"
            let file = places.scratch("config.yaml")
            try write(
                """
                groups:
                  - id: \(AgentProcess.group)
                    directory: \(places.group)
                    stores:
                      - { name: Notes.sqlite, legacy: [\(places.legacyStore)], on-conflict: \(policy), settle: 0s }
                """, to: file)
            let agent = try AgentProcess(["--config", Word(file)], socket: places.scratch("agent.sock"))
            let row = try settledRow(of: agent, refused: line.code != nil)
            #expect(row.string("state") == line.state, "\(row.text)")
            #expect(row.string("code") == line.code && row.integer("exit") == line.code.map { _ in Int64(line.status) })
            if line.code != nil {
                #expect(row.string("detail")?.hasSuffix(")") == true, "no remedy: \(row.text)")
            }
            #expect(try agent.stop().status == 0)
        }
    }

    /// Arranges the line's stores, calls `act` and checks the effect on the places.
    private func whenArranged(
        _ line: CaseTableLine, _ fileSystem: Places.FileSystem = .same, _ act: (Places) throws -> Void
    ) throws {
        let places = try Places(fileSystem)
        try line.arrange(places)
        let before = try (legacy: DirectorySnapshot(places.legacy), group: DirectorySnapshot(places.group))
        try act(places)
        let after = try (legacy: DirectorySnapshot(places.legacy), group: DirectorySnapshot(places.group))
        switch line.effect {
        case .nothing: #expect(after == before)
        case .moved(let notes, let archived):
            #expect(try holdsLinkAlone(places.legacy, to: places.groupStore))
            #expect(try noteCount(places.groupStore) == notes)
            #expect(try archivedCounts(places) == archived)
        case .movedUnread:
            #expect(try holdsLinkAlone(places.legacy, to: places.groupStore))
            #expect(
                after.group.entries[Array("Notes.sqlite".utf8)] == before.legacy.entries[Array("Notes.sqlite".utf8)])
        case .kept(let archived):
            #expect(try holdsLinkAlone(places.legacy, to: places.groupStore))
            #expect(after.group == before.group)
            #expect(try archivedCounts(places) == archived)
        }
    }

    private func expectOutput(_ line: CaseTableLine, _ done: FinishedProcess) throws {
        #expect(done.status == line.status, "\(done.errors)\(done.output)")
        #expect(done.outcome == line.outcome, "\(done.output)")
        let error = done.summary.object("error")
        #expect(error?.string("code") == line.code, "\(done.output)")
        if line.code != nil {
            #expect(error?.string("hint")?.isEmpty == false, "no remedy: \(done.output)")
            #expect(error?.string("hint")?.contains("\n") == false)
        }
    }

    /// Returns the number of notes in each archived store, sorted.
    private func archivedCounts(_ places: Places) throws -> [Int] {
        let archive = places.group.appending(".groupstore").appending("archive")
        let stores = try run("find", [Word(archive), "-name", "Notes.sqlite", "-size", "+0"]).lines
        return try stores.map { try noteCount(FilePath($0)) }.sorted()
    }

    /// Returns the legacy store's line of `status` after all activity has ended.
    private func settledRow(of agent: AgentProcess, refused: Bool) throws -> JSONObject {
        try agent.legacyRow { state in
            !["", "arriving", "relocating", "waiting"].contains(state) && (!refused || state != "absent")
        }
    }
}
