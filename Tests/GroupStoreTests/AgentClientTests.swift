import AgentProtocol
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import GroupStore

@Suite(.timeLimit(.minutes(60))) struct AgentClientTests {
    /// An earlier failed attempt says nothing about now: another request causes another attempt.
    @Test func findsAnAgentThatStartedMeanwhile() async throws {
        let scratch = try TemporaryDirectory()
        let socket = scratch.path.appending("agent.sock")
        let client = AgentClient(socket)
        client.start()
        defer { client.stop() }
        #expect(await client.connectedGeneration() == nil)
        let listener = try UnixSocket.listen(at: socket)
        let found = Task { await client.connectedGeneration() }
        let connection = try await greet(listener) { client.generation == 1 }
        #expect(await found.value == 1)
        _ = consume connection
    }

    /// A caller that gives up before an agent's greeting doesn't wait for it.
    @Test func endsAConnectionBeforeTheGreeting() throws {
        let scratch = try TemporaryDirectory()
        let socket = scratch.path.appending("agent.sock")
        let listener = try UnixSocket.listen(at: socket)
        #expect(throws: AgentConnectionError.lost(socket)) {
            try AgentConnection(socket, deadline: Deadline(after: .ample), greeting: { $0.end() })
        }
        _ = consume listener
    }

    /// The next agent assigns its numbers to other presenters and claims.
    @Test func doesNotSendARequestForAnEarlierConnection() async throws {
        let scratch = try TemporaryDirectory()
        let socket = scratch.path.appending("agent.sock")
        let listener = try UnixSocket.listen(at: socket)
        let client = AgentClient(socket)
        client.start()
        defer { client.stop() }
        do { _ = try await greet(listener) { client.generation == 1 } }
        let connection = try await greet(listener) { client.generation == 2 }
        let answer = Mutex<AgentConnectionError?>(nil)
        let isSent = client.request(.unpresent(presenter: 1), on: 1) { result in
            if case .failure(let error) = result { answer.withLock { $0 = error } }
        }
        #expect(!isSent)
        #expect(answer.withLock { $0 } == .lost(socket))
        #expect(client.request(.unpresent(presenter: 2), on: 2))
        let line = try #require(try await connection.line())
        #expect(line.contains("\"p2\""))
    }

    /// Greets each client like an agent until one connection is accepted: on a busy machine a client doesn't wait for
    /// long, and connects again.
    private func greet(_ listener: borrowing Descriptor, until isAccepted: () -> Bool) async throws -> StandInAgent {
        while true {
            let agent = try await StandInAgent.accept(on: listener)
            guard (try? agent.greet()) != nil else { continue }
            while !isAccepted(), !agent.isClosed { await Task.yield() }
            if isAccepted() { return agent }
        }
    }
}

extension AgentClient {
    /// Returns the connection's number, or nil without an agent.
    fileprivate func connectedGeneration() async -> UInt64? {
        await withCheckedContinuation { continuation in afterConnectionAttempt { continuation.resume() } }
        return generation
    }
}
