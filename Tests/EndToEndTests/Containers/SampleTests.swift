import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests that the samples do what `Samples/README.md` says.
@Suite(.ownThreads) struct SampleTests {
    @Test func theLegacyWriterLeavesItsRowsInTheWAL() throws {
        let places = try Places()
        let store = try StoreFiles(places.legacy.appending("Notes.sqlite"))
        let writer = try run(Programs.legacyWriter, [Word(store.path), "--rows", "25", "--leave-wal"])
        #expect(writer.status == 0, "\(writer.errors)")
        #expect(writer.lines == (1...25).map { "row \($0)" })
        let wal = try Directory(places.legacy).status(store.name.wal)
        #expect((wal?.size ?? 0) > 25 * 4096)
        #expect(try noteCount(store.path) == 25)
    }

    @Test func theLegacyWriterContinuesInRollbackMode() throws {
        let places = try Places()
        let store = try StoreFiles(places.legacy.appending("Notes.sqlite"))
        let writer = try RunningProcess(
            Programs.legacyWriter, [Word(store.path), "--rows", "1000000", "--rate", "1000", "--rollback-journal"])
        for number in 1...20 { #expect(try writer.line() == "row \(number)") }
        try writer.killAtOnce()
        #expect(try noteCount(store.path) >= 20)
        #expect(try Directory(places.legacy).status(store.name.wal) == nil)
    }

    @Test func theLegacyWriterRefusesInvalidArguments() throws {
        for words: [Word] in [
            [], ["--rows"], ["a", "--rows", "0"], ["a", "--leave-wal", "--rollback-journal"], ["a", "b"],
        ] {
            let writer = try run(Programs.legacyWriter, words)
            #expect(writer.status == 64)
            #expect(writer.errors.hasPrefix("legacy-writer: "))
        }
    }

    @Test(arguments: ["Samples/listener.sh", "Samples/listener.py"])
    func aListenerReceivesTheRelocationAndEachChange(_ sample: String) throws {
        let places = try Places()
        let published = places.group.appending("Notes.sqlite")
        let legacy = places.legacy.appending("Notes.sqlite")
        let agent = try AgentProcess(places, legacy: [legacy])
        let listener = try RunningProcess(
            Programs.source(sample), ["\(AgentProcess.group)/Notes.sqlite"], environment: agent.environment)
        try listener.line { $0.hasPrefix("listening") }

        try run(Programs.legacyWriter, [Word(legacy), "--rows", "5", "--leave-wal"])
        try listener.line { $0.hasPrefix("moved to") }
        for number in 1...5 {
            try sqlite(published, "INSERT INTO note (title, text) VALUES ('\(number)', 'later')")
            try listener.line { $0.hasPrefix("changed") }
        }
        try listener.killAtOnce(group: true)
    }

    @Test(arguments: ["Samples/listener.sh", "Samples/listener.py"])
    func aListenerReportsWhyItWasRefused(_ sample: String) throws {
        let places = try Places()
        let agent = try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
        let listener = try run(
            Programs.source(sample), ["group.example.unknown/Notes.sqlite"], environment: agent.environment)
        #expect(listener.status != 0)
        #expect(listener.errors.contains("refused: "))
    }

    @Test func thePythonListenerOutlivesTheAgent() throws {
        let places = try Places()
        let published = places.group.appending("Notes.sqlite")
        try makeStore(published, rows: 1)
        let legacy = places.legacy.appending("Notes.sqlite")
        let first = try AgentProcess(places, legacy: [legacy])
        let listener = try RunningProcess(
            Programs.source("Samples/listener.py"), ["\(AgentProcess.group)/Notes.sqlite"],
            environment: first.environment)
        try listener.line { $0.hasPrefix("listening") }
        #expect(try first.stop().status == 0)

        let second = try AgentProcess(places, legacy: [legacy])
        // The listener's token is from the first agent's epoch.
        try listener.line { $0.hasPrefix("forget") }
        try sqlite(published, "INSERT INTO note (text) VALUES ('later')")
        try listener.line { $0.hasPrefix("changed") }
        try listener.killAtOnce(group: true)
        #expect(try second.stop().status == 0)
    }
}
