import AgentProtocol
import DirectoryWatching
import Dispatch
import Glibc
import GroupContainers
import LinuxSystem
import Logging
import Synchronization
import SystemPackage
import TestSupport

@testable import GroupStoreAgent
@testable import StoreWatching

/// An agent's server in this process, on a real socket, with events from memory. It stops when the test releases it.
final class RunningServer {
    let scratch: TemporaryDirectory
    let socket: FilePath
    let source = MemoryEventSource()
    let scheduler = RecordingScheduler()
    let logged = LogLines()
    let publisher: Publisher
    let feed: FeedControl
    let feedThread: FeedThread
    let presenters: PresenterServer
    private let loop: EventLoop
    private let thread: SystemThread
    private let isStopping = Flag()

    var group: FilePath { scratch.path.appending("group") }

    init(
        stores: [Configuration.Store] = [], files: [FilePath.Component] = [], users: Set<uid_t> = [geteuid()],
        connectionsPerUser: Int = 1100, descriptors: DescriptorBudget = .unlimited
    ) throws {
        scratch = try TemporaryDirectory()
        try Directory(scratch.path).makeDirectory("group", mode: 0o700)
        let directory = try Directory(scratch.path.appending("group"))
        for file in files { try DurableFile.write([], as: file, in: directory, mode: 0o600) }
        socket = scratch.path.appending("agent.sock")
        let identifier = try Self.required(GroupIdentifier("group.example"))
        let configuration = Configuration(groups: [
            .init(identifier: identifier, directory: scratch.path.appending("group"), stores: stores)
        ])
        let log = Logger(label: "test") { [logged] _ in LogLines.Handler(lines: logged) }
        loop = try EventLoop()
        publisher = Publisher(loop: loop, epoch: "e")
        feedThread = FeedThread(FeedLoop(source: source))
        feed = FeedControl(feedThread: feedThread)
        let current = CurrentConfiguration(configuration)
        let states = FollowingStates()
        let presenters = PresenterServer(publisher: publisher, configuration: current, feed: feed)
        self.presenters = presenters
        let listener = try UnixSocket.listen(at: socket).release()
        let started = Mutex<(any Error)?>(nil)
        let isReady = DispatchSemaphore(value: 0)
        thread = try SystemThread(name: "test-server") {
            [loop, publisher, feedThread, scheduler, presenters, socket, isStopping, descriptors] in
            do {
                let status = StatusReport(
                    publisher: publisher, configuration: current, states: states, scheduler: scheduler,
                    presenters: presenters.registry, rowProblems: RowProblems(), socket: socket, version: "test")
                let requests = RequestHandler(
                    publisher: publisher, feedThread: feedThread, configuration: current, scheduler: scheduler,
                    presenters: presenters,
                    status: status,
                    history: HistoryService(
                        publisher: publisher, configuration: current, states: states, feed: nil, program: nil,
                        log: log),
                    version: "test", log: log)
                let admission = Server.Admission(users: users, connectionsPerUser: connectionsPerUser)
                let server = try Server(
                    listener: Descriptor(owning: listener), loop: loop, publisher: publisher, requests: requests,
                    admission: admission, descriptors: descriptors, log: log)
                isReady.signal()
                try server.run(signals: nil, onSignal: {}, shouldStop: { isStopping.isSet })
                server.drain(within: .seconds(2))
            } catch {
                started.withLock { $0 = error }
                isReady.signal()
            }
        }
        isReady.wait()
        if let error = started.withLock({ $0 }) { throw error }
        try feedThread.start(
            receiver: FeedReceiver(publisher: publisher, scheduler: scheduler), states: states,
            descriptors: descriptors, log: FeedLog(log), prepare: { $0.configure(FollowingPlan(configuration)) },
            failed: { _ in })
    }

    static func required<Value>(_ value: Value?) throws -> Value {
        guard let value else { throw Unexpected("nil") }
        return value
    }

    func connect() throws -> TestClient { try TestClient(socket) }

    /// Stops the server. Returns false if it did not stop in time.
    @discardableResult
    func stop() -> Bool {
        guard !isStopping.isSet else { return true }
        feedThread.stop()
        isStopping.set()
        loop.wake()
        return thread.join(within: .ample)
    }

    deinit { stop() }
}

final class Flag: Sendable {
    private let value = Mutex(false)
    var isSet: Bool { value.withLock { $0 } }
    func set() { value.withLock { $0 = true } }
}

/// The logged lines.
final class LogLines: Sendable {
    private let lines = Mutex<[String]>([])
    var all: [String] { lines.withLock { $0 } }

    struct Handler: LogHandler {
        let lines: LogLines
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.info

        init(lines: LogLines) { self.lines = lines }

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) { lines.lines.withLock { $0.append("\(event.level) \(event.message)") } }
    }
}

/// A gate at which a thread waits until the test opens it.
final class Gate: Sendable {
    private let isClosed = Mutex(false)
    private let reached = DispatchSemaphore(value: 0)
    private let opened = DispatchSemaphore(value: 0)

    /// Closes the gate: the next thread waits.
    func close() { isClosed.withLock { $0 = true } }

    func pass() {
        let waits = isClosed.withLock { isClosed in
            defer { isClosed = false }
            return isClosed
        }
        guard waits else { return }
        reached.signal()
        opened.wait()
    }

    func waitUntilReached() throws {
        let limit = DispatchTime.now() + .nanoseconds(Int(Duration.ample.nanoseconds))
        guard reached.wait(timeout: limit) == .success else { throw Unexpected("no thread came to the gate") }
    }

    func open() { opened.signal() }
}

/// Records its calls.
final class RecordingScheduler: RelocationScheduling {
    private let notices = Mutex<[Notice]>([])
    var seen: [Notice] { notices.withLock { $0 } }

    private let requested = Mutex<[String]>([])
    /// The sources of the requested relocations.
    var sources: [String] { requested.withLock { $0 } }
    /// Every relocation request passes it.
    let gate = Gate()

    func start() {}
    func configurationChanged(_ configuration: Configuration) {}
    func receive(_ notice: Notice) { notices.withLock { $0.append(notice) } }
    func stop() {}
    func presentersChanged(of store: StoreAddress) {}
    func statusRows() -> [LegacyStatus] { [] }
    func appRows() -> [AppStatus] { [] }

    func relocate(
        _ operation: RelocateOperation, isAbandoned: @escaping @Sendable () -> Bool,
        events: @escaping @Sendable (RelocateAnswer) -> Void
    ) {
        requested.withLock { $0.append(String(decoding: operation.source, as: UTF8.self)) }
        gate.pass()
        events(.progress(type: "plan", ["text": "as planned"]))
        events(.summary(["outcome": "relocated"]))
    }
}

/// A client that may also misbehave.
final class TestClient {
    private let socket: Descriptor
    private var lines = LineBuffer()
    /// In milliseconds, with time for a busy machine.
    private static let ample = CInt(Duration.ample.components.seconds * 1000)

    init(_ path: FilePath) throws { socket = try UnixSocket.connect(to: path) }

    func send(_ text: String) throws {
        var remaining = Array(text.utf8)[...]
        while !remaining.isEmpty {
            let count = try UnixSocket.send(remaining, on: socket.raw)
            remaining = remaining.dropFirst(count)
            if count == 0 {
                var entry = pollfd(fd: socket.raw, events: Int16(POLLOUT), revents: 0)
                guard poll(&entry, 1, Self.ample) > 0 else { throw Unexpected("the server reads nothing") }
            }
        }
    }

    func endSending() { shutdown(socket.raw, CInt(SHUT_WR)) }

    /// Returns the next line; nil at the end of the connection.
    func next() throws -> JSONObject? {
        while true {
            if let line = try lines.next() {
                guard case .object(let object) = try JSONValue(parsing: line) else { throw Unexpected("no object") }
                return object
            }
            var entry = pollfd(fd: socket.raw, events: Int16(POLLIN), revents: 0)
            guard poll(&entry, 1, Self.ample) > 0 else { throw Unexpected("no line in time") }
            var buffer = [UInt8](repeating: 0, count: 65_536)
            let count = recv(socket.raw, &buffer, buffer.count, 0)
            if count <= 0 { return nil }
            lines.append(buffer[..<count])
        }
    }

    /// Sends a request and returns the line with its identifier that ends the answer.
    func ask(_ request: String, id: JSONValue) throws -> JSONObject {
        try send(request + "\n")
        while let line = try next() {
            if line["id"] == id, line["ok"] != nil { return line }
        }
        throw Unexpected("the connection ended")
    }
}
