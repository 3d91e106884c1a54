import AgentProtocol
import DirectoryWatching
import Glibc
import LinuxSystem
import Logging
import Synchronization
import SystemPackage

/// The agent: puts its parts together, runs them, and takes signals. SIGTERM and SIGINT end it, SIGHUP reads the
/// configuration anew.
package final class Agent {
    /// What the agent is made of; tests put in others.
    package struct Parts {
        /// Where file events come from; gets a directory that no other program uses.
        package var source: (FilePath) throws -> any EventSource
        /// Relocates legacy stores.
        package var scheduler: (RelocationSurroundings, Configuration, Logger) throws -> any RelocationScheduling
        /// Reads the configuration anew; nil: there is no file to read.
        package var reload: (() throws -> Configuration)?
        /// The program that reads stores' histories, this one; nil: this agent tells of no rows.
        package var historyProgram: FilePath?

        package init(
            source: @escaping (FilePath) throws -> any EventSource,
            scheduler: @escaping (RelocationSurroundings, Configuration, Logger) throws -> any RelocationScheduling,
            reload: (() throws -> Configuration)?, historyProgram: FilePath? = nil
        ) {
            self.historyProgram = historyProgram
            self.source = source
            self.scheduler = scheduler
            self.reload = reload
        }
    }

    package static let version = "0.1.0"
    private let configuration: Configuration
    private let socket: FilePath
    private let parts: Parts
    private let notification: ServiceNotification
    private let log: Logger

    /// How long clients get to take what waits for them when the agent ends.
    private static let drainTime = Duration.seconds(2)

    package init(
        configuration: Configuration, socket: FilePath, parts: Parts, notification: ServiceNotification, log: Logger
    ) {
        self.configuration = configuration
        self.socket = socket
        self.parts = parts
        self.notification = notification
        self.log = log
    }

    /// Serves until a signal ends it. Throws when it can't begin (`AgentInstance.Failure`, `SystemError`) or go on.
    package func run() throws {
        _ = signal(SIGPIPE, SIG_IGN)
        FileLease.ignoreBreakSignal()
        // Before any thread is made: each keeps its maker's mask.
        let signals = try SignalSource([SIGTERM, SIGINT, SIGHUP])
        let isShared = !configuration.allowed.isEmpty
        let instance = try AgentInstance(socket: socket, isShared: isShared)
        // select(2) inside libinotifytools takes no descriptor above 1023, so its comes before the limit is raised.
        let source = try parts.source(instance.makePrivateDirectory())
        defer { instance.removePrivateDirectory() }
        ResourceLimit.raiseDescriptors()

        let loop = try EventLoop()
        let hub = Publisher(loop: loop)
        hub.limits = configuration.subscriptions
        let current = CurrentConfiguration(configuration)
        let states = FollowingStates()
        let descriptors = DescriptorBudget()
        let watch = FeedThread(source: source, descriptors: descriptors, log: log)
        let feed = FeedControl(watch: watch)
        let presenters = PresenterServer(hub: hub, configuration: current)
        let scheduler = try parts.scheduler(
            RelocationSurroundings(feed: feed, presenters: presenters.registry), configuration, log)
        presenters.onChange { [weak scheduler] store in scheduler?.presentersChanged(of: store) }
        let status = StatusReport(
            hub: hub, configuration: current, states: states, scheduler: scheduler,
            presenters: presenters.registry, socket: socket, version: Self.version)
        let history = HistoryService(
            hub: hub, configuration: current, states: states, feed: feed, program: parts.historyProgram, log: log)
        defer { history.stop() }
        hub.checkReaders { [current] peer, store in
            Requester(peer, current.value).mayOpen(store, current.value)
        }
        hub.readHistories { [weak history] store in history?.readForSubscribers(of: store) }
        let requests = RequestHandler(
            hub: hub, watch: watch, configuration: current, scheduler: scheduler, presenters: presenters,
            status: status, history: history, version: Self.version, log: log)
        let mounts = mountTable()
        let server = try Server(
            listener: instance.listen(isShared: isShared), loop: loop, hub: hub, requests: requests,
            admission: Self.admission(configuration), descriptors: descriptors, log: log)
        defer { instance.removeSocket() }

        let failure = Mutex<(any Error)?>(nil)
        history.maintainAll()
        try watch.start(
            configuration: configuration, hub: hub, scheduler: scheduler, states: states,
            onEvent: { [weak history] event, store in history?.noticed(event, of: store) }
        ) { error in
            failure.withLock { $0 = error }
            loop.wake()
        }
        scheduler.start()
        announceReady(configuration)

        var isStopping = false
        try server.run(
            signals: signals.raw, mounts: mounts?.raw,
            onSignal: {
                while let signal = signals.next() {
                    if signal == SIGHUP {
                        reload(server, hub, watch, scheduler, current)
                        requests.configurationChanged()
                        history.maintainAll()
                    } else {
                        isStopping = true
                    }
                }
            },
            onMount: { watch.perform { $0.examineAll() } },
            shouldStop: { isStopping || failure.withLock { $0 != nil } })
        withExtendedLifetime(mounts) {}
        notification.stopping()
        log.info("stopping")
        scheduler.stop()
        watch.stop()
        server.drain(within: Self.drainTime)
        if let error = failure.withLock({ $0 }) { throw error }
    }

    /// Nil where there is none to be had, without /proc for instance.
    private func mountTable() -> MountTable? {
        do {
            return try MountTable()
        } catch {
            log.warning("can't watch for mounts over watched paths; SIGHUP has all paths looked at: \(error)")
            return nil
        }
    }

    private static func admission(_ configuration: Configuration) -> Server.Admission {
        Server.Admission(
            users: Set(configuration.allowed.keys).union([geteuid(), 0]),
            connectionsPerUser: configuration.connectionsPerUser)
    }

    private func announceReady(_ configuration: Configuration) {
        let stores = configuration.groups.reduce(0) { $0 + $1.stores.count }
        let words = "serving \(configuration.groups.count) groups, \(stores) stores"
        log.info("\(words)", metadata: ["socket": "\(PrintablePath(socket))"])
        notification.ready(words)
    }

    /// A configuration that is wrong changes nothing.
    private func reload(
        _ server: Server, _ hub: Publisher, _ watch: FeedThread, _ scheduler: any RelocationScheduling,
        _ current: CurrentConfiguration
    ) {
        // Whatever becomes of the configuration: what is there is looked at.
        defer {
            watch.perform { $0.examineAll() }
            scheduler.notice(.overflow)
        }
        guard let reload = parts.reload else {
            return log.notice("SIGHUP: configured on the command line, nothing to read anew; all places are looked at")
        }
        notification.reloading()
        do {
            let new = try reload()
            if new.socket != current.value.socket || new.allowed.isEmpty != current.value.allowed.isEmpty {
                log.warning("the socket itself changes only when the agent is started anew")
            }
            let restricted = current.value.allowed.filter { !$0.value.isSubset(of: new.allowed[$0.key] ?? []) }
            current.replace(with: new)
            server.admission = Self.admission(new)
            server.close(connectionsOf: Set(restricted.keys).subtracting([geteuid(), 0]))
            hub.limits = new.subscriptions
            watch.perform { $0.configure(new) }
            scheduler.configurationChanged(new)
            announceReady(new)
        } catch {
            let remedy = (error as? ConfigurationError)?.remedy ?? "mend the file, then send SIGHUP again"
            current.reject("\(error)", remedy: remedy)
            log.error("the configuration is kept as it was: \(error)")
            announceReady(current.value)
        }
    }
}
