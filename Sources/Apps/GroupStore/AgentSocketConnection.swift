import AgentProtocol
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage

/// A socket to the agent. Any thread may send on it, and any thread may end it.
final class AgentSocketConnection: Sendable {
    let socket: FilePath
    private let descriptor: Descriptor
    private let sending = Mutex(())
    /// The descriptor that ends all waiting when it is readable, until that was noticed.
    private let interrupt: CInt?
    private let isInterruptIgnored = Atomic<Bool>(false)
    var raw: CInt { descriptor.raw }

    init(_ socket: FilePath, _ deadline: Deadline, interrupt: CInt? = nil) throws(AgentConnectionError) {
        self.socket = socket
        self.interrupt = interrupt
        do {
            descriptor = try UnixSocket.connect(to: socket, timeout: deadline.remaining)
        } catch {
            if error.errno == .resourceTemporarilyUnavailable { throw .timedOut(socket) }
            throw .noAgent(socket, error)
        }
    }

    /// Sends a whole line; no other thread's bytes come between its own. A request that is too long for one throws
    /// `tooLong`, and nothing is sent.
    ///
    /// - Parameter descriptor: A descriptor whose copy is sent with the line.
    func send(
        _ request: AgentRequest, _ deadline: Deadline, passing descriptor: CInt? = nil
    ) throws(AgentConnectionError) {
        guard let bytes = WireLine.request(request.json) else { throw .tooLong }
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

    /// Ignores the interrupt from now on.
    func ignoreInterrupt() { isInterruptIgnored.store(true, ordering: .relaxed) }

    /// Waits for events. Returns false if the deadline passes first.
    func wait(for events: Int16, _ deadline: Deadline) throws(AgentConnectionError) -> Bool {
        var interruptions = Interruptions()
        while true {
            // poll(2) ignores a negative descriptor.
            var both = [
                pollfd(fd: raw, events: events, revents: 0),
                pollfd(
                    fd: isInterruptIgnored.load(ordering: .relaxed) ? -1 : interrupt ?? -1, events: Int16(POLLIN),
                    revents: 0),
            ]
            let milliseconds = deadline.remaining.map { CInt(clamping: ($0.nanoseconds + 999_999) / 1_000_000) } ?? -1
            let count = poll(&both, 2, milliseconds)
            if both[1].revents != 0 { throw .interrupted }
            if count > 0 { return true }
            if count < 0, errno != EINTR || !interruptions.allowsAnother(at: .now) { throw .lost(socket) }
            if deadline.hasPassed { return false }
        }
    }

    /// Ends the connection: a thread that reads or waits finds it closed.
    func end() { _ = shutdown(raw, CInt(SHUT_RDWR)) }
}
