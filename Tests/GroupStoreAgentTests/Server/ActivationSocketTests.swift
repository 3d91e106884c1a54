import CLinux
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStoreAgent

/// The service manager's end: a socket that this process made, passed under the variables of sd_listen_fds(3).
@Suite struct ActivationSocketTests {
    private let scratch: TemporaryDirectory
    private var path: FilePath { scratch.path.appending("agent.sock") }

    init() throws { scratch = try TemporaryDirectory() }

    private func variables(_ count: String, process: pid_t = getpid(), names: String? = nil) -> [String: String] {
        var environment = ["LISTEN_FDS": count, "LISTEN_PID": "\(process)"]
        environment["LISTEN_FDNAMES"] = names
        return environment
    }

    private func failure(
        _ environment: [String: String], configured: FilePath? = nil, first: CInt
    ) -> ActivationSocket.Failure? {
        do throws(ActivationSocket.Failure) {
            _ = try ActivationSocket(environment: environment, configured: configured, first: first)
            return nil
        } catch {
            return error
        }
    }

    @Test func takesThePassedSocketAndItsPath() throws {
        let raw = try UnixSocket.listen(at: path).release()
        _ = fcntl(raw, F_SETFD, 0)
        _ = fcntl(raw, F_SETFL, 0)
        let activation = try #require(
            try ActivationSocket(environment: variables("1"), configured: path, first: raw))
        #expect(activation.path == path)
        #expect(activation.permissions == 0o600)
        let listener = activation.listener()
        #expect(listener.raw == raw)
        #expect(fcntl(raw, F_GETFD) & FD_CLOEXEC != 0)
        #expect(fcntl(raw, F_GETFL) & O_NONBLOCK != 0)
        // Otherwise this would wait.
        #expect(try UnixSocket.accept(on: listener) == nil)
    }

    @Test func ignoresVariablesForAnotherProcess() throws {
        #expect(try ActivationSocket(environment: [:], configured: nil) == nil)
        #expect(try ActivationSocket(environment: variables("1", process: 1), configured: nil, first: 999) == nil)
        #expect(try ActivationSocket(environment: variables("0"), configured: nil, first: 999) == nil)
        #expect(try ActivationSocket(environment: ["LISTEN_FDS": "1"], configured: nil, first: 999) == nil)
    }

    @Test(arguments: ["", "-1", "x", "99999999999", "10000"])
    func refusesACountThatIsNone(_ count: String) {
        #expect(failure(variables(count), first: 999) == .badCount(count))
    }

    @Test func refusesDescriptorsThatAreNotListeningSockets() throws {
        #expect(failure(variables("1"), first: 5000) == .notOpen(5000))
        let file = try Descriptor(opening: "/dev/null", flags: O_RDONLY)
        #expect(failure(variables("1"), first: file.raw) == .notAListener(file.raw))
        let listener = try UnixSocket.listen(at: path)
        let connected = try UnixSocket.connect(to: path)
        #expect(failure(variables("1"), first: connected.raw) == .notAListener(connected.raw))
        let internet = Descriptor(owning: socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0))
        _ = Glibc.listen(internet.raw, 1)
        #expect(failure(variables("1"), first: internet.raw) == .notAListener(internet.raw))
        let unnamed = Descriptor(owning: socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0))
        try retrying("bind") { "@groupstore-test-\(getpid())".withPlatformString { gs_socket_bind(unnamed.raw, $0) } }
        _ = Glibc.listen(unnamed.raw, 1)
        #expect(failure(variables("1"), first: unnamed.raw) == .hasNoPath(unnamed.raw))
        withExtendedLifetime(listener) { _ in }
    }

    /// A client that reads the configuration would look for the agent in the other place.
    @Test func refusesASocketElsewhereThanConfigured() throws {
        let listener = try UnixSocket.listen(at: path)
        let other = scratch.path.appending("other.sock")
        #expect(
            failure(variables("1"), configured: other, first: listener.raw) == .isElsewhere(path, configured: other))
        // Another name of the same socket.
        let link = scratch.path.appending("link")
        try Directory(scratch.path).makeSymbolicLink("link", to: scratch.path)
        #expect(failure(variables("1"), configured: link.appending("agent.sock"), first: listener.raw) == nil)
    }

    @Test func choosesTheSocketUnitsDescriptorAmongSeveral() throws {
        let listener = try UnixSocket.listen(at: path)
        // Numbers that nothing else uses.
        let first = CInt(700)
        for raw in first..<first + 3 { try #require(dup2(listener.raw, raw) == raw) }
        #expect(failure(variables("3"), first: first) == .several(3))
        #expect(failure(variables("3", names: "a:b:c"), first: first) == .several(3))
        #expect(
            failure(variables("3", names: "groupstore.socket:b:groupstore.socket"), first: first) == .several(3))
        let activation = try #require(
            try ActivationSocket(
                environment: variables("3", names: "stored:groupstore.socket:"), configured: nil, first: first))
        #expect(activation.listener().raw == first + 1)
        #expect(fcntl(first, F_GETFD) == -1 && fcntl(first + 2, F_GETFD) == -1)
    }

    /// A sandbox that has mounted the socket would never see a new one.
    @Test func keepsTheManagersSocketAndItsMode() throws {
        let raw = try UnixSocket.listen(at: path, mode: 0o640).release()
        let before = FileStatus(following: path)
        let activation = try #require(
            try ActivationSocket(environment: variables("1"), configured: nil, first: raw))
        let instance = try AgentInstance(activation)
        let listener = try instance.listen(isShared: true)
        #expect(listener.raw == raw)
        #expect(throws: AgentInstance.Failure.self) { _ = try AgentInstance(socket: path, isShared: false) }
        instance.removeSocket()
        let after = FileStatus(following: path)
        #expect(after?.identity == before?.identity && after?.permissions == 0o640)
        #expect(throws: Never.self) { _ = try UnixSocket.connect(to: path) }
        withExtendedLifetime(listener) { _ in }
    }
}
