import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of impossible requests: each gets an exit code and one clear line with the remedy, and changes nothing.
@Suite(.ownThreads) struct MisuseTests {
    /// Expects one line on stderr that starts with `groupstore:` and ends with a remedy in parentheses.
    private func expectClear(_ done: FinishedProcess, status: Int32, _ words: String...) {
        #expect(done.status == status, "\(done.errors)\(done.output)")
        let messages = done.errors.split(separator: "\n").filter { $0.hasPrefix("groupstore: ") }
        #expect(messages.count == 1, "\(done.errors)")
        #expect(messages.first?.hasSuffix(")") == true, "no remedy: \(done.errors)")
        for word in words { #expect(done.errors.contains(word), "“\(word)” is not in: \(done.errors)") }
    }

    private func expectRefusal(
        _ places: Places, _ legacy: FilePath, status: Int32, outcome: String, _ words: String...
    ) throws {
        let before = try (DirectorySnapshot(places.legacy), DirectorySnapshot(places.group))
        for extra in ["--dry-run", "--json"] {
            let done = try groupstore("relocate", Word(legacy), Word(places.group), Word(extra))
            #expect(done.status == status, "\(done.errors)\(done.output)")
            if extra == "--json" {
                #expect(done.outcome == outcome, "\(done.output)")
                #expect(done.summary.object("error")?.string("hint")?.isEmpty == false)
            }
            for word in words { #expect(done.errors.contains(word), "“\(word)” is not in: \(done.errors)") }
            #expect(try (DirectorySnapshot(places.legacy), DirectorySnapshot(places.group)) == before)
        }
    }

    @Test func refusesAFileThatIsNoDatabase() throws {
        for text in ["not a database at all", "<?xml version=\"1.0\"?><database/>", "SQLite format 3\0truncated"] {
            let places = try Places()
            let file = places.legacy.appending("Notes.sqlite")
            try write(text, to: file)
            try expectRefusal(places, file, status: 65, outcome: "refused", "Notes.sqlite")
        }
    }

    /// SQLite silently reads the missing bytes as zeros.
    @Test func refusesATruncatedDatabase() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        try sqlite(store.path, "PRAGMA journal_mode = DELETE")
        try run("truncate", ["-s", "-100", Word(store.path)])
        try expectRefusal(places, store.path, status: 65, outcome: "refused", "100 B of its last pages")
    }

    @Test func refusesTheRecordsDirectoryAsAGroup() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        #expect(try groupstore("relocate", Word(store.path), Word(places.group)).status == 0)
        let archive = places.group.appending(".groupstore/archive")
        try run("mkdir", ["-p", Word(archive)])
        let again = try makeStore(places.legacy.appending("Other.sqlite"), rows: 10)
        expectClear(
            try groupstore("relocate", Word(again.path), Word(archive)), status: 74, "\(archive)", "own records")
        #expect(try noteCount(again.path) == 10)
    }

    /// SQLite would remove such a file as soon as a program opens the other database.
    @Test(arguments: ["-wal", "-shm", "-journal"]) func refusesTheNameOfASideFile(_ suffix: String) throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        try makeStore(places.group.appending("Other.sqlite"), rows: 20)
        let name = Word("Other.sqlite" + suffix)
        let before = try (DirectorySnapshot(places.legacy), DirectorySnapshot(places.group))
        expectClear(
            try groupstore("relocate", Word(store.path), Word(places.group), "--name", name), status: 65,
            "can't be a store's name")
        #expect(try (DirectorySnapshot(places.legacy), DirectorySnapshot(places.group)) == before)
    }

    /// A script with an unset variable passes an empty path.
    @Test func refusesAnEmptyPath() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        for arguments in [[Word(store.path), ""], ["", Word(places.group)]] as [[Word]] {
            let done = try groupstore("relocate", options: arguments)
            #expect(done.status == 64 && done.errors.contains("an argument is empty"), "\(done.errors)")
        }
        #expect(try noteCount(store.path) == 10)
    }

    @Test func refusesHalfAStore() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10, unflushed: true)
        try run("rm", [Word(store.path)])
        try expectRefusal(places, store.path, status: 65, outcome: "refused", "Notes.sqlite", "-wal")
    }

    @Test func reportsAConflict() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        try makeStore(places.group.appending("Notes.sqlite"), rows: 20)
        try expectRefusal(
            places, store.path, status: 73, outcome: "conflict", places.legacy.string, places.group.string)

        let agent = try AgentProcess(places, legacy: [])
        for environment in [agent.environment, [:]] {
            let done = try groupstore("relocate", Word(store.path), Word(places.group), environment: environment)
            #expect(done.status == 73)
            for (role, rows) in [("legacy", 10), ("group", 20)] {
                let side = done.errors.split(separator: "\n").first { $0.hasPrefix("  \(role): ") } ?? ""
                #expect(side.contains("; modified 20"), "\(done.errors)")
                #expect(side.hasSuffix("rows: note \(rows)"), "\(done.errors)")
            }
        }
        #expect(try agent.stop().status == 0)
    }

    @Test func refusesAHardLink() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        try run("ln", [Word(store.path), Word(places.legacy.appending("Other.sqlite"))])
        try expectRefusal(places, store.path, status: 65, outcome: "refused", "link")
    }

    @Test func refusesAMissingGroupDirectory() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let before = try DirectorySnapshot(places.legacy)
        let missing = places.scratch("nowhere")
        expectClear(try groupstore("relocate", Word(store.path), Word(missing)), status: 74, missing.string)
        #expect(try DirectorySnapshot(places.legacy) == before)
        #expect(try Directory(missing.removingLastComponent()).status("nowhere") == nil)
    }

    @Test(.enabled(if: geteuid() == 0, "only root can become somebody else"))
    func reportsAMissingPermission() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        try run("chmod", ["755", Word(places.scratch(".")), Word(places.legacy), Word(places.group)])
        // The program may be in a directory that only root can enter.
        let program = places.scratch("groupstore")
        try run("cp", [Programs.groupstore, Word(program)])
        let before = try (DirectorySnapshot(places.legacy), DirectorySnapshot(places.group))
        let done = try run(
            "setpriv",
            [
                "--reuid=65534", "--regid=65534", "--clear-groups", Word(program), "relocate", Word(store.path),
                Word(places.group),
            ], environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        expectClear(done, status: 77)
        #expect(try (DirectorySnapshot(places.legacy), DirectorySnapshot(places.group)) == before)
    }

    @Test func reportsAMissingAgent() throws {
        let places = try Places()
        let socket = places.scratch("no.sock")
        let done = try groupstore(
            "watch", "--agent", "group.example/Notes.sqlite", environment: AgentProcess.environment(socket))
        expectClear(done, status: 69, socket.string)
    }

    @Test(arguments: [
        ("groups:\n  - id: group.example\n    storez: []\n", "storez"),
        (
            "groups:\n  - id: group.example\n    directory: 7\n    stores: [{ name: A, legacy: x, settle: soon }]\n",
            ":3:"
        ),
        ("groups: [", "YAML"),
        (
            """
            groups:
              - id: group.example
                directory: /tmp
                stores:
                  - { name: A.sqlite, legacy: [/tmp/old/A.sqlite] }
                  - { name: A.sqlite, legacy: [/tmp/older/A.sqlite] }
            """, "A.sqlite"
        ),
        (
            """
            groups:
              - id: group.example
                directory: /tmp
                stores:
                  - { name: A.sqlite, legacy: [/tmp/old/A.sqlite] }
                  - { name: B.sqlite, legacy: [/tmp/old/A.sqlite] }
            """, "/tmp/old/A.sqlite"
        ),
    ])
    func refusesAnInvalidConfiguration(_ text: String, _ word: String) throws {
        let places = try Places()
        let file = places.scratch("config.yaml")
        try write(text, to: file)
        let done = try groupstore(
            "agent", "--config", Word(file), environment: AgentProcess.environment(places.scratch("agent.sock")))
        expectClear(done, status: 78, file.string, word)
    }

    @Test func refusesAMissingConfiguration() throws {
        let places = try Places()
        let file = places.scratch("config.yaml")
        let done = try groupstore(
            "agent", "--config", Word(file), environment: AgentProcess.environment(places.scratch("agent.sock")))
        expectClear(done, status: 78, file.string)
    }

    @Test(arguments: [
        ["relocate"], ["relocate", "/a", "/b", "--deadline", "soon"], ["relocate", "/a", "/b", "--retire", "burn"],
        ["watch"], ["frobnicate"], ["watch", "group.example/Notes.sqlite", "--timeout", "soon"],
    ])
    func reportsAUsageError(_ words: [String]) throws {
        let done = try run(Programs.groupstore, words.map { Word($0) })
        #expect(done.status == 64, "\(done.errors)")
        #expect(done.errors.contains("Usage:"))
    }

    @Test func aDryRunWritesNothing() throws {
        for fileSystem in Places.FileSystem.allCases {
            let places = try Places(fileSystem)
            let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10, unflushed: true)
            let before = try (DirectorySnapshot(places.legacy), DirectorySnapshot(places.group, withBookkeeping: true))
            let done = try groupstore("relocate", Word(store.path), Word(places.group), "--dry-run", "--json")
            #expect(done.status == 0, "\(done.errors)")
            #expect(done.outcome == "relocated")
            #expect(done.summary.bool("dry_run") == true)
            let after = try (DirectorySnapshot(places.legacy), DirectorySnapshot(places.group, withBookkeeping: true))
            #expect(after == before)
        }
    }

    @Test func refusesAStoreThatIsAtNeitherPlace() throws {
        let places = try Places()
        let done = try groupstore(
            "relocate", Word(places.legacy.appending("Notes.sqlite")), Word(places.group), "--json")
        #expect(done.status == 74)
        #expect(done.outcome == "refused" && done.summary.object("error")?.string("code") == "no_store")
        #expect(try DirectorySnapshot(places.group, withBookkeeping: true).entries.isEmpty)
    }
}
