import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import RelayStatus

/// Where the records of running relays are, and who finds them.
@Suite struct RelayRecordTests {
    private let scratch: TemporaryDirectory
    private var own: FilePath { scratch.path.appending("own") }
    private var system: FilePath { scratch.path.appending("system") }

    init() throws {
        scratch = try TemporaryDirectory()
        for path in [scratch.path.appending("own"), scratch.path.appending("system")] {
            try Directory(scratch.path).makeDirectory(path.lastComponent ?? "", mode: 0o700)
        }
    }

    private func found() -> [String] {
        RelayRecord.all(environment: ["XDG_RUNTIME_DIR": own.string], system: system).map(\.stream)
    }

    private func write(_ stream: String, in environment: [String: String]) throws {
        let directory = try #require(RelayRecord.ownDirectory(environment: environment))
        try RelayRecord(.publish, store: FilePath("/srv/\(stream).sqlite"), stream: stream).write(to: directory)
    }

    @Test func recordsOfSessionsUserUnitsAndSystemUnitsAreFound() throws {
        #expect(found().isEmpty)
        try write("session", in: ["XDG_RUNTIME_DIR": own.string])
        // As systemd sets it for RuntimeDirectory=groupstore-relay/publish-NAME.
        try write("user", in: ["RUNTIME_DIRECTORY": own.appending("groupstore-relay/publish-user").string])
        try write(
            "system",
            in: ["RUNTIME_DIRECTORY": "\(system)/groupstore-relay/publish-system:/run/more", "XDG_RUNTIME_DIR": "/run"])
        #expect(found() == ["session", "user", "system"])
    }

    @Test func leavesOutFilesThatAreNoRecords() throws {
        let directory = own.appending("groupstore-relay").appending("publish-Notes")
        try write("Notes", in: ["RUNTIME_DIRECTORY": directory.string])
        try DurableFile.write(Array("{}".utf8), as: "Broken.publish.json", in: Directory(directory), mode: 0o600)
        try Directory(directory).makeDirectory("Directory.json", mode: 0o700)
        try Directory(own.appending("groupstore-relay")).makeDirectory("closed", mode: 0)
        #expect(found() == ["Notes"])
    }

    @Test func aProgramThatCannotGoOnIsNotUpToDate() {
        var record = RelayRecord(.publish, store: "/srv/Notes.sqlite", stream: "Notes")
        (record.state, record.server, record.lag) = ("caught_up", "nats://localhost", 0)
        #expect(record.lines.joined().contains("up to date") && record.object.integer("lag_changes") == 0)
        record.failure = .init(code: "no_space", message: "full", time: 0)
        (record.state, record.server) = ("no_space", nil)
        #expect(!record.lines.joined().contains("up to date") && !record.summary.contains("up to date"))
        #expect(record.object.integer("lag_changes") == nil && record.lagSeconds == nil)
        record.lag = 3
        #expect(record.summary.contains("3 changes behind"))
    }
}
