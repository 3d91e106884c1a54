import AgentProtocol
import DirectoryWatching
import Dispatch
import FileCoordination
import LinuxSystem
import Logging
import StoreRelocation
import Synchronization
import SystemPackage

/// Relocates configured stores when they have arrived and nobody has them open, and runs clients' relocations. It learns
/// from events when to look; while there are none, it sleeps.
///
/// One thread decides; what may wait, a relocation or a look through SQLite, has a thread of its own (`RelocationWorkers`).
package final class RelocationScheduler: RelocationScheduling {
    private enum Task: Sendable {
        case notice(Notice)
        case configuration(Configuration)
        case operation(RelocateOperation, isAbandoned: @Sendable () -> Bool, @Sendable (RelocateAnswer) -> Void)
        case operationEnded(StoreAddress?)
        case presenters(StoreAddress)
        case looked(number: UInt64, Result<Bool, RelocationFailure>)
        case relocated(number: UInt64, Result<RelocationSummary, RelocationFailure>)
        case recovered(isDone: Bool)
        case stop
    }

    private let inbox = Mutex<[Task]>([])
    private let arrived = DispatchSemaphore(value: 0)
    private let ended = DispatchSemaphore(value: 0)
    private let rows = Mutex<[LegacyStatus]>([])
    let workers = RelocationWorkers()
    let feed: FeedControl
    let announcements: RelocationAnnouncements
    let presenters: InProcessRegistry
    /// Ends the waiting for presenters.
    let isStopping = StopFlag()
    let logger: Logger
    private let initial: Configuration

    package init(_ configuration: Configuration, surroundings: RelocationSurroundings, logger: Logger) {
        initial = configuration
        feed = surroundings.feed
        announcements = RelocationAnnouncements(surroundings.feed)
        presenters = surroundings.presenters
        self.logger = logger
    }

    // MARK: Any thread

    package func start() {
        let stores = LegacyStores(initial)
        stores.findAll()
        publishStatus(stores)
        do throws(SystemError) {
            _ = try SystemThread(name: "scheduler") { [self] in
                run()
                ended.signal()
            }
        } catch {
            logger.critical("no relocation is done, since there is no thread for it: \(error)")
            ended.signal()
        }
    }

    package func configurationChanged(_ configuration: Configuration) { post(.configuration(configuration)) }

    package func notice(_ notice: Notice) { post(.notice(notice)) }

    package func relocate(
        _ operation: RelocateOperation, isAbandoned: @escaping @Sendable () -> Bool,
        events: @escaping @Sendable (RelocateAnswer) -> Void
    ) {
        post(.operation(operation, isAbandoned: isAbandoned, events))
    }

    package func statusRows() -> [LegacyStatus] { rows.withLock { $0 } }

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

    /// What only that thread knows.
    private struct Round {
        var stores: LegacyStores
        var recovery: UnfinishedRelocations
        /// The stores that workers have, by the numbers of their attempts.
        var underWay: [UInt64: LegacyStore] = [:]
        var nextNumber: UInt64 = 1
        /// How many of clients' relocations each store has.
        var operations: [StoreAddress: Int] = [:]

        /// The stores whose announcements somebody else ends.
        var announced: Set<StoreAddress> {
            stores.arriving.union(operations.keys).union(underWay.values.map(\.address))
        }

        mutating func begin(_ store: LegacyStore, _ state: LegacyStore.State = .relocating) -> UInt64 {
            defer { nextNumber += 1 }
            store.begin(state)
            underWay[nextNumber] = store
            return nextNumber
        }
    }

    private func run() {
        var round = Round(
            stores: LegacyStores(initial), recovery: UnfinishedRelocations(logger: logger))
        recover(&round)
        round.stores.findAll()
        while true {
            relocateDue(&round)
            publishStatus(round.stores)
            announcements.update(round.stores.waiting, announced: round.announced)
            wait(until: [round.stores.dueAt, round.recovery.dueAt].compactMap { $0 }.min())
            if round.recovery.isDue { recover(&round) }
            for task in inbox.withLock({ exchange(&$0) }) {
                if case .stop = task { return awaitWorkers() }
                perform(task, &round)
            }
        }
    }

    private func perform(_ task: Task, _ round: inout Round) {
        switch task {
        case .notice(let notice): round.stores.note(notice)
        case .configuration(let configuration):
            round.stores.adopt(configuration)
            recover(&round)
        case .operation(let operation, let isAbandoned, let events):
            begin(operation, isAbandoned, events, &round)
        case .operationEnded(let address):
            if let address {
                let left = (round.operations[address] ?? 1) - 1
                round.operations[address] = left > 0 ? left : nil
            }
            round.stores.retryAll()
        case .presenters(let address):
            for store in round.stores.all where store.address == address { store.presentersChanged() }
        case .looked(let number, let result): looked(number, result, &round)
        case .relocated(let number, let result):
            guard let store = round.underWay.removeValue(forKey: number) else { return }
            let last = store.failureBefore
            store.end {
                switch result {
                case .success(let summary): succeeded(summary, store)
                case .failure(let failure): failed(failure, store, after: last)
                }
            }
        case .recovered(let isDone):
            round.recovery.ended(isDone)
            if round.recovery.isOver { round.stores.retryAll() }
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
        _ = arrived.wait(timeout: .now() + .nanoseconds(Int(left.nanoseconds)))
    }

    /// Each has been told to end.
    private func awaitWorkers() {
        while !workers.isIdle { _ = arrived.wait(timeout: .now() + .milliseconds(5)) }
    }

    private func publishStatus(_ stores: LegacyStores) { rows.withLock { $0 = stores.all.compactMap(\.status) } }

    private func recover(_ round: inout Round) {
        for group in round.recovery.begin(round.stores.configuration) {
            let recovery = round.recovery
            submit([.recovery(group)]) { [self] in post(.recovered(isDone: recovery.recover(group))) }
        }
    }

    func submit(_ keys: Set<RelocationKey>, _ run: @escaping @Sendable () -> Void) {
        _ = workers.submit(.init(keys: keys, isClients: false, run: run))
    }

    private func begin(
        _ operation: RelocateOperation, _ isAbandoned: @escaping @Sendable () -> Bool,
        _ events: @escaping @Sendable (RelocateAnswer) -> Void, _ round: inout Round
    ) {
        guard !isAbandoned() else { return events(Self.cancelled(operation)) }
        if operation.namesWhatIsHere { events(.recognized) }
        let configuration = round.stores.configuration
        let (keys, address) = places(of: operation, configuration)
        let job = RelocationWorkers.Job(keys: keys, isClients: true) { [self] in
            if isAbandoned() {
                events(Self.cancelled(operation))
            } else {
                relocate(operation, configuration, isAbandoned, events)
            }
            post(.operationEnded(address))
        }
        if let address { round.operations[address, default: 0] += 1 }
        guard workers.submit(job) else {
            events(
                .refused(
                    WireError(
                        code: "too_many", "\(RelocationWorkers.mostWaitingClients) relocations wait already",
                        hint: "try again when some of them are done")))
            return post(.operationEnded(address))
        }
    }

    /// As one that was under way.
    private static func cancelled(_ operation: RelocateOperation) -> RelocateAnswer {
        let source = FilePath(bytes: operation.source) ?? FilePath()
        return .summary(RelocationFailure.cancelled(source).members(source: source, seconds: 0))
    }

    private func relocateDue(_ round: inout Round) {
        for store in round.stores.all where store.takeTurn() {
            if store.isGroupStore {
                look(at: store, &round)
            } else if store.isOpen(), !store.file.isSameAsGroupStore, !canBeAskedFor(store) {
                awaitClosing(store)
            } else if !presenting(store.address).isEmpty || !store.putsOff() {
                relocate(store, &round)
            }
        }
    }

    /// The group's own store, where it is of an older model: as soon as those who have it open are gone, or presenters let
    /// go of it.
    private func look(at store: LegacyStore, _ round: inout Round) {
        guard store.file.isThere else { return store.find() }
        let place = LegacyStoreLocation(store, round.stores.configuration.claimDeadline)
        let number = round.begin(store, store.state)
        submit(place.keys) { [self] in
            let opener = FeedOpener(feed: feed, store: place.address)
            var result: Result<Bool, RelocationFailure>
            do throws(RelocationFailure) {
                result = .success(try engine(request(for: place), opener).isOutdated())
            } catch {
                result = .failure(error)
            }
            opener.resume(announcing: nil)
            post(.looked(number: number, result))
        }
    }

    private func looked(_ number: UInt64, _ result: Result<Bool, RelocationFailure>, _ round: inout Round) {
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
            store.sawStrangers()
            awaitClosing(store)
        }
    }

    /// Open in its presenters alone, as far as can be seen: they let go when they are asked. Anybody else is waited for
    /// first, since asking costs the presenters a pause.
    private func canBeAskedFor(_ store: LegacyStore) -> Bool {
        let known = Set(presenting(store.address).map(\.pid))
        guard !known.isEmpty, store.mayAsk else { return false }
        if store.file.holders.allSatisfy({ known.contains($0.pid) }) { return true }
        store.sawStrangers()
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
        store.waitsBecause = LegacyStore.isOpenElsewhere
        guard store.nameHolders(), !wasWaiting else { return }
        logger.info(
            "waiting to relocate \(PrintablePath(store.file.path))", metadata: ["open-in": "\(store.waitingFor.list)"])
    }

    private func relocate(_ store: LegacyStore, _ round: inout Round) {
        let file = store.file
        let isUnfinished = file.isUnfinished
        guard file.isThere || file.hasOrphans || isUnfinished else { return store.find() }
        if !isUnfinished {
            if file.isLinkToGroup { return store.succeeded() }
            if !store.isGroupStore, file.hasNothing { return store.succeeded(.empty) }
        }
        // What failed, and is only tried again because time has passed, is told when something else comes of it.
        let last = store.lastFailure
        if last == nil { announcements.relocating(store.address, waitingFor: presenting(store.address)) }
        let place = LegacyStoreLocation(store, round.stores.configuration.claimDeadline)
        let number = round.begin(store, last == nil ? .relocating : store.state)
        submit(place.keys) { [self] in post(.relocated(number: number, relocate(place, after: last))) }
    }

    private func succeeded(_ summary: RelocationSummary, _ store: LegacyStore) {
        logger.notice(
            "\(summary.outcome.rawValue): \(PrintablePath(summary.from)) to \(PrintablePath(summary.to))",
            metadata: ["method": "\(summary.method?.rawValue ?? "none")", "bytes": "\(summary.bytes)"])
        for note in summary.notes { logger.notice("\(note)") }
        store.succeeded(summary.outcome == .nothingToDo && !store.isGroupStore ? .empty : .relocated)
    }

    /// `last`: the failure that was told before.
    private func failed(_ failure: RelocationFailure, _ store: LegacyStore, after last: LegacyStore.Failure?) {
        let told = LegacyStore.Failure(failure)
        if failure.kind == .busy {
            store.waits(
                for: failure.holders,
                because: failure.holders.isEmpty ? failure.message : LegacyStore.isOpenElsewhere)
            if !presenting(store.address).isEmpty || store.isGroupStore {
                if store.isNews(told) {
                    logger.notice("\(failure.message) (\(failure.remedy))", metadata: ["code": "\(failure.code)"])
                }
                return store.askedInVain()
            }
            // Opened again before anybody could look, or claimed: asked once more, so that the next close is heard of.
            return store.isOpen() ? store.awaitClosing() : store.lookAgainLater()
        }
        if told != last {
            logger.error("\(failure.message) (\(failure.remedy))", metadata: ["code": "\(failure.code)"])
        }
        let isPassing = failure.kind != .conflict && failure.kind != .badData
        store.failed(told, passing: isPassing)
    }
}

extension RelocationScheduler {
    /// What a client's relocation touches, and what the store that it makes is called on the wire.
    private func places(
        of operation: RelocateOperation, _ configuration: Configuration
    ) -> (Set<RelocationKey>, StoreAddress?) {
        guard let request = try? RelocationRequest(operation),
            let name = request.name ?? request.source.lastComponent
        else { return ([], nil) }
        let keys = RelocationKey.of(request.source).union(RelocationKey.of(request.group.appending(name)))
        return (keys, configuration.address(of: request))
    }
}
