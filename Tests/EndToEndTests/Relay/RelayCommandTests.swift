import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The relay's options for units, and what `groupstore` does with its stores.
@Suite(.ownThreads, .timeLimit(.minutes(60)), .enabled(if: !NATSServer.programs.isEmpty, "there is no nats-server"))
struct RelayCommandTests {
    private let hosts: RelayHosts

    init() throws { hosts = try RelayHosts(NATSServer.programs[0]) }

    private func write(_ text: String, to path: FilePath, mode: mode_t = 0o600) throws {
        let directory = try Directory(path.removingLastComponent())
        let file = try directory.open(path.lastComponent ?? "", flags: O_WRONLY | O_CREAT | O_TRUNC, mode: mode)
        try file.write(Array(text.utf8), at: 0)
    }

    private func follow(secrets: Word) throws -> RelayProcess {
        try RelayProcess(
            [
                "follow", Word(hosts.group), "--server", Word(hosts.server.url), "--stream", "Notes", "--follower",
                "other", "--secrets", secrets,
            ], runtime: hosts.runtime)
    }

    /// A directory of secrets, or what systemd makes of one: files with a prefix.
    @Test(arguments: ["", "relay_"]) func secretsAreFoundByTheirNames(prefix: String) throws {
        let directory = hosts.path("secrets")
        try Directory(hosts.path("secrets").removingLastComponent()).makeDirectory("secrets", mode: 0o700)
        let publisher = try hosts.publish()
        let secrets = Word(directory.string + (prefix.isEmpty ? "" : "/" + prefix))
        // Without the key, messages of anybody would be believed.
        let refused = try follow(secrets: secrets).process.wait()
        #expect(refused.status == 78 && refused.errors.contains("\(prefix)key"), "\(refused.errors)")
        try write("another key, of more than 16 bytes", to: directory.appending("\(prefix)key"))
        let stranger = try follow(secrets: secrets)
        try stranger.event("error") { $0.string("message")?.contains("digest") == true }
        try stranger.stop()
        try write("0123456789abcdef0123456789abcdef\n", to: directory.appending("\(prefix)key"))
        let follower = try follow(secrets: secrets)
        #expect(try hosts.areEqual(follower))
        try follower.stop()
        // The other files count as soon as they are there.
        try write("no credentials", to: directory.appending("\(prefix)creds"))
        let spoiled = try follow(secrets: secrets).process.wait()
        #expect(spoiled.status == 78 && spoiled.errors.contains("\(prefix)creds"), "\(spoiled.errors)")
        #expect(try publisher.stop().status == 0)
    }

    @Test func historyOfAReplicaIsItsHomes() throws {
        let publisher = try hosts.publish()
        let follower = try hosts.follow()
        #expect(try hosts.areEqual(follower))
        for arguments in [["disable"], ["enable", "--before"]] as [[Word]] {
            let done = try groupstore("history", options: arguments + [Word(hosts.replica), "--json"])
            #expect(done.status == 73, "\(arguments): \(done.errors)")
            #expect(done.summary.object("error")?.string("code") == "is_replica")
            #expect(done.errors.contains("groupstore-relay promote"))
        }
        #expect(try groupstore("history", "enable", Word(hosts.replica), "--json").outcome == "unchanged")
        try hosts.write("INSERT INTO Note (title) VALUES ('still followed')")
        #expect(try hosts.areEqual(follower))
        #expect(try follower.stop().status == 0)
        #expect(try publisher.stop().status == 0)
        #expect(try run(Programs.relay, ["promote", Word(hosts.replica)]).status == 0)
        #expect(try groupstore("history", "enable", "--before", Word(hosts.replica)).status == 0)
    }

    /// The mirror of a home without history doesn't fit at the start. Arguments: what is scarce, and how much is left.
    @Test(
        .enabled(if: Namespaces.areAvailable, "needs unshare(1) and the right to make user namespaces"),
        arguments: [("inodes", 0), ("inodes", 5), ("inodes", 9), ("blocks", 0), ("blocks", 120), ("blocks", 300)])
    func aFullStateDirectoryIsNamedAndTheNextStartSucceeds(_ kind: String, _ left: Int) throws {
        let hosts = try RelayHosts(NATSServer.programs[0], keepsHistory: false)
        try sqlite(hosts.home, "UPDATE Note SET body = randomblob(800000); PRAGMA journal_mode = DELETE")
        let before = try run("cat", [Word(hosts.home)]).outputBytes
        let script = """
            mkdir "$1" && mount -t tmpfs -o size=8m,nr_inodes=60 tmpfs "$1" && mkfifo "$1.out" || exit 1
            free=$(stat -f -c %d "$1"); blocks=$(stat -f -c %f "$1")
            if [ "$2" = inodes ]; then for n in $(seq $((free - $3))); do : >"$1/fill$n"; done
            else dd if=/dev/zero of="$1/fill" bs=4096 count=$((blocks - $3)) 2>/dev/null; fi
            export XDG_RUNTIME_DIR="$8"
            publish() {
                exec "$4" publish "$5" --server "$6" --stream Notes --key "$7" --state-directory "$1" \\
                    --snapshot-directory "$8" --json
            }
            (publish "$@") >/dev/null || echo "status $?"
            rm "$1"/fill*; mount -o remount,size=90m,nr_inodes=900 "$1"
            (publish "$@") >"$1.out" & grep -m 1 -o caught_up "$1.out"; kill $!; wait $!; echo "again $?"
            """
        let words = [Word(hosts.path("state")), Word(kind), "\(left)", Programs.relay, Word(hosts.home)]
        let done = try run(
            "unshare",
            ["--user", "--map-root-user", "--mount", "sh", "-c", Word(script), "sh"] + words
                + [Word(hosts.server.url), Word(hosts.key), Word(hosts.runtime)])
        #expect(done.output == "status 74\ncaught_up\nagain 0\n", "\(done.output)\(done.errors)")
        let error = try #require(done.errors.split(separator: "\n").first { $0.hasPrefix("groupstore-relay: ") })
        #expect(error.contains("\(hosts.path("state"))") && error.contains("df -i"), "\(error)")
        #expect(try run("cat", [Word(hosts.home)]).outputBytes == before)
    }

    @Test func timesHaveUnitsAndLimits() throws {
        for (time, isAccepted) in [("0", false), ("500ms", false), ("later", false), ("36501d", false), ("90s", true)] {
            let done = try run(
                Programs.relay,
                [
                    "publish", Word(hosts.path("missing")), "--server", "nats://127.0.0.1", "--stream", "Notes",
                    "--max-age", Word(time),
                ])
            #expect(done.status == (isAccepted ? 74 : 64), "\(time): \(done.errors)")
        }
    }

    // MARK: groupstore status --watch

    private func environment(_ agent: AgentProcess) -> [String: String] {
        agent.environment.merging(["XDG_RUNTIME_DIR": hosts.runtime.string]) { $1 }
    }

    @Test func watchedStatusShowsRelaysAndTheirChanges() throws {
        let agent = try AgentProcess(
            ["--group", "\(AgentProcess.group)=" + Word(hosts.group)], socket: hosts.path("agent.sock"))
        let watch = try RunningProcess(
            Programs.groupstore, ["status", "--watch", "--interval", "0.1", "--json"], environment: environment(agent))
        func next(where isWanted: (JSONObject) -> Bool) throws -> JSONObject {
            let line = try watch.line { line in
                JSONObject(line: line).map { $0.type == "relay" && isWanted($0) } ?? false
            }
            return try #require(JSONObject(line: line))
        }
        let publisher = try hosts.publish()
        let found = try next { $0.string("state") == "caught_up" }
        #expect(found.string("role") == "publish" && found.string("store") == hosts.home.string)
        #expect(found["updated"] == nil && found["lag_seconds"] == nil)
        let batches = found.object("counts")?.integer("batches") ?? 0
        try hosts.write("INSERT INTO Note (title) VALUES ('another')")
        _ = try next { ($0.object("counts")?.integer("batches") ?? 0) > batches }
        // The relays are shown without an agent, too.
        #expect(try agent.stop().status == 0)
        #expect(try publisher.stop().status == 0)
        _ = try next { $0.bool("gone") == true }
        watch.signal(SIGTERM)
        #expect(try watch.wait().status == 130)
    }

    @Test func liveTableShowsRelays() throws {
        let agent = try AgentProcess(
            ["--group", "\(AgentProcess.group)=" + Word(hosts.group)], socket: hosts.path("agent.sock"))
        let terminal = try TerminalProcess(
            columns: 200, rows: 20, Programs.groupstore, ["status", "--watch", "--interval", "0.1"],
            environment: environment(agent))
        try terminal.command("await no stores are served")
        let publisher = try hosts.publish()
        try terminal.command("await ^relay .*Notes.sqlite  published to GS_Notes  caught_up, nats.*, up to date")
        publisher.process.signal(SIGKILL)
        _ = try publisher.process.wait()
        let state = try terminal.command("await ^relay .*Notes.sqlite  published to GS_Notes  ended")
        #expect(state.faults.isEmpty && state.styles.contains("31"), "\(state.text) \(state.styles)")
    }
}
