import AgentProtocol
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage

/// A socket to the agent: any thread may send on it, and any thread may end it.
final class AgentSocketConnection: Sendable {
    let socket: FilePath
    private let descriptor: Descriptor
    private let sending = Mutex(())
    /// What ends all waiting when it can be read from, until that was noticed.
    private let bell: CInt?
    private let isBellHeard = Atomic<Bool>(false)
    var raw: CInt { descriptor.raw }

    init(_ socket: FilePath, _ deadline: Deadline, bell: CInt? = nil) throws(AgentConnectionError) {
        self.socket = socket
        self.bell = bell
        do {
            descriptor = try UnixSocket.connect(to: socket, timeout: deadline.remaining)
        } catch {
            if error.errno == .resourceTemporarilyUnavailable { throw .timedOut(socket) }
            throw .noAgent(socket, error)
        }
    }

    /// Sends a whole line: no other thread's comes between its bytes.
    /// `passing`: a copy of it travels with the line.
    func send(
        _ request: AgentRequest, _ deadline: Deadline, passing descriptor: CInt? = nil
    ) throws(AgentConnectionError) {
        let bytes = WireLine.bytes(request.json)
        let failure = sending.withLock { _ -> AgentConnectionError? in
            var rest = bytes[...]
            while !rest.isEmpty {
                do {
                    let passed = rest.count == bytes.count ? descriptor : nil
                    rest = rest.dropFirst(try UnixSocket.send(rest, passing: passed, on: raw))
                    if !rest.isEmpty, try !wait(for: Int16(POLLOUT), deadline) { return .timedOut(socket) }
                } catch {
                    return .lost(socket)
                }
            }
            return nil
        }
        if let failure { throw failure }
    }

    /// Waits in spite of the bell from now on.
    func ignoreBell() { isBellHeard.store(true, ordering: .relaxed) }

    /// False when the deadline passes first.
    func wait(for events: Int16, _ deadline: Deadline) throws(AgentConnectionError) -> Bool {
        while true {
            // A negative number is left out.
            var both = [
                pollfd(fd: raw, events: events, revents: 0),
                pollfd(fd: isBellHeard.load(ordering: .relaxed) ? -1 : bell ?? -1, events: Int16(POLLIN), revents: 0),
            ]
            let milliseconds = deadline.remaining.map { CInt(clamping: ($0.nanoseconds + 999_999) / 1_000_000) } ?? -1
            let count = poll(&both, 2, milliseconds)
            if both[1].revents != 0 { throw .interrupted }
            if count > 0 { return true }
            if count < 0, errno != EINTR { throw .lost(socket) }
            if deadline.hasPassed { return false }
        }
    }

    /// Whoever reads or waits finds the connection at its end.
    func end() { _ = shutdown(raw, CInt(SHUT_RDWR)) }
}
