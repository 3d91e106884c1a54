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
        let isShared = !configuration.allowedUsers.isEmpty
        let instance = try AgentInstance(socket: socket, isShared: isShared)
        // select(2) inside libinotifytools takes no descriptor above 1023, so its comes before the limit is raised.
        let source = try parts.source(instance.makePrivateDirectory())
        defer { instance.removePrivateDirectory() }
        DescriptorLimit.raise()

        let loop = try EventLoop()
        let hub = Hub(loop: loop)
        let current = CurrentConfiguration(configuration)
        let states = FollowingStates()
        let watch = Watch(source: source, log: log)
        let feed = FeedControl(watch: watch)
        let presenters = PresenterDesk(hub: hub, configuration: current)
        let scheduler = try parts.scheduler(
            RelocationSurroundings(feed: feed, presenters: presenters.registry), configuration, log)
        presenters.onChange { [weak scheduler] store in scheduler?.presentersChanged(of: store) }
        let status = StatusReport(
            hub: hub, configuration: current, states: states, scheduler: scheduler,
            presenters: presenters.registry, socket: socket, version: Self.version)
        let history = HistoryDesk(
            hub: hub, configuration: current, states: states, feed: feed, program: parts.historyProgram, log: log)
        defer { history.stop() }
        hub.readHistories { [weak history] store in history?.readForSubscribers(of: store) }
        let requests = RequestHandler(
            hub: hub, watch: watch, configuration: current, scheduler: scheduler, presenters: presenters,
            status: status, history: history, version: Self.version, log: log)
        // Without /proc, mounts are not noticed.
        let mounts = try? MountTable()
        let server = try Server(
            listener: instance.listen(isShared: isShared), loop: loop, hub: hub, requests: requests,
            admission: Self.admission(configuration), log: log)
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
                        reload(server, watch, scheduler, current)
                        history.maintainAll()
                    } else {
                        isStopping = true
                    }
                }
            },
            onMount: { watch.perform { $0.mountsChanged() } },
            shouldStop: { isStopping || failure.withLock { $0 != nil } })
        withExtendedLifetime(mounts) {}
        notification.stopping()
        log.info("stopping")
        scheduler.stop()
        watch.stop()
        server.drain(within: Self.drainTime)
        if let error = failure.withLock({ $0 }) { throw error }
    }

    private static func admission(_ configuration: Configuration) -> Server.Admission {
        Server.Admission(
            users: configuration.allowedUsers.union([geteuid()]), connectionsPerUser: configuration.connectionsPerUser)
    }

    private func announceReady(_ configuration: Configuration) {
        let stores = configuration.groups.reduce(0) { $0 + $1.stores.count }
        let words = "serving \(configuration.groups.count) groups, \(stores) stores"
        log.info("\(words)", metadata: ["socket": "\(PrintablePath(socket))"])
        notification.ready(words)
    }

    /// A configuration that is wrong changes nothing.
    private func reload(
        _ server: Server, _ watch: Watch, _ scheduler: any RelocationScheduling, _ current: CurrentConfiguration
    ) {
        guard let reload = parts.reload else {
            return log.notice("SIGHUP: configured on the command line, nothing to read anew")
        }
        notification.reloading()
        do {
            let new = try reload()
            if new.socket != current.value.socket || new.allowedUsers.isEmpty != current.value.allowedUsers.isEmpty {
                log.warning("the socket itself changes only when the agent is started anew")
            }
            current.replace(with: new)
            server.admission = Self.admission(new)
            watch.perform { $0.configure(new) }
            scheduler.configurationChanged(new)
            announceReady(new)
        } catch {
            log.error("the configuration is kept as it was: \(error)")
            announceReady(current.value)
        }
    }
}

enum DescriptorLimit {
    /// As many descriptors as the system lets this process have.
    static func raise() {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return }
        limit.rlim_cur = limit.rlim_max
        _ = setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }
}
