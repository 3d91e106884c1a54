import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `status --watch` on a terminal.
@Suite(.ownThreads, .timeLimit(.minutes(60))) struct LiveTableTests {
    private let places: Places
    private let store: FilePath
    private let agent: AgentProcess

    init() throws {
        places = try Places()
        store = places.group.appending("Notes.sqlite")
        try sqlite(store, "PRAGMA journal_mode = WAL; CREATE TABLE note (text)")
        agent = try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
    }

    private func terminal(
        columns: Int = 100, rows: Int = 20, _ arguments: Word..., environment: [String: String] = [:]
    ) throws -> TerminalProcess {
        try TerminalProcess(
            columns: columns, rows: rows, Programs.groupstore, ["status", "--watch", "--interval", "0.1"] + arguments,
            environment: agent.environment.merging(environment) { $1 })
    }

    @Test func showsChangesAndSubscribers() throws {
        let terminal = try terminal()
        try terminal.command("await Notes.sqlite +idle +- +0 +-$")
        let subscriber = try agent.subscribe("Notes.sqlite")
        try terminal.command("await following +[0-9.]+ +1 +0$")
        try terminal.command("await (python|xctest|swift|[^ ]+) \\(pid \(getpid())\\)  up to date")
        try sqlite(store, "INSERT INTO note VALUES ('milk')")
        try subscriber.next("change")
        // The rate is back at zero once the change is older than an interval.
        let state = try terminal.command("await following +0 +1 +[1-9]")
        #expect(state.faults.isEmpty && state.isAlternate, "\(state.text)")
        #expect(state.lines.first?.hasPrefix("groupstore ") == true, "\(state.text)")
    }

    /// A stopped subscriber stands out, and so does the process that a relocation waits for.
    @Test func showsWhatNeedsAttention() throws {
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", "\(AgentProcess.group)/Notes.sqlite"], environment: agent.environment)
        try watch.line(.errors) { $0.contains("watching") }
        let terminal = try terminal()
        try terminal.command("await pid \(watch.pid)\\)  up to date")
        try watch.suspend()
        let writer = try sqliteShell(store)
        try agent.commitUntilASubscriberIsBehind(writer)
        let state = try terminal.command("await pid \(watch.pid)\\)  [0-9]+ events behind, .* unread, has not read for")
        #expect(state.styles.contains("33"), "\(state.styles)")
        watch.signal(SIGCONT)
        try terminal.command("vanish behind")

        let elsewhere = places.scratch("Elsewhere.sqlite")
        try sqlite(elsewhere, "CREATE TABLE note (text); INSERT INTO note VALUES ('old')")
        let holder = try sqliteShell(elsewhere)
        try run("mv", [Word(elsewhere), Word(places.legacy.appending("Notes.sqlite"))])
        try terminal.command("await relocating since .* waiting for sqlite3 \\(pid \(holder.pid)\\)")
    }

    /// However narrow the terminal, the process to look for can be read: its name and number stay together.
    @Test func keepsTheProcessNumberAtFortyColumns() throws {
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", "\(AgentProcess.group)/Notes.sqlite"], environment: agent.environment)
        try watch.line(.errors) { $0.contains("watching") }
        let terminal = try terminal(columns: 40, rows: 24)
        try terminal.command("await pid \(watch.pid)\\)")
        let elsewhere = places.scratch("Elsewhere.sqlite")
        try sqlite(elsewhere, "CREATE TABLE note (text); INSERT INTO note VALUES ('old')")
        let holder = try sqliteShell(elsewhere)
        try run("mv", [Word(elsewhere), Word(places.legacy.appending("Notes.sqlite"))])
        for columns in [40, 50, 80, 40] {
            try terminal.command("resize \(columns) 24")
            let state = try terminal.command("await sqlite3 \\(pid \(holder.pid)\\)")
            #expect(state.faults.isEmpty, "\(state.text)")
        }
    }

    /// Every size is filled and none exceeded; the terminal's faults are characters and lines outside of it.
    @Test func fitsEverySize() throws {
        for number in 1...20 { _ = try agent.subscribe("Wide名前\(number).sqlite") }
        let kept = try (1...20).map { try agent.subscribe("Wide名前\($0).sqlite") }
        let terminal = try terminal(columns: 80, rows: 24)
        try terminal.command("await more line")
        for (columns, rows) in [(40, 6), (20, 3), (9, 2), (1, 1), (33, 10), (200, 80)] {
            let state = try terminal.command("resize \(columns) \(rows)")
            #expect(state.faults.isEmpty && state.isAlternate, "\(columns)x\(rows): \(state.text)")
        }
        let whole = try terminal.command("await Wide名前20")
        #expect(whole.lines.filter { $0.contains("Wide名前") }.count == 20, "\(whole.text)")
        #expect(!whole.text.contains("more line"))
        withExtendedLifetime(kept) {}
    }

    @Test(arguments: ["signal INT", "signal TERM", "signal HUP", "signal QUIT", "key q"])
    func leavesTheTerminalAsItWas(_ end: String) throws {
        let terminal = try terminal()
        let shown = try terminal.command("await Notes.sqlite")
        #expect(shown.isAlternate && shown.object.bool("cursor") == false && shown.object.bool("echo") == false)
        try terminal.command(end)
        let state = try terminal.command("end")
        #expect(state.isAsBefore && state.faults.isEmpty, "\(state.object.text)")
        #expect(state.status == (end == "key q" ? 0 : 130))
        #expect(state.lines.allSatisfy { $0.isEmpty }, "\(state.text)")
    }

    @Test func givesTheTerminalBackWhileStopped() throws {
        let terminal = try terminal()
        try terminal.command("await Notes.sqlite")
        #expect(try terminal.command("suspend").isAsBefore)
        let state = try terminal.command("resume")
        #expect(state.isAlternate && state.faults.isEmpty, "\(state.object.text)")
        try terminal.command("await Notes.sqlite")
    }

    @Test func usesNoColourWithoutPermission() throws {
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", "\(AgentProcess.group)/Notes.sqlite"], environment: agent.environment)
        try watch.line(.errors) { $0.contains("watching") }
        let terminal = try terminal(environment: ["NO_COLOR": "1"])
        try terminal.command("await up to date")
        try watch.suspend()
        let writer = try sqliteShell(store)
        try agent.commitUntilASubscriberIsBehind(writer)
        let state = try terminal.command("await behind")
        #expect(state.styles.allSatisfy { $0 == "1" || $0 == "2" }, "\(state.styles)")
    }

    @Test func drawsNothingOnADumbTerminal() throws {
        let terminal = try terminal(columns: 200, environment: ["TERM": "dumb"])
        let state = try terminal.command("await Notes.sqlite  idle")
        #expect(!state.isAlternate && state.styles.isEmpty && state.faults.isEmpty, "\(state.object.text)")
        try terminal.command("signal INT")
        #expect(try terminal.command("end").status == 130)
    }

    @Test func survivesTheAgentsRestart() throws {
        let terminal = try terminal()
        try terminal.command("await Notes.sqlite")
        #expect(try agent.stop().status == 0)
        try terminal.command("await ^no agent since .*, trying again: ")
        // What was known last is still there.
        try terminal.command("await Notes.sqlite")
        let next = try AgentProcess(
            ["--group", "\(AgentProcess.group)=" + Word(places.group)], socket: agent.socket)
        try terminal.command("vanish no agent")
        let subscriber = try next.subscribe("Notes.sqlite")
        let state = try terminal.command("await Notes.sqlite +following +[-0-9.]+ +1 ")
        #expect(state.faults.isEmpty, "\(state.text)")
        withExtendedLifetime(subscriber) {}
    }
}
