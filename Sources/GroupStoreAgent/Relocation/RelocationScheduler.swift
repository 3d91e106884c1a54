import AgentProtocol
import DirectoryWatching
import Dispatch
import FileCoordination
import Foundation
import GroupContainer
import LinuxSystem
import Logging
import PersistentStore
import StorePreparation
import StoreRelocation
import Synchronization
import SystemPackage

/// Relocates configured stores when they have arrived and nobody has them open, and runs clients' relocations: one
/// after another, on one thread. It learns from events when to look; while there are none, it sleeps.
package final class RelocationScheduler: RelocationScheduling {
    private enum Task: Sendable {
        case notice(Notice)
        case configuration(Configuration)
        case operation(RelocateOperation, isAbandoned: @Sendable () -> Bool, @Sendable (RelocateAnswer) -> Void)
        case presenters(StoreAddress)
        case stop
    }

    private let inbox = Mutex<[Task]>([])
    private let arrived = DispatchSemaphore(value: 0)
    private let ended = DispatchSemaphore(value: 0)
    private let rows = Mutex<[LegacyStatus]>([])
    let feed: FeedControl
    let announcements: RelocationAnnouncements
    let presenters: MemoryRegistry
    /// Ends the waiting for presenters.
    let isStopping = StopFlag()
    private let logger: Logger
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
        let thread = Thread { [self] in
            run()
            ended.signal()
        }
        thread.name = "relocation"
        thread.start()
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

    private func run() {
        var stores = LegacyStores(initial)
        var recovery = UnfinishedRelocations(logger: logger)
        recovery.bringToEnd(initial)
        stores.findAll()
        while true {
            relocateDue(&stores)
            publishStatus(stores)
            announcements.update(stores.waiting, arriving: stores.arriving)
            wait(until: [stores.dueAt, recovery.dueAt].compactMap { $0 }.min())
            if recovery.isDue { recovery.bringToEnd(stores.configuration) }
            for task in inbox.withLock({ exchange(&$0) }) {
                switch task {
                case .notice(let notice): stores.note(notice)
                case .configuration(let configuration):
                    recovery.bringToEnd(configuration)
                    stores.adopt(configuration)
                case .operation(let operation, let isAbandoned, let events):
                    guard !isAbandoned() else { continue }
                    relocate(operation, stores.configuration, isAbandoned, events)
                    stores.retryAll()
                case .presenters(let address):
                    for store in stores.all where store.address == address { store.presentersChanged() }
                case .stop: return
                }
            }
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

    private func publishStatus(_ stores: LegacyStores) { rows.withLock { $0 = stores.all.compactMap(\.status) } }

    private func relocateDue(_ stores: inout LegacyStores) {
        for store in stores.all where store.takeTurn() {
            if store.isGroupStore {
                migrate(store, claimDeadline: stores.configuration.claimDeadline)
                publishStatus(stores)
            } else if store.isOpen(), !Self.isGroupStore(store), !canBeAskedFor(store) {
                awaitClosing(store)
            } else {
                relocate(store, claimDeadline: stores.configuration.claimDeadline)
                publishStatus(stores)
            }
        }
    }

    /// The group's own store, where it is of an older model: as soon as those who have it open are gone, or presenters let
    /// go of it.
    private func migrate(_ store: LegacyStore, claimDeadline: Duration) {
        guard Self.isThere(store) else { return store.find() }
        let opener = FeedOpener(feed: feed, store: store.address)
        do throws(RelocationFailure) {
            let isOutdated = try engine(request(for: store, claimDeadline), opener).isOutdated()
            opener.resume(announcing: nil)
            guard isOutdated else { return store.succeeded() }
        } catch {
            opener.resume(announcing: nil)
            return failed(error, store)
        }
        let known = Set(presenting(store).map(\.pid))
        if store.holders().allSatisfy({ known.contains($0.pid) }) {
            relocate(store, claimDeadline: claimDeadline)
        } else {
            store.sawStrangers()
            awaitClosing(store)
        }
    }

    /// Open in its presenters alone, as far as can be seen: they let go when they are asked. Anybody else is waited for
    /// first, since asking costs the presenters a pause.
    private func canBeAskedFor(_ store: LegacyStore) -> Bool {
        let known = Set(presenting(store).map(\.pid))
        guard !known.isEmpty, store.mayAsk else { return false }
        if store.holders().allSatisfy({ known.contains($0.pid) }) { return true }
        store.sawStrangers()
        return false
    }

    private func presenting(_ store: LegacyStore) -> [FileHolder] {
        guard let name = FilePath.Component(bytes: store.address.name) else { return [] }
        return presenters.holders(
            presenting: ClaimedItem(container: store.address.group, path: FilePath(root: nil, [name])))
    }

    private func awaitClosing(_ store: LegacyStore) {
        let wasWaiting = store.state == .waiting
        store.state = .waiting
        guard store.nameHolders(), !wasWaiting else { return }
        logger.info(
            "waiting to relocate \(PrintablePath(store.path))", metadata: ["open-in": "\(store.waitingFor.list)"])
    }

    private func relocate(_ store: LegacyStore, claimDeadline: Duration) {
        store.endProbing()
        guard Self.isThere(store) || Self.isUnfinished(store) else { return store.find() }
        guard !Self.isLinkToGroup(store) || Self.isUnfinished(store) else { return store.succeeded() }
        let asked = presenting(store)
        announcements.relocating(store.address, waitingFor: asked)
        store.state = .relocating
        let opener = FeedOpener(feed: feed, store: store.address)
        do throws(RelocationFailure) {
            let summary = try engine(request(for: store, claimDeadline), opener).run()
            announcements.ended(store.address)
            opener.resume(announcing: summary.event)
            if let migration = summary.migration { feed.announce(migration, of: store.address) }
            succeeded(summary, store)
        } catch {
            // Whoever is in the way is waited for: that it is not over yet is told when it is known who they are.
            let isOver = error.kind != .busy
            if isOver { announcements.ended(store.address) }
            opener.resume(announcing: isOver ? error.event : nil)
            failed(error, store)
        }
    }

    private func request(
        for store: LegacyStore, _ claimDeadline: Duration
    ) throws(RelocationFailure) -> RelocationRequest {
        let configuration = store.configuration
        var request = RelocationRequest(source: store.path, group: store.group)
        request.name = configuration.name.database
        request.onConflict = configuration.onConflict
        request.retirement = configuration.retirement
        request.journalMode = configuration.journalMode
        request.identifier = GroupIdentifier(store.address.group)
        request.claimDeadline = claimDeadline
        // Whoever opens it in this instant is waited for by their close's event, not here, while presenters wait.
        request.deadline = .milliseconds(presenting(store).isEmpty ? 100 : 1000)
        if let migration = configuration.migration {
            try request.migrate(migration, isCancelled: { [isStopping] in isStopping.isSet })
        }
        return request
    }

    func engine(
        _ request: RelocationRequest, _ opener: FeedOpener, isAbandoned: @escaping @Sendable () -> Bool = { false },
        report: @escaping (RelocationEvent) -> Void = { _ in }
    ) -> RelocationEngine {
        RelocationEngine(
            request, registry: presenters, opener: opener,
            isCancelled: { [isStopping] in isStopping.isSet || isAbandoned() },
            report: report)
    }

    private static func isThere(_ store: LegacyStore) -> Bool {
        guard let directory = try? Directory(store.directory) else { return false }
        return (try? directory.status(store.name.database)) != nil
    }

    /// An earlier attempt moved it, and something after that is still to be done.
    private static func isUnfinished(_ store: LegacyStore) -> Bool {
        (try? GroupContainer(store.group).journal()) != nil
    }

    /// The group's store under a second name, which the feed itself may have open: nobody's close is waited for.
    private static func isGroupStore(_ store: LegacyStore) -> Bool {
        let identity = FileStatus(following: store.path)?.identity
        let group = store.group.appending(store.configuration.name.database)
        return identity != nil && identity == FileStatus(following: group)?.identity
    }

    /// What `retire: symlink` left.
    private static func isLinkToGroup(_ store: LegacyStore) -> Bool {
        guard let directory = try? Directory(store.directory),
            (try? directory.status(store.name.database))?.kind == .symbolicLink
        else { return false }
        return isGroupStore(store)
    }

    private func succeeded(_ summary: RelocationSummary, _ store: LegacyStore) {
        logger.notice(
            "\(summary.outcome.rawValue): \(PrintablePath(summary.from)) to \(PrintablePath(summary.to))",
            metadata: ["method": "\(summary.method?.rawValue ?? "none")", "bytes": "\(summary.bytes)"])
        for note in summary.notes { logger.notice("\(note)") }
        store.succeeded()
    }

    private func failed(_ failure: RelocationFailure, _ store: LegacyStore) {
        if failure.kind == .busy {
            store.state = .waiting
            store.waitingFor = failure.holders
            if !presenting(store).isEmpty || store.isGroupStore {
                logger.notice("\(failure.message) (\(failure.remedy))", metadata: ["code": "\(failure.code)"])
                return store.askedInVain()
            }
            // Opened again before anybody could look: asked once more, so that the next close is heard of.
            if !store.isOpen() {
                store.lookAgain()
                post(.notice(.woken))
            }
            return
        }
        logger.error("\(failure.message) (\(failure.remedy))", metadata: ["code": "\(failure.code)"])
        let isPassing = failure.kind != .conflict && failure.kind != .badData
        store.failed(
            failure.outcome, detail: "\(failure.message) (\(failure.remedy))", passing: isPassing)
    }
}
