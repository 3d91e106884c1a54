import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStoreAgent

@Suite struct AgentInstanceTests {
    private let scratch: TemporaryDirectory
    private var socket: FilePath { scratch.path.appending("run").appending("agent.sock") }

    init() throws { scratch = try TemporaryDirectory() }

    private func mode(_ path: FilePath) -> mode_t? { FileStatus(following: path)?.permissions }

    @Test func onlyTheOwnerMayConnect() throws {
        let instance = try AgentInstance(socket: socket, isShared: false)
        let listener = try instance.listen(isShared: false)
        #expect(mode(socket) == 0o600)
        #expect(mode(socket.removingLastComponent()) == 0o700)
        #expect(throws: Never.self) { _ = try UnixSocket.connect(to: socket) }
        withExtendedLifetime(listener) { _ in }
        instance.removeSocket()
        #expect(mode(socket) == nil)
    }

    @Test func sharedSocketAllowsOtherUsers() throws {
        let instance = try AgentInstance(socket: socket, isShared: true)
        let listener = try instance.listen(isShared: true)
        #expect(mode(socket) == 0o666)
        #expect(mode(socket.removingLastComponent()) == 0o711)
        withExtendedLifetime(listener) { _ in }
        instance.removeSocket()
    }

    @Test func refusesASecondAgentAndNamesTheFirst() throws {
        let first = try AgentInstance(socket: socket, isShared: false)
        let listener = try first.listen(isShared: false)
        #expect {
            _ = try AgentInstance(socket: socket, isShared: false)
        } throws: { "\($0)".contains("pid \(getpid())") && "\($0)".contains(PrintablePath(socket).description) }
        #expect(throws: Never.self) { _ = try UnixSocket.connect(to: socket) }
        withExtendedLifetime(listener) { _ in }
        first.removeSocket()
    }

    /// A killed agent leaves its socket's name and a lock file that nobody holds.
    @Test func replacesADeadAgentsSocket() throws {
        do {
            let dead = try AgentInstance(socket: socket, isShared: false)
            _ = try dead.listen(isShared: false)
        }
        #expect(mode(socket) != nil)
        #expect(isDead())
        let next = try nextInstance()
        let listener = try next.listen(isShared: false)
        #expect(throws: Never.self) { _ = try UnixSocket.connect(to: socket) }
        withExtendedLifetime(listener) { _ in }
        next.removeSocket()
    }

    /// Returns true once nobody listens. A program that another test is starting shares the descriptor until it runs.
    private func isDead() -> Bool {
        let deadline = Deadline(after: .ample)
        while !deadline.hasPassed {
            do { _ = try UnixSocket.connect(to: socket) } catch { return true }
            pause(.milliseconds(1))
        }
        return false
    }

    /// Retries, since a program that another test is starting shares the lock's descriptor until it runs.
    private func nextInstance() throws -> AgentInstance {
        let deadline = Deadline(after: .ample)
        while true {
            do {
                return try AgentInstance(socket: socket, isShared: false)
            } catch {
                if deadline.hasPassed { throw error }
                pause(.milliseconds(1))
            }
        }
    }

    @Test func keepsTheSocketOfAnotherProgram() throws {
        try Directory(scratch.path).makeDirectory("run", mode: 0o700)
        let other = try UnixSocket.listen(at: socket)
        let instance = try AgentInstance(socket: socket, isShared: false)
        #expect(throws: AgentInstance.Failure.self) { _ = try instance.listen(isShared: false) }
        #expect(throws: Never.self) { _ = try UnixSocket.connect(to: socket) }
        withExtendedLifetime(other) { _ in }
    }

    @Test func keepsAFileAtTheSocketsPath() throws {
        try Directory(scratch.path).makeDirectory("run", mode: 0o700)
        let run = try Directory(socket.removingLastComponent())
        try DurableFile.write([1, 2, 3], as: "agent.sock", in: run, mode: 0o600)
        let instance = try AgentInstance(socket: socket, isShared: false)
        #expect(throws: AgentInstance.Failure.self) { _ = try instance.listen(isShared: false) }
        #expect(try DurableFile.read("agent.sock", in: run) == [1, 2, 3])
    }

    @Test func removesADeadAgentsPrivateFiles() throws {
        let instance = try AgentInstance(socket: socket, isShared: false)
        let privateDirectory = try instance.makePrivateDirectory()
        #expect(mode(privateDirectory) == 0o700)
        try DurableFile.write([], as: "left", in: Directory(privateDirectory), mode: 0o600)
        #expect(try Directory(instance.makePrivateDirectory()).names().isEmpty)
        instance.removePrivateDirectory()
        #expect(mode(privateDirectory) == nil)
    }

    @Test func refusesATooLongPath() {
        let long = scratch.path.appending(String(repeating: "x", count: 120))
        #expect(throws: AgentInstance.Failure.self) { _ = try AgentInstance(socket: long, isShared: false) }
    }
}
