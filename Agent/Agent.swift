import AgentProtocol
import DirectoryWatching
import Glibc
import StoreWatching
import LinuxSystem
import Logging
import Synchronization
import SystemPackage

/// The agent: creates its parts, runs them, and handles signals. SIGTERM and SIGINT stop it, SIGHUP reloads the
/// configuration.
package final class Agent {
    /// The agent's replaceable parts; tests pass others.
    package struct Parts {
        /// Makes the source of file events, with a directory that no other program uses.
        package var source: (FilePath) throws -> any EventSource
        /// Makes the scheduler that relocates legacy stores.
        package var scheduler: (RelocationEnvironment, Configuration, Logger) throws -> any RelocationScheduling
        /// Reloads the configuration; nil if there is no file to read.
        package var reload: (() throws -> Configuration)?
        /// The program that reads stores' histories and copies branches, this one; nil for an agent that does neither.
        package var program: FilePath?

        package init(
            source: @escaping (FilePath) throws -> any EventSource,
            scheduler: @escaping (RelocationEnvironment, Configuration, Logger) throws -> any RelocationScheduling,
            reload: (() throws -> Configuration)?, program: FilePath? = nil
        ) {
            self.program = program
            self.source = source
            self.scheduler = scheduler
            self.reload = reload
        }
    }

    private let configuration: Configuration
    private let socket: FilePath
    private let activation: ActivationSocket?
    private let parts: Parts
    private let notification: ServiceNotification
    private let log: Logger
    /// What was logged of configurations: the same is not logged again at each reload.
    private let reported = Mutex(ConfigurationReport())

    /// The time that clients get to read waiting output when the agent stops.
    private static let drainTime = Duration.seconds(2)

    /// - Parameter activation: The service manager's socket, which the agent then serves instead of making one.
    package init(
        configuration: Configuration, socket: FilePath, activation: ActivationSocket? = nil, parts: Parts,
        notification: ServiceNotification, log: Logger
    ) {
        self.configuration = configuration
        self.socket = activation?.path ?? socket
        self.activation = activation
        self.parts = parts
        self.notification = notification
        self.log = log
    }

    /// Serves until a signal stops it. Throws if it can't start or continue (`AgentInstance.Failure`, `SystemError`).
    package func run() throws {
        _ = signal(SIGPIPE, SIG_IGN)
        FileLease.ignoreBreakSignal()
        // Before any thread is created: each inherits its creator's mask.
        let signals = try SignalSource([SIGTERM, SIGINT, SIGHUP])
        let isShared = !configuration.allowed.isEmpty
        let instance = try takeInstance(isShared: isShared)
        warnOfMode(isShared: isShared)
        // select(2) inside libinotifytools accepts no descriptor above 1023, so this one is opened before the limit is
        // raised.
        let source = try parts.source(instance.makePrivateDirectory())
        defer { instance.removePrivateDirectory() }
        ResourceLimit.raiseDescriptors()

        let loop = try EventLoop()
        let publisher = Publisher(loop: loop)
        publisher.limits = configuration.subscriptions
        let current = CurrentConfiguration(configuration)
        let states = FollowingStates()
        let descriptors = DescriptorBudget()
        let feedThread = FeedThread(FeedLoop(source: source))
        let feed = FeedControl(feedThread: feedThread)
        let presenters = PresenterServer(publisher: publisher, configuration: current, feed: feed)
        let scheduler = try parts.scheduler(
            RelocationEnvironment(feed: feed, presenters: presenters.registry), configuration, log)
        presenters.onChange { [weak scheduler] store in scheduler?.presentersChanged(of: store) }
        let history = HistoryService(
            publisher: publisher, configuration: current, states: states, feed: feed, program: parts.program,
            log: log)
        defer { history.stop() }
        let status = StatusReport(
            publisher: publisher, configuration: current, states: states, scheduler: scheduler,
            presenters: presenters.registry, rowProblems: history.rowProblems, socket: socket,
            version: ProgramVersion.current)
        let saver = BranchSaver(configuration: current, states: states, program: parts.program, log: log)
        defer { saver.stop() }
        publisher.checkReaders { [current] peer, store in
            Requester(peer, current.value).mayOpen(store, in: current.value)
        }
        publisher.readHistories { [weak history] store in history?.readForSubscribers(of: store) }
        let requests = RequestHandler(
            publisher: publisher, feedThread: feedThread, configuration: current, scheduler: scheduler,
            presenters: presenters,
            status: status, history: history, version: ProgramVersion.current, log: log)
        let mounts = mountTable()
        let server = try Server(
            listener: instance.listen(isShared: isShared), loop: loop, publisher: publisher, requests: requests,
            admission: Self.admission(configuration), descriptors: descriptors, log: log)
        defer { instance.removeSocket() }

        let failure = Mutex<(any Error)?>(nil)
        let hasNewContainers = Atomic<Bool>(false)
        let containers = ContainersWatcher(log: log) {
            hasNewContainers.store(true, ordering: .releasing)
            loop.wake()
        }
        defer { containers.watch(nil) }
        containers.watch(configuration.containers)
        let discover = { [self] in
            serveNewContainers(feedThread: feedThread, scheduler: scheduler, current: current) {
                requests.configurationChanged()
                history.maintainAll()
            }
        }
        requests.onUnservedContainer(discover)
        history.maintainAll()
        let receiver = FeedReceiver(
            publisher: publisher, scheduler: scheduler,
            beforeEvent: { [weak history] event, store in history?.prepare(for: event, of: store) },
            onEvent: { [weak history, weak saver] event, store in
                history?.receive(event, of: store)
                saver?.receive(event, of: store)
            },
            onFileEvent: { [weak history] store in history?.recordFileEvent(of: store) })
        try feedThread.start(
            receiver: receiver, states: states, descriptors: descriptors, log: FeedLog(log),
            prepare: { [configuration] in $0.configure(FollowingPlan(configuration)) },
            failed: { error in
                failure.withLock { $0 = error }
                loop.wake()
            })
        scheduler.start()
        announceReady(configuration)
        ProgramMemory.releaseUnused()

        var isStopping = false
        try server.run(
            signals: signals.raw, mounts: mounts?.raw,
            onSignal: {
                while let signal = signals.next() {
                    if signal == SIGHUP {
                        reload(
                            server: server, publisher: publisher, feedThread: feedThread, scheduler: scheduler,
                            current: current)
                        containers.watch(current.value.containers)
                        requests.configurationChanged()
                        history.maintainAll()
                    } else {
                        isStopping = true
                    }
                }
            },
            onMount: { feedThread.perform { $0.recheckAll() } },
            shouldStop: {
                if hasNewContainers.exchange(false, ordering: .acquiring) { discover() }
                return isStopping || failure.withLock { $0 != nil }
            })
        withExtendedLifetime(mounts) {}
        notification.stopping()
        log.info("stopping")
        scheduler.stop()
        feedThread.stop()
        server.drain(within: Self.drainTime)
        if let error = failure.withLock({ $0 }) { throw error }
    }

    /// Opens the mount table; nil if there is none, without /proc for instance.
    private func mountTable() -> MountTable? {
        do {
            return try MountTable()
        } catch {
            log.warning("can't watch for mounts over watched paths; send SIGHUP to recheck all paths: \(error)")
            return nil
        }
    }

    private func takeInstance(isShared: Bool) throws -> AgentInstance {
        if let activation { return try AgentInstance(activation) }
        return try AgentInstance(socket: socket, isShared: isShared)
    }

    /// Warns if the service manager's socket shuts out the users that the configuration admits.
    private func warnOfMode(isShared: Bool) {
        guard isShared, let mode = activation?.permissions, mode & 0o666 != 0o666 else { return }
        log.warning(
            """
            socket: allow admits other users, but the service manager's socket has mode 0\(String(mode, radix: 8)); \
            set SocketMode=0666 and DirectoryMode=0711 in groupstore.socket
            """)
    }

    private static func admission(_ configuration: Configuration) -> Server.Admission {
        Server.Admission(
            users: Set(configuration.allowed.keys).union([geteuid(), 0]),
            connectionsPerUser: configuration.connectionsPerUser)
    }

    /// Serves the group containers that were made since the configuration was loaded, and calls `changed` if there are
    /// any.
    private func serveNewContainers(
        feedThread: FeedThread, scheduler: any RelocationScheduling, current: CurrentConfiguration,
        changed: () -> Void
    ) {
        var new = current.value
        guard new.discoverGroups() else { return }
        current.update(new)
        feedThread.perform { [new] in $0.configure(FollowingPlan(new)) }
        scheduler.configurationChanged(new)
        changed()
        announceReady(new)
    }

    private func announceReady(_ configuration: Configuration) {
        reported.withLock { $0.log(configuration, to: log) }
        let stores = configuration.groups.reduce(0) { $0 + $1.stores.count }
        let summary = "serving \(Counted(configuration.groups.count, "group")), \(Counted(stores, "store"))"
        log.info("\(summary)", metadata: ["socket": "\(PrintablePath(socket))"])
        notification.ready(summary)
    }

    /// Reloads the configuration. An invalid one changes nothing.
    private func reload(
        server: Server, publisher: Publisher, feedThread: FeedThread, scheduler: any RelocationScheduling,
        current: CurrentConfiguration
    ) {
        // Whether or not the configuration is valid, all paths are checked again.
        defer {
            feedThread.perform { $0.recheckAll() }
            scheduler.receive(.overflow)
        }
        guard let reload = parts.reload else {
            return log.notice("SIGHUP: configured on the command line, no file to reload; rechecking all paths")
        }
        notification.reloading()
        do {
            let new = try reload()
            if new.socket != current.value.socket || new.allowed.isEmpty != current.value.allowed.isEmpty {
                log.warning("a change of the socket takes effect only when the agent is restarted")
            }
            let restricted = current.value.allowed.filter { !$0.value.isSubset(of: new.allowed[$0.key] ?? []) }
            reported.withLock { $0.forgetProblems() }
            current.replace(with: new)
            server.admission = Self.admission(new)
            server.close(connectionsOf: Set(restricted.keys).subtracting([geteuid(), 0]))
            publisher.limits = new.subscriptions
            feedThread.perform { $0.configure(FollowingPlan(new)) }
            scheduler.configurationChanged(new)
            announceReady(new)
        } catch {
            current.reject(error)
            log.error("keeping the previous configuration: \(error)")
            announceReady(current.value)
        }
    }
}
