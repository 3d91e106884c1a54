import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// A store that nobody listens to costs its writers nothing. Its tokens stay good: whoever comes back is told that the
/// store was written meanwhile.
@Suite(.ownThreads, .timeLimit(.minutes(60))) struct DormantStoreTests {
    private let places: Places
    private let store: FilePath
    private let agent: AgentProcess
    private static let address = JSONValue.string("\(AgentProcess.group)/Notes.sqlite")

    init() throws {
        places = try Places()
        store = places.group.appending("Notes.sqlite")
        try sqlite(store, "PRAGMA journal_mode = WAL; CREATE TABLE note (text); INSERT INTO note VALUES ('first')")
        agent = try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
    }

    // MARK: What writers pay

    @Test func writesRaiseNoEventWithoutASubscriber() throws {
        try awaitWriteEvents(false)
        #expect(try storeFilesOpen() == 0)
        let subscriber = try agent.subscribe("Notes.sqlite")
        #expect(try hasWriteEvents())
        try sqlite(store, "INSERT INTO note VALUES ('heard')")
        try subscriber.next("change")
        try subscriber.send(["id": 2, "op": "unsubscribe", "store": Self.address])
        try subscriber.next { $0["id"] == 2 }
        try awaitWriteEvents(false)
        #expect(try storeFilesOpen() == 0)
    }

    @Test func oneHeardStoreKeepsTheEventsOfItsDirectory() throws {
        let other = places.group.appending("Other.sqlite")
        try sqlite(other, "PRAGMA journal_mode = WAL; CREATE TABLE other (text)")
        let listener = try agent.subscribe("Other.sqlite")
        let token = try subscribe()
        try awaitDormancy()
        #expect(try hasWriteEvents())
        try sqlite(other, "INSERT INTO other VALUES ('heard')")
        #expect(try listener.next("change").string("store")?.hasSuffix("/Other.sqlite") == true)
        #expect(try eventTypes(since: token) == [])
    }

    @Test(.soak) func aStoreWithAHistoryIsNeverDormant() throws {
        let configuration = places.scratch("config.yaml")
        try write(
            """
            groups:
              - id: \(AgentProcess.group)
                directory: \(places.group.string)
                stores:
                  - name: Notes.sqlite
                    history: {keep: 1d}
            """, to: configuration)
        let agent = try AgentProcess(["--config", Word(configuration)], socket: places.scratch("other.sock"))
        try sleepUntilDormant()
        #expect(try hasWriteEvents(agent))
    }

    @Test(.enabled(if: Programs.canTrace, "strace can't attach here"))
    func aWriterWakesNobody() throws {
        let writer = try sqliteShell(store)
        try writer.execute("INSERT INTO note VALUES ('opened')")
        try awaitWriteEvents(false)
        let busy = try RunningProcess(
            "sh",
            [
                "-c",
                Word(
                    "while :; do echo \"INSERT INTO note VALUES ('busy');\"; sleep 0.01; done | sqlite3 '\(store)'"),
            ])
        // It has the store open, which may change attributes.
        try wait { try sqlite(store, "SELECT count(*) > 1 FROM note WHERE text = 'busy'") == "1\n" }
        // A file created beside the agent's directories would be an event for it.
        let elsewhere = try TemporaryDirectory()
        var calls: [String] = []
        // The first trace may include work that the last opening of the store left over.
        for attempt in 1...3 {
            calls = try systemCalls(
                of: agent.process.pid, for: .seconds(2), in: elsewhere.path.appending("calls \(attempt)"))
            if calls.isEmpty { break }
        }
        #expect(try !busy.hasEnded(within: .zero))
        try busy.killAtOnce(group: true)
        #expect(calls.isEmpty, "\(calls)")
    }

    // MARK: What a returning subscriber is told

    /// What happens to a store while nobody listens.
    enum Action: String, CaseIterable {
        case nothing, readOnly, commit, lastClose, rollbackCommit, sameSizeUpdate, vacuum, checkpoint, schema
        case replaced, recreated, removed, restored, appended
    }

    @Test(arguments: Tier.cases(Action.allCases, quick: [.commit]), Tier.cases(["wal", "delete"], quick: ["wal"]))
    func aTokenFromBeforeIsAnsweredByOneLook(_ action: Action, mode: String) throws {
        try sqlite(store, "PRAGMA journal_mode = \(mode)")
        let shell = try sqliteShell(store)
        try shell.execute("SELECT * FROM note")
        if action == .checkpoint { try shell.execute("INSERT INTO note VALUES ('before')") }
        let token = try subscribe()
        try awaitDormancy()
        let allowed = try perform(action, mode: mode, shell)
        let found = try eventTypes(since: token)
        #expect(allowed.contains(found), "\(found)")
        // The events that were told have been told.
        if found != [] { #expect(try eventTypes(since: try subscribe()) == []) }
        withExtendedLifetime(shell) {}
    }

    /// Returns the sequences of events that are right afterwards.
    private func perform(_ action: Action, mode: String, _ shell: RunningProcess) throws -> [[String]] {
        let change = [["change"]]
        switch action {
        case .nothing: return [[]]
        case .readOnly:
            try sqlite(store, "SELECT count(*) FROM note")
            return [[]]
        case .commit: try shell.execute("INSERT INTO note VALUES ('later')")
        case .lastClose:
            try shell.execute("INSERT INTO note VALUES ('later')")
            shell.closeInput()
            try shell.wait()
        case .rollbackCommit: try sqlite(store, "INSERT INTO note VALUES ('later')")
        case .sameSizeUpdate: try sqlite(store, "UPDATE note SET text = 'fresh'")
        case .vacuum: try sqlite(store, "DELETE FROM note; VACUUM")
        case .checkpoint:
            try sqlite(store, "PRAGMA wal_checkpoint(TRUNCATE)")
            // Nothing was committed, but the log that could prove it is empty.
            return [[], ["change"]]
        case .schema: try sqlite(store, "CREATE TABLE more (text)")
        case .replaced:
            let other = places.scratch("other.sqlite")
            try sqlite(other, "CREATE TABLE note (text); INSERT INTO note VALUES ('other')")
            try run("rm", ["-f", Word(store.string + "-wal"), Word(store.string + "-shm")])
            try run("mv", [Word(other), Word(store)])
            return [["reset"]]
        case .recreated:
            try run("rm", ["-f", Word(store), Word(store.string + "-wal"), Word(store.string + "-shm")])
            try sqlite(store, "CREATE TABLE note (text); INSERT INTO note VALUES ('fresh')")
            return [["reset"]]
        case .removed:
            try run("rm", ["-f", Word(store), Word(store.string + "-wal"), Word(store.string + "-shm")])
            return [["reset"]]
        case .restored:
            // A backup is copied over the file, with its times.
            let backup = places.scratch("backup.sqlite")
            try sqlite(store, "PRAGMA wal_checkpoint(TRUNCATE)")
            try run("cp", ["-p", Word(store), Word(backup)])
            try sqlite(store, "UPDATE note SET text = 'fresh'; PRAGMA wal_checkpoint(TRUNCATE)")
            try run("cp", ["-p", Word(backup), Word(store)])
        case .appended:
            try sqlite(store, "INSERT INTO note VALUES (zeroblob(100000))")
        }
        return change
    }

    @Test func aTokenOfStatusHoldsForAStoreThatNobodyEverHeard() throws {
        try awaitWriteEvents(false)
        let row = try groupstore("status", "--json", environment: agent.environment).objects.first {
            $0.type == "store"
        }
        let token = try #require(row?.string("token"))
        #expect(row?.string("state") == "idle")
        #expect(try eventTypes(since: token) == [])
        try awaitDormancy()
        try sqlite(store, "INSERT INTO note VALUES ('later')")
        #expect(try eventTypes(since: token) == ["change"])
    }

    @Test func statusKnowsTheStateOfADormantStore() throws {
        try awaitWriteEvents(false)
        func state() throws -> String? {
            let rows = try groupstore("status", "--json", environment: agent.environment).objects
            return rows.first { $0.type == "store" }?.string("state")
        }
        #expect(try state() == "idle")
        try run("mv", [Word(store), Word(places.scratch("away.sqlite"))])
        try wait { try state() == "absent" }
        try run("mv", [Word(places.scratch("away.sqlite")), Word(store)])
        try wait { try state() == "idle" }
        try run("mv", [Word(store), Word(places.scratch("away.sqlite"))])
        try run("ln", ["-s", Word(places.scratch("away.sqlite")), Word(store)])
        try wait { try state() == "unreadable" }
    }

    /// Kills, several listeners and writers in random order. Whoever holds a token and reads the store when told to is
    /// never behind.
    @Test(.soak) func listenersThatComeAndGoMissNothing() throws {
        let writer = try sqliteShell(store)
        let seed = UInt64.random(in: 0..<1_000_000)
        var random = SeededGenerator(seed: seed)
        var token = try subscribe()
        var known = try noteTexts()
        for round in 0..<8 {
            let isWritten = Bool.random(using: &random)
            if Bool.random(using: &random) { try awaitDormancy() }
            if isWritten { try writer.execute("INSERT INTO note VALUES ('round \(round)')") }
            if Bool.random(using: &random) { try awaitDormancy() }
            let events = try eventTypes(since: token)
            if events != [] { known = try noteTexts() }
            #expect(try noteTexts() == known, "seed \(seed), round \(round)")
            token = try subscribe()
        }
    }

    // MARK: Helpers

    private func noteTexts() throws -> String { try sqlite(store, "SELECT group_concat(text) FROM note") }

    /// Subscribes for a moment, and returns the token.
    private func subscribe() throws -> String {
        let connection = try agent.connect()
        try connection.send(["id": 1, "op": "subscribe", "store": Self.address])
        return try #require(try connection.next { $0["id"] == 1 }.string("token"))
    }

    /// Returns the types of the events that a subscriber with the token is sent at once.
    private func eventTypes(since token: String) throws -> [String] {
        let connection = try agent.connect()
        try connection.send(["id": 1, "op": "subscribe", "store": Self.address, "since": .string(token)])
        try connection.send(["id": 2, "op": "sync", "store": Self.address])
        var types: [String] = []
        try connection.next { object in
            if ["change", "reset", "relocated"].contains(object.type) { types.append(object.type ?? "") }
            return object["id"] == 2
        }
        return types
    }

    /// Returns once the agent has none of the store's files open.
    private func awaitDormancy() throws { try wait { try storeFilesOpen() == 0 } }

    private func sleepUntilDormant() throws { try run("sleep", ["6"]) }

    private func storeFilesOpen() throws -> Int {
        let descriptors = FilePath("/proc/\(agent.process.pid)/fd")
        return try Directory(descriptors).names().count { name in
            let target = try? run("readlink", [Word(descriptors.appending(name))]).output
            return target?.hasPrefix(store.string) == true
        }
    }

    private func awaitWriteEvents(_ expected: Bool) throws { try wait { try hasWriteEvents() == expected } }

    /// True if the kernel tells the agent of writes in the group's directory.
    private func hasWriteEvents(_ other: AgentProcess? = nil) throws -> Bool {
        var found: Bool?
        // The agent may open and close files while they are listed; the list then misses some.
        try wait {
            found = try watchMask(of: other ?? agent).map { $0 & UInt32(IN_MODIFY) != 0 }
            return found != nil
        }
        return found == true
    }

    /// Returns the mask of an agent's watch of the group's directory, or nil if none was found.
    private func watchMask(of agent: AgentProcess) throws -> UInt32? {
        let inode = try #require(FileStatus(following: places.group)).identity.inode
        let information = FilePath("/proc/\(agent.process.pid)/fdinfo")
        for name in try Directory(information).names() {
            let text = (try? run("cat", [Word(information.appending(name))]).output) ?? ""
            for line in text.split(separator: "\n") {
                let fields = line.split(separator: " ")
                guard fields.contains("ino:" + String(inode, radix: 16)),
                    let mask = fields.first(where: { $0.hasPrefix("mask:") })
                else { continue }
                return UInt32(mask.dropFirst(5), radix: 16)
            }
        }
        return nil
    }

    private func wait(_ condition: () throws -> Bool) throws {
        let deadline = Deadline(after: .ample)
        while try !condition() {
            guard !deadline.hasPassed else { throw Unexpected("not in time") }
            usleep(20_000)
        }
    }
}
