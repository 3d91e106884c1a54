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

        /// A `watch` that is subscribed; its words are those of `--json`.
        func watch(_ words: Word...) throws -> RunningProcess {
            let watch = try RunningProcess(
                Programs.groupstore, ["watch", "\(AgentProcess.group)/Notes.sqlite", "--json"] + words,
                environment: agent.environment)
            try watch.line { JSONObject(line: $0)?.type == "subscribed" }
            return watch
        }

        func commit() throws { try sqlite(store, "INSERT INTO note (text) VALUES ('later')") }
    }

    @Test func onceEndsAfterTheFirstChange() throws {
        let scene = try Scene()
        let watch = try scene.watch("--once")
        try scene.commit()
        let done = try watch.wait()
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
        let watch = try scene.watch("--once", "--exec", "echo $GROUPSTORE_EVENT > '\(mark)'")
        try scene.commit()
        let done = try watch.wait()
        #expect(done.status == 0, "\(done.errors)")
        #expect(try run("cat", [Word(mark)]).output == "change\n")
    }

    @Test func aPathNamesTheStoreToo() throws {
        let scene = try Scene()
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", Word(scene.store), "--once"], environment: scene.agent.environment)
        try watch.line(.errors) { $0.hasPrefix("watching ") }
        try scene.commit()
        let done = try watch.wait()
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.output.contains("change"))
    }

    @Test func sinceBringsWhatHappenedMeanwhile() throws {
        let scene = try Scene()
        let subscriber = try scene.agent.subscribe("Notes.sqlite")
        try scene.commit()
        let token = try #require(try subscriber.next("change").string("token"))
        try scene.commit()
        try subscriber.next("change")
        let done = try groupstore(
            "watch", "\(AgentProcess.group)/Notes.sqlite", "--since", Word(token), "--once", "--json", "--timeout",
            "30",
            environment: scene.agent.environment)
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.objects.contains { $0.type == "change" && $0.string("token") != token })
    }

    @Test func aSignalEndsItWithOneHundredAndThirty() throws {
        let scene = try Scene()
        let watch = try scene.watch()
        watch.signal(SIGINT)
        #expect(try watch.wait(within: .seconds(20)).status == 130)
    }
}
