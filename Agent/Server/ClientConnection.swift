import AgentProtocol
import Glibc
import LinuxSystem

/// The sending half of a connection. Guarded by the hub's lock.
///
/// What the socket takes goes out at once, on the thread that has it. What it doesn't take waits here: answers as
/// bytes, events as each subscription's backlog.
final class ClientConnection {
    let connection: UInt64
    let peer: PeerCredentials?
    private let raw: CInt
    private let loop: EventLoop
    private var unsent: [UInt8] = []
    private var lagging: [Subscription] = []
    private var tellsReadable = true
    private var tellsWritable = false
    private(set) var subscriptions: [StoreAddress: Subscription] = [:]
    /// Requests whose answer comes from another thread.
    var unanswered = 0
    /// Requests that the watch has still to come to.
    var work = 0
    /// Its requests aren't handled until it has taken answers, or less work waits.
    var isHeldBack = false
    /// The peer sends nothing more, but may still read.
    var peerIsSilent = false
    /// The peer is gone: nothing is sent any more.
    private(set) var isBroken = false
    /// Closed once what waits is sent; nothing more is taken.
    private(set) var isEnding = false
    /// Of a user other than the agent's own, who may not know all that events say.
    let isOthers: Bool

    /// Bytes of answers from which on no more requests are read, and progress is left out.
    private static let congestion = 65_536

    init(connection: UInt64, raw: CInt, peer: PeerCredentials?, loop: EventLoop) {
        self.connection = connection
        self.peer = peer
        isOthers = peer.map { $0.uid != geteuid() && $0.uid != 0 } ?? false
        self.raw = raw
        self.loop = loop
    }

    /// Requests of one connection that wait for the watch at once.
    private static let mostWork = 16

    /// More of its requests wait for the watch than may.
    var isBusy: Bool { work >= Self.mostWork }

    var isCongested: Bool { unsent.count > Self.congestion }

    /// Bytes that the socket hasn't taken.
    var waitingBytes: Int { unsent.count }

    /// Bytes of the kernel's memory that hold what the peer hasn't read.
    var unreadBytes: Int { UnixSocket.unread(raw) }

    /// Nothing waits to be sent.
    var isFlushed: Bool { unsent.isEmpty && lagging.isEmpty }

    /// Nothing will ever be sent or asked again: the connection can be closed.
    var isFinished: Bool {
        isBroken || isEnding && unsent.isEmpty || peerIsSilent && unanswered == 0 && subscriptions.isEmpty && isFlushed
    }

    /// Sends a last line, and no event after it.
    func end(with line: [UInt8]) {
        lagging = []
        send(answer: line)
        isEnding = true
        setReading(false)
    }

    /// Answers are kept until they are sent.
    func send(answer line: [UInt8]) {
        guard !isEnding else { return }
        if unsent.isEmpty { transmit(line) } else { unsent += line }
        updateInterest()
    }

    /// `line` is the event's line, made once for all subscribers.
    func send(_ event: EventLog.Numbered, line: [UInt8], of subscription: Subscription) {
        guard !isEnding else { return }
        if isFlushed {
            transmit(line)
            subscription.wasTold(event.number)
            updateInterest()
        } else if !isBroken {
            if subscription.backlog.isEmpty { lagging.append(subscription) }
            subscription.queue(event)
        }
    }

    /// The socket takes bytes again. `lines` makes of a backlog's events their lines.
    func flush(lines: ([EventLog.Numbered], Subscription) -> [UInt8]) {
        let waiting = unsent
        unsent = []
        transmit(waiting)
        while unsent.isEmpty, !lagging.isEmpty {
            let subscription = lagging.removeFirst()
            transmit(lines(subscription.take(), subscription))
        }
        updateInterest()
    }

    private func transmit(_ bytes: [UInt8]) {
        guard !isBroken, !bytes.isEmpty else { return }
        do throws(SystemError) {
            var sent = 0
            while sent < bytes.count {
                let count = try UnixSocket.send(bytes[sent...], on: raw)
                if count == 0 { break }
                sent += count
            }
            unsent = sent == bytes.count ? [] : Array(bytes[sent...])
        } catch {
            isBroken = true
            unsent = []
            lagging = []
        }
    }

    /// Whether requests are read.
    func setReading(_ isReading: Bool) {
        guard tellsReadable != isReading else { return }
        tellsReadable = isReading
        register()
    }

    private func updateInterest() {
        guard tellsWritable != !isFlushed else { return }
        tellsWritable = !isFlushed
        register()
    }

    private func register() {
        do throws(SystemError) {
            try loop.watch(raw, token: connection, readable: tellsReadable, writable: tellsWritable)
        } catch {
            isBroken = true
        }
    }

    func add(_ subscription: Subscription) { subscriptions[subscription.store] = subscription }

    func remove(_ subscription: Subscription) {
        subscriptions[subscription.store] = nil
        lagging.removeAll { $0 === subscription }
        updateInterest()
    }
}
