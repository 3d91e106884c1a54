import EndToEndSupport
import SystemPackage
import TestSupport
import Testing

/// Tests with a standard output that accepts no writes.
@Suite(.ownThreads) struct LostOutputTests {
    @Test func aCommandThatChangedSomethingWarnsAndSucceeds() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let commands: [[Word]] = [
            ["history", "enable", Word(store.path)], ["relocate", Word(store.path), Word(places.group)],
            ["recover", Word(places.group)], ["relocate", Word(store.path), Word(places.group), "--undo"],
        ]
        for options: [Word] in [[], ["--json"]] {
            for command in commands {
                let done = try intoNothing(command + options)
                #expect(done.status == 0, "\(command): \(done.errors)")
                let warns = done.errors.contains("the command succeeded, but standard output")
                #expect(warns, "\(command): \(done.errors)")
            }
            #expect(try noteCount(store.path) == 10)
        }
    }

    @Test func aCommandThatOnlyPrintsFails() throws {
        let places = try Places()
        let store = Word(try makeStore(places.legacy.appending("Notes.sqlite"), rows: 1).path)
        #expect(try groupstore("history", "enable", store).status == 0)
        let commands: [[Word]] = [
            ["inspect", store], ["changes", store, "--now"], ["relocate", store, Word(places.group), "--dry-run"],
        ]
        for command in commands {
            let done = try intoNothing(command)
            #expect(done.status == 74, "\(command): \(done.errors)")
            #expect(done.errors.contains("standard output can't be written to"), "\(command): \(done.errors)")
        }
    }

    private func intoNothing(_ arguments: [Word]) throws -> FinishedProcess {
        try run(
            "sh", ["-c", #""$@" > /dev/full"#, "sh", Programs.groupstore] + arguments,
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
    }
}
