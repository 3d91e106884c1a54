import AgentProtocol
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import GroupStore

@Suite(.timeLimit(.minutes(60))) struct AgentClientTests {
    /// That there was no agent says nothing about now: whoever asks once more is answered by another try.
    @Test func anAgentThatCameMeanwhileIsFound() async throws {
        let scratch = try TemporaryDirectory()
        let socket = scratch.path.appending("agent.sock")
        let link = AgentClient(socket)
        link.start()
        defer { link.stop() }
        #expect(await link.decided() == nil)
        let listener = try UnixSocket.listen(at: socket)
        let found = Task { await link.decided() }
        let connection = try await greet(listener) { link.generation == 1 }
        #expect(await found.value == 1)
        _ = consume connection
    }

    /// Whoever gives up while an agent has still to greet doesn't wait for it.
    @Test func aConnectionCanBeEndedBeforeTheGreeting() throws {
        let scratch = try TemporaryDirectory()
        let socket = scratch.path.appending("agent.sock")
        let listener = try UnixSocket.listen(at: socket)
        #expect(throws: AgentConnectionError.lost(socket)) {
            try AgentConnection(socket, deadline: Deadline(after: .ample), greeting: { $0.end() })
        }
        _ = consume listener
    }

    /// Its numbers would be another presenter's or claim's to the agent that came since.
    @Test func whatIsMeantForAnEarlierConnectionIsNotSent() async throws {
        let scratch = try TemporaryDirectory()
        let socket = scratch.path.appending("agent.sock")
        let listener = try UnixSocket.listen(at: socket)
        let link = AgentClient(socket)
        link.start()
        defer { link.stop() }
        do { _ = try await greet(listener) { link.generation == 1 } }
        let connection = try await greet(listener) { link.generation == 2 }
        let answer = Mutex<AgentConnectionError?>(nil)
        let isSent = link.request(.unpresent(presenter: 1), on: 1) { result in
            if case .failure(let error) = result { answer.withLock { $0 = error } }
        }
        #expect(!isSent)
        #expect(answer.withLock { $0 } == .lost(socket))
        #expect(link.request(.unpresent(presenter: 2), on: 2))
        let line = try #require(try await connection.line())
        #expect(line.contains("\"p2\""))
    }

    /// Greets those who connect, as an agent does, until one of them has taken it: on a busy machine a client doesn't
    /// wait for long, and comes again.
    private func greet(_ listener: borrowing Descriptor, until isTaken: () -> Bool) async throws -> StandInAgent {
        while true {
            let agent = try await StandInAgent.accept(on: listener)
            guard (try? agent.greet()) != nil else { continue }
            while !isTaken(), !agent.isLeft { await Task.yield() }
            if isTaken() { return agent }
        }
    }
}

extension AgentClient {
    /// The connection's number; nil without an agent.
    fileprivate func decided() async -> UInt64? {
        await withCheckedContinuation { decided in whenDecided { decided.resume() } }
        return generation
    }
}
