import AgentProtocol
import AppRelocation
import DirectoryWatching
import FileCoordination
import LinuxSystem
import Logging
import StoreRelocation
import Synchronization
import SystemPackage

/// Relocates configured stores once they have arrived and no program has them open, and runs clients' relocations.
/// Events tell it when to check; without events it sleeps.
///
/// One thread decides. Work that may block, a relocation or an inspection through SQLite, runs on another thread
/// (`RelocationWorkers`).
package final class RelocationScheduler: RelocationScheduling {
    private enum Task: Sendable {
        case notice(Notice)
        case configuration(Configuration)
        case operation(RelocateOperation, isAbandoned: @Sendable () -> Bool, @Sendable (RelocateAnswer) -> Void)
        case operationEnded(number: UInt64, StoreAddress?)
        case presenters(StoreAddress)
        case inspected(number: UInt64, Result<Bool, RelocationFailure>)
        case relocated(number: UInt64, Result<RelocationSummary, RelocationFailure>)
        case moved(number: UInt64, LegacyApps.Outcome)
        case recovered(isDone: Bool)
        case stop
    }

    private let inbox = Mutex<[Task]>([])
    private let arrived: MonotonicSemaphore
    private let ended = MonotonicSemaphore()
    private let rows = Mutex<(stores: [LegacyStatus], apps: [AppStatus])>(([], []))
    /// The groups' directories in which no store waits for anything. The events of busy stores there wake nobody.
    private let unheard = Mutex<Set<FilePath>>([])
    let workers = RelocationWorkers()
    let feed: FeedControl
    let announcements: RelocationAnnouncements
    let presenters: InProcessRegistry
    /// Set to stop waiting for presenters.
    let isStopping = StopFlag()
    let logger: Logger
    private let initial: Configuration

    package init(_ configuration: Configuration, environment: RelocationEnvironment, logger: Logger) {
        initial = configuration
        feed = environment.feed
        let arrived = MonotonicSemaphore()
        self.arrived = arrived
        announcements = RelocationAnnouncements(environment.feed) { arrived.signal() }
        presenters = environment.presenters
        self.logger = logger
    }

    // MARK: Any thread

    package func start() {
        let stores = LegacyStores(initial)
        stores.inspectAll()
        publishStatus(stores, LegacyApps(initial))
        do throws(SystemError) {
            _ = try SystemThread(name: "scheduler") { [self] in
                run()
                ended.signal()
            }
        } catch {
            logger.critical("can't start the scheduler's thread, so nothing is relocated: \(error)")
            ended.signal()
        }
    }

    package func configurationChanged(_ configuration: Configuration) { post(.configuration(configuration)) }

    package func receive(_ notice: Notice) {
        if case .event(let event) = notice, unheard.withLock({ $0.contains(event.directory) }) { return }
        post(.notice(notice))
    }

    package func relocate(
        _ operation: RelocateOperation, isAbandoned: @escaping @Sendable () -> Bool,
        events: @escaping @Sendable (RelocateAnswer) -> Void
    ) {
        post(.operation(operation, isAbandoned: isAbandoned, events))
    }

    package func statusRows() -> [LegacyStatus] { rows.withLock { $0.stores } }

    package func appRows() -> [AppStatus] { rows.withLock { $0.apps } }

    package func presentersChanged(of store: StoreAddress) { post(.presenters(store)) }

    package func stop() {
        isStopping.set()
        post(.stop)
        ended.wait()
    }

    private func post(_ task: Task) {
        inbox.withLock { $0.append(task) }
        arrived.signal()
    }

    // MARK: The scheduler's thread

    private func run() {
        var round = Round(
            stores: LegacyStores(initial), apps: LegacyApps(initial), recovery: UnfinishedRelocations(logger: logger))
        recover(&round)
        round.stores.inspectAll()
        round.apps.inspectAll()
        while true {
            relocateDue(&round)
            moveDue(&round)
            hearGroups(of: round.stores, except: round.apps.heardDirectories)
            publishStatus(round.stores, round.apps)
            announcements.update(round.stores.waiting, announced: round.announced)
            announcements.sendDue()
            let due = [round.stores.dueAt, round.apps.dueAt, round.recovery.dueAt, announcements.dueAt]
            wait(until: due.compactMap { $0 }.min())
            if round.recovery.isDue { recover(&round) }
            for task in inbox.withLock({ exchange(&$0) }) {
                if case .stop = task { return awaitWorkers() }
                perform(task, &round)
            }
        }
    }

    private func perform(_ task: Task, _ round: inout Round) {
        switch task {
        case .notice(let notice):
            round.stores.record(notice)
            round.apps.record(notice)
        case .configuration(let configuration):
            // One of them may be a legacy directory from now on.
            unheard.withLock { $0 = [] }
            round.stores.adopt(configuration)
            round.apps.adopt(configuration)
            recover(&round)
        case .operation(let operation, let isAbandoned, let events):
            begin(operation, isAbandoned: isAbandoned, events: events, &round)
        case .operationEnded(let number, let address):
            for store in round.usedByClients.removeValue(forKey: number) ?? [] { store.endClientRelocation() }
            if let address {
                let left = (round.operations[address] ?? 1) - 1
                round.operations[address] = left > 0 ? left : nil
            }
            round.stores.retryAll()
        case .presenters(let address):
            for store in round.stores.all where store.address == address {
                store.presentersChanged(to: Set(presenting(address)))
            }
        case .inspected(let number, let result): inspected(number, result: result, &round)
        case .relocated(let number, let result):
            guard let store = round.underWay.removeValue(forKey: number) else { return }
            let last = store.failureBefore
            store.end {
                switch result {
                case .success(let summary): succeeded(summary, store)
                case .failure(let failure): failed(failure, store, after: last)
                }
            }
        case .moved(let number, let outcome): round.apps.end(number, outcome, logger)
        case .recovered(let isDone):
            round.recovery.ended(isDone)
            if round.recovery.isIdle { round.stores.retryAll() }
        case .stop: break
        }
    }

    private func exchange(_ tasks: inout [Task]) -> [Task] {
        defer { tasks = [] }
        return tasks
    }

    private func wait(until due: ContinuousClock.Instant?) {
        guard let due else { return arrived.wait() }
        let left = max(.zero, ContinuousClock.now.duration(to: due))
        arrived.wait(within: left)
    }

    /// Waits for all workers, which were told to stop.
    private func awaitWorkers() {
        while !workers.isIdle { arrived.wait(within: .milliseconds(5)) }
    }

    /// Lets in events from the directories of groups for which a store was refused. Checks what has happened there
    /// since the refusal.
    private func hearGroups(of stores: LegacyStores, except heard: Set<FilePath>) {
        let now = stores.unheardDirectories.subtracting(heard)
        let before = unheard.withLock { unheard in
            defer { unheard = now }
            return unheard
        }
        for store in stores.all where before.contains(store.file.group) && !now.contains(store.file.group) {
            store.retry()
        }
    }

    private func publishStatus(_ stores: LegacyStores, _ apps: LegacyApps) {
        rows.withLock { $0 = (stores.all.compactMap(\.status), apps.all.map(\.status)) }
    }

    private func recover(_ round: inout Round) {
        for group in round.recovery.begin(round.stores.configuration) {
            let recovery = round.recovery
            submit([.recovery(group)]) { [self] in post(.recovered(isDone: recovery.recover(group))) }
        }
    }

    func submit(_ keys: Set<RelocationKey>, _ run: @escaping @Sendable () -> Void) {
        _ = workers.submit(.init(keys: keys, isFromClient: false, run: run))
    }

    private func begin(
        _ operation: RelocateOperation, isAbandoned: @escaping @Sendable () -> Bool,
        events: @escaping @Sendable (RelocateAnswer) -> Void, _ round: inout Round
    ) {
        guard !isAbandoned() else { return events(Self.cancelled(operation)) }
        if operation.namesVisibleFiles { events(.recognized) }
        let configuration = round.stores.configuration
        let (keys, address) = keysAndAddress(of: operation, configuration)
        let number = round.lend(keys)
        let job = RelocationWorkers.Job(keys: keys, isFromClient: true) { [self] in
            if isAbandoned() {
                events(Self.cancelled(operation))
            } else {
                relocate(operation, configuration: configuration, isAbandoned: isAbandoned, events: events)
            }
            post(.operationEnded(number: number, address))
        }
        if let address { round.operations[address, default: 0] += 1 }
        guard workers.submit(job) else {
            events(
                .refused(
                    WireError(
                        code: "too_many", "\(RelocationWorkers.maximumWaitingClients) relocations are already waiting",
                        hint: "try again when some of them are done")))
            return post(.operationEnded(number: number, address))
        }
    }

    /// Returns the answer of a relocation that was cancelled.
    private static func cancelled(_ operation: RelocateOperation) -> RelocateAnswer {
        let source = FilePath(bytes: operation.source) ?? FilePath()
        return .summary(RelocationFailure.cancelled(source).members(source: source, seconds: 0))
    }

    private func moveDue(_ round: inout Round) {
        for attempt in round.apps.beginDue() {
            submit(attempt.keys) { [self] in
                let outcome = attempt.run(isCancelled: { [isStopping] in isStopping.isSet }, logger)
                post(.moved(number: attempt.number, outcome))
            }
        }
    }

    private func relocateDue(_ round: inout Round) {
        for store in round.stores.all where store.shouldTryNow() {
            if store.isGroupStore {
                inspect(store, &round)
            } else if store.isOpen(), !store.file.isSameAsGroupStore, !canBeAskedFor(store) {
                awaitClosing(store)
            } else if !presenting(store.address).isEmpty || !store.postponesAttempt() {
                relocate(store, &round)
            }
        }
    }

    /// Migrates the group's own store if it is of an older model, once its other holders are gone or its presenters
    /// release it.
    private func inspect(_ store: LegacyStore, _ round: inout Round) {
        guard store.file.isThere else { return store.inspect() }
        let location = LegacyStoreLocation(
            store, round.stores.configuration.claimDeadline, round.stores.configuration.groupsByDirectory)
        let number = round.begin(store, store.state)
        submit(location.keys) { [self] in
            let opener = FeedOpener(feed: feed, store: location.address)
            var result: Result<Bool, RelocationFailure>
            do throws(RelocationFailure) {
                result = .success(try engine(request(for: location), opener).isOutdated())
            } catch {
                result = .failure(error)
            }
            opener.resume(announcing: nil)
            post(.inspected(number: number, result))
        }
    }

    private func inspected(_ number: UInt64, result: Result<Bool, RelocationFailure>, _ round: inout Round) {
        guard let store = round.underWay.removeValue(forKey: number) else { return }
        let last = store.failureBefore
        var isOutdated = false
        store.end {
            switch result {
            case .success(true): isOutdated = true
            case .success(false): store.succeeded()
            case .failure(let failure): failed(failure, store, after: last)
            }
        }
        guard isOutdated, store.file.isThere else { return }
        let known = Set(presenting(store.address).map(\.pid))
        if store.file.holders.allSatisfy({ known.contains($0.pid) }) {
            relocate(store, &round)
        } else {
            store.recordForeignHolders()
            awaitClosing(store)
        }
    }

    /// True if only its presenters have it open, as far as can be seen: they release it when asked. Other holders are
    /// waited for first, since asking costs the presenters a pause.
    private func canBeAskedFor(_ store: LegacyStore) -> Bool {
        let known = Set(presenting(store.address).map(\.pid))
        guard !known.isEmpty, store.mayAsk else { return false }
        if store.file.holders.allSatisfy({ known.contains($0.pid) }) { return true }
        store.recordForeignHolders()
        return false
    }

    func presenting(_ address: StoreAddress) -> [FileHolder] {
        guard let name = FilePath.Component(bytes: address.name) else { return [] }
        return presenters.holders(
            presenting: ClaimedItem(container: address.group, path: FilePath(root: nil, [name])))
    }

    private func awaitClosing(_ store: LegacyStore) {
        let wasWaiting = store.state == .waiting
        store.awaitClosing()
        store.waitReason = LegacyStore.isOpenElsewhere
        guard store.updateHolders(), !wasWaiting else { return }
        logger.info(
            "waiting to relocate \(PrintablePath(store.file.path))", metadata: ["open-in": "\(store.holders.list)"])
    }

    private func relocate(_ store: LegacyStore, _ round: inout Round) {
        let file = store.file
        let isUnfinished = file.isUnfinished
        guard file.isThere || file.hasOrphans || isUnfinished else { return store.inspect() }
        if !isUnfinished {
            if file.isLinkToGroup { return store.succeeded() }
            if !store.isGroupStore, file.hasNothing { return store.succeeded(.empty) }
        }
        // A failure that is retried only because time has passed is published again only if the outcome differs.
        let last = store.lastFailure
        if last == nil { announcements.relocating(store.address, waitingFor: presenting(store.address)) }
        let location = LegacyStoreLocation(
            store, round.stores.configuration.claimDeadline, round.stores.configuration.groupsByDirectory)
        let number = round.begin(store, last == nil ? .relocating : store.state)
        submit(location.keys) { [self] in post(.relocated(number: number, relocate(location, after: last))) }
    }

    private func succeeded(_ summary: RelocationSummary, _ store: LegacyStore) {
        logger.notice(
            "\(RelocationSentence.text(of: summary.members(seconds: 0)))",
            metadata: ["method": "\(summary.method?.rawValue ?? "none")", "bytes": "\(summary.bytes)"])
        for note in summary.notes { logger.notice("\(note)") }
        store.succeeded(summary.outcome == .nothingToDo && !store.isGroupStore ? .empty : .relocated)
    }

    /// Records a failure. `last`: the failure that was published before.
    private func failed(_ failure: RelocationFailure, _ store: LegacyStore, after last: LegacyStore.Failure?) {
        let newFailure = LegacyStore.Failure(failure)
        if failure.kind == .busy {
            store.wait(
                for: failure.holders,
                because: failure.code == "in_use" && !failure.holders.isEmpty
                    ? LegacyStore.isOpenElsewhere : failure.messageWithRemedy)
            if !presenting(store.address).isEmpty || store.isGroupStore {
                if store.isNewFailure(newFailure) {
                    logger.notice("\(failure.messageWithRemedy)", metadata: ["code": "\(failure.code)"])
                }
                return store.recordPresenterRefusal(by: Set(presenting(store.address)))
            }
            // Opened again before the check, or claimed: check once more, so that the next close is noticed.
            return store.isOpen() ? store.awaitClosing() : store.scheduleRetry()
        }
        if newFailure != last {
            logger.error("\(failure.messageWithRemedy)", metadata: ["code": "\(failure.code)"])
        }
        store.failed(newFailure, isTransient: failure.isTransient)
    }
}
