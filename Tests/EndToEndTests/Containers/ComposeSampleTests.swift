import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of `Samples/Containers/compose`. The services run in sandboxes that have the compose file's volumes.
@Suite(.ownThreads) struct ComposeSampleTests {
    private static let samples = ContainerSampleTests.samples + "compose/"

    private let file: ComposeFile
    private let agent: ComposeFile.Service
    private let agentImage: DockerfileStage
    private let applicationImage: DockerfileStage
    private let place: TemporaryDirectory

    init() throws {
        file = try ComposeFile(ContainerSampleTests.text(Self.samples + "compose.yaml"))
        let dockerfile = try ContainerSampleTests.text(Self.samples + "Dockerfile")
        agentImage = try DockerfileStage("agent", of: dockerfile)
        applicationImage = try DockerfileStage("app", of: dockerfile)
        agent = try #require(file.services["agent"])
        place = try TemporaryDirectory()
    }

    private func service(_ name: String) throws -> ComposeFile.Service { try #require(file.services[name]) }

    /// Returns the directory on this machine that stands for a volume.
    private func directory(of volume: ComposeFile.Volume) -> FilePath {
        volume.isNamed
            ? place.path.appending("volume-\(volume.source)")
            : FilePath(Programs.source(Self.samples + volume.source).description).lexicallyNormalized()
    }

    private func directory(at target: FilePath, of service: ComposeFile.Service) throws -> FilePath {
        directory(of: try #require(service.volume(at: target)))
    }

    /// Returns a sandbox with the service's volumes. The volumes' parent directories are otherwise empty, as in the
    /// image.
    private func sandbox(_ service: ComposeFile.Service) throws -> ContainerSandbox {
        for volume in service.volumes where volume.isNamed {
            try run("mkdir", ["-p", "-m", "0700", Word(directory(of: volume))])
        }
        let root = place.path.appending("root")
        try run("mkdir", ["-p", Word(root)])
        let parents = Set(service.volumes.compactMap { $0.target.components.first })
        return ContainerSandbox(
            root: root,
            mounts: parents.map { .empty(FilePath(root: "/", [$0])) }
                + service.volumes.map {
                    .bind(directory(of: $0), at: $0.target, readOnly: $0.options.contains("ro"))
                },
            environment: service.environment)
    }

    /// Returns the program that a command's first word names in the image.
    private func program(_ name: String) throws -> Word {
        if name == "groupstore" { return Programs.groupstore }
        let copied = applicationImage["COPY"].first { FilePath($0.last ?? "").lastComponent?.string == name }
        return Programs.source(try #require(copied?.first, "no image has \(name)"))
    }

    private func startAgent() throws -> RunningProcess {
        let words = (agentImage["ENTRYPOINT"] + agentImage["CMD"]).flatMap { $0 }
        #expect(words == ["groupstore", "agent"])
        return try sandbox(agent).start(Programs.groupstore, words.dropFirst().map { Word($0) })
    }

    private var socket: FilePath {
        get throws {
            let inside = FilePath(try #require(agent.environment["GROUPSTORE_SOCKET"]))
            let name = try #require(inside.lastComponent)
            return try directory(at: inside.removingLastComponent(), of: agent).appending(name)
        }
    }

    // MARK: - Behaviour

    @Test(.enabled(if: ContainerSandbox.isSupported, "unshare(1) may not make namespaces here"))
    func theAppsShareTheStoreThatTheAgentRelocates() throws {
        let notes = try service("notes")
        let widget = try service("widget")
        let process = try startAgent()
        let subscriber = try ContainerSampleTests.subscriber(to: socket, of: process)
        let healthy = try sandbox(agent).run(
            program(agent.healthCheck[0]), agent.healthCheck.dropFirst().map { Word($0) })
        #expect(healthy.status == 0, "\(healthy.errors)")
        let listener = try sandbox(widget).start(
            program(widget.command[0]), widget.command.dropFirst().map { Word($0) })
        try listener.line { $0.hasPrefix("listening") }

        // The app's old version. The agent can't name it from another PID namespace.
        let old = try sandbox(notes).start("sqlite3", ["-batch", "-init", "/dev/null", "/data/Notes.sqlite"])
        try old.execute("PRAGMA journal_mode = WAL; CREATE TABLE note (text TEXT); INSERT INTO note VALUES ('old')")
        #expect(try subscriber.next("relocating").objects("waiting_for").isEmpty)
        try listener.line { $0.hasPrefix("moving") }
        old.closeInput()
        try old.wait()
        try listener.line { $0.hasPrefix("moved to /groups/\(ContainerSampleTests.store)") }
        #expect(try Directory(directory(at: "/data", of: notes)).status("Notes.sqlite")?.kind == .symbolicLink)

        // The app's new version.
        let written = try sandbox(notes).run(
            "sqlite3", ["/groups/" + Word(ContainerSampleTests.store), "INSERT INTO note VALUES ('new')"])
        #expect(written.status == 0, "\(written.errors)")
        try listener.line { $0.hasPrefix("changed") }
        let group = try directory(at: "/groups/group.com.example.notes", of: agent)
        #expect(try noteCount(group.appending("Notes.sqlite")) == 2)

        // rename(2) treats two mounts as two file systems, even if both belong to one.
        let row = try groupstore("status", Word(group), "--json")
        #expect(row.output.contains("\"method\":\"copy\""), "\(row.output)")

        // `docker stop` sends SIGTERM to the container's first process.
        kill(try ContainerSandbox.programPID(process), SIGTERM)
        #expect(try process.wait().status == 0)
    }

    @Test(.enabled(if: ContainerSandbox.isSupported, "unshare(1) may not make namespaces here"))
    func namesAnAppInTheAgentsPIDNamespace() throws {
        let legacy = try directory(at: "/legacy/notes", of: agent).appending("Notes.sqlite")
        let process = try startAgent()
        let subscriber = try ContainerSampleTests.subscriber(to: socket, of: process)
        let holder = try RunningProcess(
            "nsenter",
            [
                "--target", "\(try ContainerSandbox.programPID(process))", "--user", "--preserve-credentials", "--pid",
                "setpriv", "--bounding-set=-all", "--inh-caps=-all", "sqlite3", "-batch", "-init", "/dev/null",
                Word(legacy),
            ])
        try holder.execute("CREATE TABLE note (text TEXT)")
        let waiting = try subscriber.next("relocating")
        #expect(waiting.objects("waiting_for").map { $0.string("program") } == ["sqlite3"], "\(waiting.text)")
        holder.closeInput()
        try holder.wait()
        try subscriber.next("relocated")
    }

    // MARK: - Contents

    @Test func theServicesUseTheSameValues() throws {
        #expect(file.services.count == 3)
        #expect(Set(file.services.values.map(\.user)).count == 1)
        #expect(Set(file.services.values.map(\.environment)).count == 1)
        let stores = try #require(agent.volume(at: "/groups/group.com.example.notes"))
        for (name, service) in file.services {
            #expect(service.volume(at: stores.target)?.source == stores.source, "\(name)")
            #expect(service.volumes.allSatisfy { !$0.isNamed || file.volumes.contains($0.source) }, "\(name)")
            let options = service.volume(at: "/run/groupstore")?.options
            #expect(options?.contains("ro") == (service.image == "app"), "\(name)")
        }
        #expect(agent.volumes.filter { !$0.isNamed }.map(\.target) == ["/etc/groupstore/config.yaml"])
    }

    /// users.yaml and its configuration: each app is a user with roles, and shares the Unix group of the volumes.
    @Test func theAppsUsersHaveRoles() throws {
        let users = try ComposeFile(ContainerSampleTests.text(Self.samples + "users.yaml"))
        #expect(Set(users.services.keys) == Set(file.services.keys))
        let agent = try #require(users.services["agent"])
        #expect(agent.user == self.agent.user)
        var seen: Set<uid_t> = []
        for (name, service) in users.services {
            // Apart from the user and the configuration, the services are those of compose.yaml.
            let same = try self.service(name)
            #expect(service.environment == same.environment && service.command == same.command, "\(name)")
            #expect(service.volumes.filter(\.isNamed).map(\.target) == same.volumes.filter(\.isNamed).map(\.target))
            let parts = service.user.split(separator: ":")
            #expect(parts.count == 2 && parts.last == agent.user.split(separator: ":").last, "\(name)")
            seen.insert(try #require(parts.first.flatMap { uid_t($0) }))
        }
        #expect(seen == [1000, 1001, 1002])
        let mounted = try #require(agent.volume(at: "/etc/groupstore/config.yaml"))
        let checked = try groupstore(
            "agent", "--check", "--config", Word(directory(of: mounted)), "--json",
            environment: ["GROUPSTORE_CONTAINERS": place.path.string, "GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        #expect(checked.status == 0, "\(checked.output)\(checked.errors)")
        let text = try ContainerSampleTests.text(Self.samples + mounted.source)
        for roles in ["{ uid: 1001, may: [subscribe, present] }", "{ uid: 1002, may: [subscribe] }"] {
            #expect(text.contains(roles), "\(roles)")
        }
    }

    @Test func theAgentsUserOwnsItsVolumes() throws {
        let made = agentImage.arguments(of: ["install", "-d"])
        let owner = try #require(made.firstIndex(of: "-o")).advanced(by: 1)
        let group = try #require(made.firstIndex(of: "-g")).advanced(by: 1)
        #expect("\(made[owner]):\(made[group])" == agent.user)
        #expect(agentImage["USER"] == [[agent.user]])
        #expect(applicationImage["USER"] == [[agent.user]])
        let targets = agent.volumes.filter(\.isNamed).map(\.target.string)
        #expect(Set(targets).isSubset(of: made))
    }

    /// Debian's `dpkg` maps a library to its package.
    @Test(.enabled(if: (try? run("dpkg-query", ["--version"]))?.status == 0, "no dpkg here"))
    func theImageHasTheAgentsLibraries() throws {
        // These packages are in every Debian image or in Swift's.
        let base: Set = ["libc6", "libgcc-s1", "libstdc++6"]
        let loaded = try run("ldd", [Programs.groupstore]).lines.compactMap { line in
            line.split(separator: " ").first { $0.hasPrefix("/") }.map(String.init)
        }
        var packages: Set<String> = []
        for library in loaded where !library.contains("/swift/") {
            // Debian 12 lists libraries under /usr/lib or /lib; one is a link to the other.
            let pattern = "*/" + (FilePath(library).lastComponent?.string ?? library)
            let owner = try run("dpkg-query", ["--search", Word(pattern)]).lines.first
            packages.insert(try #require(owner?.split(separator: ":").first.map(String.init), "\(library)"))
        }
        #expect(
            packages.subtracting(base)
                == Set(agentImage.arguments(of: ["apt-get", "install"]).filter { !$0.hasPrefix("-") }))
    }

    @Test func theCopiedFilesExist() throws {
        for words in applicationImage["COPY"] + agentImage["COPY"] where !words.contains("--from=build") {
            #expect(try run("test", ["-f", Programs.source(words[0])]).status == 0, "\(words)")
        }
        #expect(try ContainerSampleTests.text(Self.samples + "Dockerfile").contains("script/install"))
    }
}
