import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStore

/// A group's directory that is put back from a backup, older than a subscriber's token. What is committed next gets the
/// number of the token's step.
@Suite(.ownThreads, .timeLimit(.minutes(60))) struct RestoredGroupTests {
    /// A scene with a backup of its group.
    private final class Scene {
        let rows: RowsScene
        let tokenFile: FilePath
        private let saved: FilePath

        init() throws {
            rows = try RowsScene("PRAGMA journal_mode = WAL; CREATE TABLE t (id INTEGER PRIMARY KEY, x TEXT)")
            tokenFile = rows.places.scratch("token")
            saved = rows.places.scratch("saved")
            // The copy is made.
            _ = try rows.token()
            try commit(1)
            try rows.awaitSteps(1)
            try rows.killAgent { try run("cp", ["-a", Word(rows.places.group), Word(saved)]) }
        }

        func commit(_ key: Int) throws { try sqlite(rows.store, "INSERT INTO t VALUES (\(key), 'a')") }

        /// Returns the token of a step that the backup doesn't have.
        func laterToken() throws -> String {
            try commit(2)
            try rows.awaitSteps(2)
            return try rows.token()
        }

        /// Puts the backup back while no agent runs, and commits keys.
        func restore(inPlace: Bool, committing keys: [Int]) throws {
            let script =
                inPlace
                ? "cd \"$2\" && find . -type f | while read -r f; do cat \"$f\" > \"$1/$f\"; done"
                : "rm -rf \"$1\" && cp -a \"$2\" \"$1\""
            try rows.killAgent {
                try run("sh", ["-c", Word(script), "sh", Word(rows.places.group), Word(saved)])
                for key in keys { try commit(key) }
            }
        }

        func storedToken() throws -> String? {
            let bytes = try Descriptor(opening: tokenFile, flags: O_RDONLY).read(count: 4096, at: 0)
            return String(decoding: bytes, as: UTF8.self).split(separator: "\n").first.map { String($0) }
        }

        func awaitStoredToken(_ token: String?) throws {
            let deadline = Deadline(after: .ample)
            while try storedToken() != token { try #require(!deadline.hasPassed, "\(token ?? "") isn't written") }
        }

        func watch(_ options: [Word]) throws -> RunningProcess {
            try RunningProcess(
                Programs.groupstore,
                ["watch", "--agent", "--json", "--token-file", Word(tokenFile), Word(rows.name)] + options,
                environment: rows.agent.environment)
        }
    }

    private func line(_ process: RunningProcess) throws -> JSONObject {
        let text = try #require(try process.line(), "the watch has ended")
        return try #require(JSONObject(line: text), "\(text)")
    }

    /// The reset comes at once, without another commit, and a watch that is killed after it goes on after it.
    @Test(arguments: [["--values"], ["--rows"], ["--durable"]] as [[Word]], [[], [3], [3, 4]])
    func aWatchPrintsTheResetBeforeItsTokenAdvances(_ options: [Word], committing keys: [Int]) throws {
        let scene = try Scene()
        let token = try scene.laterToken()
        try write(token + "\n", to: scene.tokenFile)
        try scene.restore(inPlace: keys.count == 1, committing: keys)
        var watch = try scene.watch(options)
        #expect(try line(watch).string("token") == token)
        let reset = try line(watch)
        #expect(reset.type == "reset" && reset.string("reason") == "epoch", "\(reset.text)")
        try scene.awaitStoredToken(reset.string("token"))
        try watch.killAtOnce()
        watch = try scene.watch(options)
        #expect(try line(watch).string("token") != token)
        try scene.commit(5)
        var types: [String?] = []
        while types.last != "change" { types.append(try line(watch).type) }
        #expect(!types.contains("reset"))
        try watch.killAtOnce()
    }

    @Test(arguments: [[], [3]]) func aWatchThatReturnsToTheAgentPrintsTheReset(committing keys: [Int]) throws {
        let scene = try Scene()
        let watch = try scene.watch(["--values"])
        _ = try line(watch)
        try scene.commit(2)
        var last = JSONObject()
        while last.type != "change" { last = try line(watch) }
        try scene.awaitStoredToken(last.string("token"))
        try scene.restore(inPlace: true, committing: keys)
        let reset = try line(watch)
        #expect(reset.type == "reset" && reset.string("reason") == "epoch", "\(reset.text)")
        try scene.awaitStoredToken(reset.string("token"))
        try scene.commit(4)
        var found: [JSONValue] = []
        while last.type != "change" || found.isEmpty {
            last = try line(watch)
            if let key = last["key"], last.type == "row" { found.append(key) }
        }
        #expect(found == [4])
        try watch.killAtOnce()
    }

    /// The reply has the client's token, and the reset the agent's.
    @Test(arguments: [[:], ["durable": true], ["rows": true]] as [JSONObject])
    func aSubscriptionBeginsWithTheReset(_ options: JSONObject) throws {
        let scene = try Scene()
        let token = try scene.laterToken()
        try scene.restore(inPlace: true, committing: [3])
        let connection = try scene.rows.agent.connect()
        var request: JSONObject = ["id": 1, "op": "subscribe", "since": .string(token)]
        request["store"] = .string(scene.rows.name)
        for member in options.members { request[member.key] = member.value }
        try connection.send(request)
        #expect(try connection.next { $0["id"] == 1 }.string("token") == token)
        let reset = try connection.next { _ in true }
        #expect(reset.type == "reset" && reset.string("reason") == "epoch", "\(reset.text)")
        #expect(try SubscriptionToken(reset.string("token") ?? "")?.history == scene.rows.token())
    }

    @Test(arguments: [[], [3]]) func swiftBeginsWithTheReset(committing keys: [Int]) async throws {
        let scene = try Scene()
        let token = try scene.laterToken()
        try scene.restore(inPlace: true, committing: keys)
        let address = try #require(StoreAddress(bytes: Array(scene.rows.name.utf8)))
        var subscription = SubscribeOperation(address, since: token)
        subscription.wantsDurableTokens = true
        var changes = StoreChanges(subscription: subscription, socket: scene.rows.agent.socket).makeAsyncIterator()
        let first = try await changes.next()
        guard case .reset("epoch", let now)? = first else { throw Unexpected("\(String(describing: first))") }
        #expect(now != token)
    }

    @Test(arguments: [[], [3]]) func pythonBeginsWithTheReset(committing keys: [Int]) throws {
        let scene = try Scene()
        let token = try scene.laterToken()
        try write(token + "\n", to: scene.tokenFile)
        try scene.restore(inPlace: true, committing: keys)
        let source = scene.rows.places.scratch("program.py")
        try write(
            """
            import sys
            import groupstore
            with groupstore.Changes(sys.argv[1], durable=True, token_file=sys.argv[2]) as events:
                for event in events:
                    print(type(event).__name__, getattr(event, "reason", None), flush=True)
                    sys.stdin.readline()
            """, to: source)
        let client = try RunningProcess(
            "/usr/bin/env", ["python3", Word(source), Word(scene.rows.name), Word(scene.tokenFile)],
            environment: scene.rows.agent.environment.merging(Programs.pythonClient) { $1 })
        #expect(try client.line() == "Reset epoch")
        // The program hasn't handled it yet.
        #expect(try scene.storedToken() == token)
        try client.killAtOnce()
    }
}
