import AgentProtocol
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `groupstore watch`.
@Suite struct WatchTests {
    private struct Scene {
        let places: Places
        let store: FilePath
        let agent: AgentProcess

        init() throws {
            places = try Places()
            store = places.group.appending("Notes.sqlite")
            try makeStore(store, rows: 1)
            agent = try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
        }

        func watch(_ words: Word...) throws -> RunningProcess {
            try RunningProcess(
                Programs.groupstore, ["watch", "\(AgentProcess.group)/Notes.sqlite"] + words,
                environment: agent.environment)
        }

        /// Commits until the process has ended: when it has subscribed can't be seen from outside.
        func commitUntilEnd(of process: RunningProcess) throws -> FinishedProcess {
            let deadline = Deadline(after: .seconds(60))
            while try !process.hasEnded(within: .milliseconds(50)), !deadline.hasPassed {
                try sqlite(store, "PRAGMA busy_timeout = 10000; INSERT INTO note (text) VALUES ('later')")
            }
            return try process.wait(within: .seconds(1))
        }
    }

    @Test func onceEndsAfterTheFirstChange() throws {
        let scene = try Scene()
        let done = try scene.commitUntilEnd(of: scene.watch("--once", "--json"))
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.objects.filter { $0.type == "change" }.count == 1)
        #expect(done.lines.count == done.objects.count)
        #expect(done.summary.type == "summary")
    }

    @Test func aTimeoutEndsWithSeventyFive() throws {
        let scene = try Scene()
        let done = try scene.watch("--once", "--timeout", "0.2").wait()
        #expect(done.status == 75, "\(done.errors)")
    }

    @Test func execRunsACommandForAChange() throws {
        let scene = try Scene()
        let mark = scene.places.scratch("mark")
        let done = try scene.commitUntilEnd(of: scene.watch("--once", "--exec", "echo told > '\(mark)'"))
        #expect(done.status == 0, "\(done.errors)")
        #expect(try run("cat", [Word(mark)]).output == "told\n")
    }

    @Test func aPathNamesTheStoreToo() throws {
        let scene = try Scene()
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", Word(scene.store), "--once"], environment: scene.agent.environment)
        let done = try scene.commitUntilEnd(of: watch)
        #expect(done.status == 0, "\(done.errors)")
    }

    @Test func sinceBringsWhatHappenedMeanwhile() throws {
        let scene = try Scene()
        let subscriber = try scene.agent.subscribe("Notes.sqlite")
        try sqlite(scene.store, "INSERT INTO note (text) VALUES ('first')")
        let token = try #require(try subscriber.next("change").string("token"))
        try sqlite(scene.store, "INSERT INTO note (text) VALUES ('meanwhile')")
        try subscriber.next("change")
        let done = try scene.watch("--since", Word(token), "--once", "--json", "--timeout", "30").wait()
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.objects.contains { $0.type == "change" && $0.string("token") != token })
    }

    @Test func aSignalEndsItWithOneHundredAndThirty() throws {
        let scene = try Scene()
        let watch = try scene.watch()
        let subscriber = try scene.agent.subscribe("Notes.sqlite")
        try sqlite(scene.store, "INSERT INTO note (text) VALUES ('later')")
        try subscriber.next("change")
        watch.signal(SIGINT)
        #expect(try watch.wait(within: .seconds(20)).status == 130)
    }
}
