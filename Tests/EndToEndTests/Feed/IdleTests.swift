import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@Suite(.ownThreads) struct IdleTests {
    @Test(.enabled(if: Programs.canTrace, "strace can't attach here"))
    func anIdleAgentMakesNoSystemCall() throws {
        let places = try Places()
        var legacy: [FilePath] = []
        for number in 1...20 {
            try makeStore(places.group.appending("Store \(number)"), rows: 1)
            legacy.append(places.legacy.appending("Store \(number)"))
        }
        let agent = try AgentProcess(places, legacy: legacy, seesMounts: false)
        let subscribers = try (1...20).map { number in try agent.subscribe("Store \(number)") }
        // One change per store shows that every subscription is alive. The agent is then measured right after it has
        // worked.
        for (index, subscriber) in subscribers.enumerated() {
            try sqlite(places.group.appending("Store \(index + 1)"), "INSERT INTO note (text) VALUES ('a change')")
            try subscriber.next("change")
        }
        try expectSilence(agent)
        withExtendedLifetime(subscribers) {}
    }

    @Test(.enabled(if: Programs.canTrace, "strace can't attach here"))
    func anIdleDirectWatchMakesNoSystemCall() throws {
        let places = try Places()
        let stores = (1...20).map { places.group.appending("Store \($0)") }
        for store in stores { try makeStore(store, rows: 1) }
        let command = Programs.withoutNewMounts + [Programs.groupstore, "watch", "--direct", "--json", "--"]
        let watch = try RunningProcess(command[0], command.dropFirst() + stores.map { Word($0) })
        for store in stores { try watch.line { $0.contains("\"watching\"") && $0.contains("\(store)\"") } }
        for store in stores {
            try sqlite(store, "INSERT INTO note (text) VALUES ('a change')")
            try watch.line { $0.contains("\"change\"") }
        }
        try expectSilence(of: watch.pid)
    }

    /// The parents of the agent's directories may be as busy as `/tmp`.
    @Test(.enabled(if: Programs.canTrace, "strace can't attach here"))
    func ignoresWorkOutsideItsDirectories() throws {
        let places = try Places()
        try makeStore(places.group.appending("Notes.sqlite"), rows: 1)
        try write("something else", to: places.legacy.appending("other"))
        let agent = try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")], seesMounts: false)
        let subscriber = try agent.subscribe("Notes.sqlite")
        try sqlite(places.group.appending("Notes.sqlite"), "INSERT INTO note (text) VALUES ('a change')")
        try subscriber.next("change")
        let busy = try RunningProcess(
            "sh",
            [
                "-c",
                Word(
                    "cd '\(places.scratch("."))'; while :; do mkdir d; echo x > d/f; mv d/f f; rm f; rmdir d; sleep 0.01; done"
                ),
            ])
        try expectSilence(agent)
        try busy.killAtOnce()
        withExtendedLifetime(subscriber) {}
    }

    private func expectSilence(_ agent: AgentProcess) throws { try expectSilence(of: agent.process.pid) }

    /// Traces the process for four seconds at a time. The first trace may include work that its last event left over.
    private func expectSilence(of process: pid_t) throws {
        // Nobody watches anything here. A file created beside the agent's directories would be an event for it.
        let place = try TemporaryDirectory()
        var calls: [String] = []
        for attempt in 1...3 {
            calls = try systemCalls(of: process, in: place.path.appending("calls \(attempt)"))
            if calls.isEmpty { break }
        }
        #expect(calls.isEmpty)
    }
}
