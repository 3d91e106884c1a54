import AgentProtocol
import Glibc
import LinuxSystem

/// The sending half of a connection. Guarded by the publisher's lock.
///
/// What the socket takes is sent at once, on the thread that has it. The rest waits here: answers as bytes, events in
/// each subscription's backlog.
final class ClientConnection {
    let connection: UInt64
    let peer: PeerCredentials?
    private let raw: CInt
    private let loop: EventLoop
    private var unsent: [UInt8] = []
    private var lagging: [Subscription] = []
    private var wantsReadable = true
    private var wantsWritable = false
    private(set) var subscriptions: [StoreAddress: Subscription] = [:]
    /// The number of requests that another thread will answer.
    var unanswered = 0
    /// The number of requests that the feed thread has not yet handled.
    var work = 0
    /// True while its requests aren't handled, because answers or work wait.
    var isHeldBack = false
    /// True once the peer has shut down its side. It may still read.
    var peerHasStoppedSending = false
    /// True once the peer is gone: nothing is sent any more.
    private(set) var isBroken = false
    /// True if the connection is closed once waiting output is sent, and takes no more.
    private(set) var isEnding = false
    /// True for users other than the agent's own and root, who may not know all that events say.
    let isUntrusted: Bool

    /// The bytes of waiting answers above which no requests are read and progress is left out.
    private static let congestion = 65_536

    init(connection: UInt64, raw: CInt, peer: PeerCredentials?, loop: EventLoop) {
        self.connection = connection
        self.peer = peer
        isUntrusted = peer.map { $0.uid != geteuid() && $0.uid != 0 } ?? false
        self.raw = raw
        self.loop = loop
    }

    /// The number of requests of one connection that may wait for the feed thread.
    private static let maximumWork = 16

    /// True if too many of its requests wait for the feed thread.
    var isBusy: Bool { work >= Self.maximumWork }

    var isCongested: Bool { unsent.count > Self.congestion }

    /// The bytes that the socket hasn't taken.
    var waitingBytes: Int { unsent.count }

    /// The bytes in the kernel's buffers that the peer hasn't read.
    var unreadBytes: Int { UnixSocket.unreceivedBytes(raw) }

    /// The time since the socket took bytes last; nil if it never did.
    var sinceSending: Duration? { lastSending.map { $0.duration(to: .now) } }
    private var lastSending: ContinuousClock.Instant?

    /// True if nothing waits to be sent.
    var isFlushed: Bool { unsent.isEmpty && lagging.isEmpty }

    /// True if nothing will ever be sent or requested again: the connection can be closed.
    var isFinished: Bool {
        isBroken || isEnding && unsent.isEmpty
            || peerHasStoppedSending && unanswered == 0 && subscriptions.isEmpty && isFlushed
    }

    /// Sends a last line, and no event after it.
    func end(with line: [UInt8]) {
        lagging = []
        send(answer: line)
        isEnding = true
        setReading(false)
    }

    /// Sends an answer, or keeps it until the socket takes it.
    func send(answer line: [UInt8]) {
        guard !isEnding else { return }
        if unsent.isEmpty { transmit(line) } else { unsent += line }
        updateInterest()
    }

    /// Sends an event, or queues it. `line` is the event's line, made once for all subscribers.
    func send(_ event: EventLog.Numbered, line: [UInt8], of subscription: Subscription) {
        guard !isEnding else { return }
        if isFlushed {
            transmit(line)
            subscription.markDelivered(event.number)
            updateInterest()
        } else if !isBroken {
            if subscription.backlog.isEmpty { lagging.append(subscription) }
            subscription.queue(event)
        }
    }

    /// Sends waiting output: the socket takes bytes again. `lines` encodes a backlog's events.
    func flush(lines: ([EventLog.Numbered], Subscription) -> [UInt8]) {
        let waiting = unsent
        unsent = []
        transmit(waiting)
        while unsent.isEmpty, !lagging.isEmpty {
            let subscription = lagging.removeFirst()
            transmit(lines(subscription.drainBacklog(), subscription))
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
            if sent > 0 { lastSending = .now }
            unsent = sent == bytes.count ? [] : Array(bytes[sent...])
        } catch {
            isBroken = true
            unsent = []
            lagging = []
        }
    }

    /// Starts or stops reading requests.
    func setReading(_ isReading: Bool) {
        guard wantsReadable != isReading else { return }
        wantsReadable = isReading
        register()
    }

    private func updateInterest() {
        guard wantsWritable != !isFlushed else { return }
        wantsWritable = !isFlushed
        register()
    }

    private func register() {
        do throws(SystemError) {
            try loop.watch(raw, token: connection, readable: wantsReadable, writable: wantsWritable)
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
