import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@Suite struct AgentSocketTests {
    private let scratch: TemporaryDirectory

    init() throws { scratch = try TemporaryDirectory() }

    private func path(_ environment: [String: String]) -> FilePath? {
        AgentSocket.path(environment: environment, runtimeDirectories: scratch.path)
    }

    private var expected: FilePath {
        scratch.path.appending("\(geteuid())").appending("groupstore").appending("agent.sock")
    }

    @Test func triesTheUsersRuntimeDirectory() throws {
        #expect(path([:]) == nil)
        try Directory(scratch.path).makeDirectory(.init(stringLiteral: "\(geteuid())"), mode: 0o700)
        #expect(path([:]) == expected)
        #expect(path(["XDG_RUNTIME_DIR": "relative"]) == expected)
        #expect(path(["XDG_RUNTIME_DIR": "/run/x"]) == "/run/x/groupstore/agent.sock")
        #expect(path(["GROUPSTORE_SOCKET": "/a/b", "XDG_RUNTIME_DIR": "/run/x"]) == "/a/b")
    }

    @Test func rootFindsTheSystemsAgentUnlessItRunsOneOfItsOwn() throws {
        let system = scratch.path.appending("system.sock")
        func client(_ environment: [String: String] = [:], user: uid_t = 0) -> FilePath? {
            AgentSocket.clientPath(
                environment: environment, runtimeDirectories: scratch.path, system: system, user: user)
        }
        let own = scratch.path.appending("groupstore").appending("agent.sock")
        let session = ["XDG_RUNTIME_DIR": scratch.path.string]
        #expect(client() == nil && client(session) == own)
        try DurableFile.write([], as: "system.sock", in: Directory(scratch.path), mode: 0o600)
        #expect(client() == system && client(session) == system)
        #expect(client(["GROUPSTORE_SOCKET": "/a/b"]) == "/a/b")
        #expect(client(session, user: 1000) == own)
        try Directory(scratch.path).makeDirectory("groupstore", mode: 0o700)
        try DurableFile.write([], as: "agent.sock", in: Directory(own.removingLastComponent()), mode: 0o600)
        #expect(client(session) == own)
    }

    /// Its owner could run a false agent there.
    @Test func refusesWhatIsNotADirectoryOfTheUser() throws {
        let parent = try Directory(scratch.path)
        let name = FilePath.Component(stringLiteral: "\(geteuid())")
        try parent.makeDirectory("elsewhere", mode: 0o700)
        try parent.makeSymbolicLink(name, to: "elsewhere")
        #expect(path([:]) == nil)
        try parent.removeFile(name)
        try DurableFile.write([], as: name, in: parent, mode: 0o600)
        #expect(path([:]) == nil)
        guard geteuid() == 0 else { return }
        try parent.removeFile(name)
        try parent.makeDirectory(name, mode: 0o700)
        try #require(scratch.path.appending(name).withPlatformString { chown($0, 1, 1) } == 0)
        #expect(path([:]) == nil)
    }
}
