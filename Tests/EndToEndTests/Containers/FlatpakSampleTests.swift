import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import StrictYAML
import SystemPackage
import TestSupport
import Testing

/// Tests of `Samples/Containers/flatpak`. The agent runs on the host, the programs in a sandbox with the manifest's
/// grants.
@Suite(.ownThreads, .enabled(if: ContainerSandbox.isSupported, "unshare(1) may not make namespaces here"))
struct FlatpakSampleTests {
    private static let samples = ContainerSampleTests.samples + "flatpak/"

    /// A simulation of Flatpak's sandbox from the manifest, for a user with or without `XDG_DATA_HOME`.
    private final class Host {
        let place: TemporaryDirectory
        let home: FilePath
        let runtime: FilePath
        let data: FilePath
        let application: String
        let sandbox: ContainerSandbox

        init(setsDataHome: Bool) throws {
            place = try TemporaryDirectory()
            home = place.path.appending("home")
            runtime = place.path.appending("run")
            data = home.appending(setsDataHome ? "data" : ".local/share")
            let text = try ContainerSampleTests.text(samples + "com.example.Notes.yaml")
            let reader = YAMLReader(aliases: .refused, maximumBytes: 1 << 20, maximumDepth: 32)
            guard let manifest = try reader.root(of: Array(text.utf8))?.dictionary("the manifest"),
                let id = manifest["id"], let arguments = manifest["finish-args"]
            else { throw Unexpected("no manifest") }
            let application = try id.string("id")
            let grants = try arguments.strings("finish-args")
            self.application = application

            let own = home.appending(".var/app").appending(application)
            try run("mkdir", ["-p", Word(own.appending("data")), Word(runtime.appending("groupstore"))])
            try run("mkdir", ["-p", Word(home.appending(".config/groupstore")), Word(place.path.appending("root"))])
            try write(
                ContainerSampleTests.text(samples + "config.yaml"),
                to: home.appending(".config/groupstore/config.yaml"))

            var environment = [
                "HOME": home.string, "XDG_DATA_HOME": own.appending("data").string, "XDG_RUNTIME_DIR": runtime.string,
                "FLATPAK_ID": application,
            ]
            if setsDataHome { environment["HOST_XDG_DATA_HOME"] = data.string }
            sandbox = ContainerSandbox(
                root: place.path.appending("root"),
                mounts: [.empty(home), .empty(runtime), .bind(own, at: own)]
                    + (try Self.mounts(grants, data: data, runtime: runtime)),
                environment: environment)
        }

        /// Parses `--filesystem=xdg-data/NAME[:OPTION]` or `xdg-run/NAME`.
        private static func mounts(
            _ grants: [String], data: FilePath, runtime: FilePath
        ) throws -> [ContainerSandbox.Mount] {
            try grants.map { grant in
                let parts = grant.split(separator: ":")
                let place = parts[0].split(separator: "/", maxSplits: 1)
                guard place.count == 2,
                    let parent = ["--filesystem=xdg-data": data, "--filesystem=xdg-run": runtime][String(place[0])]
                else { throw Unexpected("what does Flatpak do with \(grant)?") }
                let path = parent.appending(String(place[1]))
                if parts.last == "create" { try run("mkdir", ["-p", "-m", "0700", Word(path)]) }
                return .bind(path, at: path, readOnly: parts.last == "ro")
            }
        }

        func startAgent() throws -> RunningProcess {
            try RunningProcess(
                Programs.groupstore, ["agent"],
                environment: [
                    "HOME": home.string, "XDG_RUNTIME_DIR": runtime.string, "XDG_DATA_HOME": data.string,
                    "XDG_CONFIG_HOME": "", "GROUPSTORE_SOCKET": "", "GROUPSTORE_CONTAINERS": "",
                    "HOST_XDG_DATA_HOME": "",
                ])
        }

        var socket: FilePath { runtime.appending("groupstore/agent.sock") }
        var legacy: FilePath { home.appending(".var/app").appending(application).appending("data/Notes.sqlite") }
        var shared: FilePath { data.appending("app-groups").appending(ContainerSampleTests.store) }
    }

    @Test(arguments: [false, true])
    func theAppFindsItsStoreAndReceivesChanges(_ setsDataHome: Bool) throws {
        let host = try Host(setsDataHome: setsDataHome)
        let agent = try host.startAgent()
        let subscriber = try ContainerSampleTests.subscriber(to: host.socket, of: agent)

        // The app's old version still has the store open.
        let old = try host.sandbox.start("sqlite3", ["-batch", "-init", "/dev/null", Word(host.legacy)])
        try old.execute("CREATE TABLE note (text TEXT); INSERT INTO note VALUES ('old')")
        let waiting = try subscriber.next("relocating")
        let holder = try #require(waiting.objects("waiting_for").first, "\(waiting.text)")
        #expect(holder.string("program") == "sqlite3")
        #expect(try holder.integer("pid") == Int64(ContainerSandbox.programPID(old)))
        old.closeInput()
        try subscriber.next("relocated")
        try old.wait()

        // The app's new version runs inside the sandbox.
        let found = try host.sandbox.run(Programs.groupstore, ["inspect", Word(ContainerSampleTests.store), "--json"])
        #expect(found.status == 0, "\(found.errors)")
        #expect(found.output.contains(host.shared.string))
        let listener = try host.sandbox.start(
            Programs.groupstore, ["watch", Word(ContainerSampleTests.store), "--json"])
        try listener.line { JSONObject(line: $0)?.type == "subscribed" }
        let written = try host.sandbox.run("sqlite3", [Word(host.shared), "INSERT INTO note VALUES ('new')"])
        #expect(written.status == 0, "\(written.errors)")
        try listener.line { JSONObject(line: $0)?.type == "change" }
        #expect(try noteCount(host.shared) == 2)

        agent.signal(SIGTERM)
        #expect(try agent.wait().status == 0)
    }

    @Test func theAppCannotReplaceTheSocket() throws {
        let host = try Host(setsDataHome: false)
        let agent = try host.startAgent()
        let subscriber = try ContainerSampleTests.subscriber(to: host.socket, of: agent)
        #expect(try host.sandbox.run("rm", ["-f", Word(host.socket)]).status != 0)
        let asked = try host.sandbox.run(Programs.groupstore, ["status", "--json"])
        #expect(asked.status == 0, "\(asked.errors)")
        withExtendedLifetime(subscriber) {}
    }
}
