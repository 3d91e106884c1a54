import AgentProtocol
import DirectoryWatching
import Dispatch
import FileCoordination
import Foundation
import GroupContainer
import LinuxSystem
import Logging
import ManagedObjectModel
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
        case operation(RelocateOperation, @Sendable (RelocateAnswer) -> Void)
        case presenters(StoreAddress)
        case stop
    }

    private let inbox = Mutex<[Task]>([])
    private let arrived = DispatchSemaphore(value: 0)
    private let ended = DispatchSemaphore(value: 0)
    private let rows = Mutex<[LegacyStatus]>([])
    private let feed: FeedControl
    private let presenters: MemoryRegistry
    /// Ends the waiting for presenters.
    private let isStopping = StopFlag()
    private let logger: Logger
    private let initial: Configuration

    package init(_ configuration: Configuration, surroundings: RelocationSurroundings, logger: Logger) {
        initial = configuration
        feed = surroundings.feed
        presenters = surroundings.presenters
        self.logger = logger
    }

    // MARK: Any thread

    package func start() {
        let thread = Thread { [self] in
            run()
            ended.signal()
        }
        thread.name = "relocation"
        thread.start()
    }

    package func configurationChanged(_ configuration: Configuration) { post(.configuration(configuration)) }

    package func notice(_ notice: Notice) { post(.notice(notice)) }

    package func relocate(_ operation: RelocateOperation, events: @escaping @Sendable (RelocateAnswer) -> Void) {
        post(.operation(operation, events))
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
        recover(initial)
        stores.findAll()
        while true {
            relocateDue(&stores)
            publishStatus(stores)
            wait(until: stores.dueAt)
            for task in inbox.withLock({ exchange(&$0) }) {
                switch task {
                case .notice(let notice): stores.note(notice)
                case .configuration(let configuration):
                    recover(configuration)
                    stores.adopt(configuration)
                case .operation(let operation, let events):
                    relocate(operation, stores.configuration, events)
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

    private func publishStatus(_ stores: LegacyStores) { rows.withLock { $0 = stores.all.map(\.status) } }

    /// What an earlier run left half done is brought to its end before anything else.
    private func recover(_ configuration: Configuration) {
        for group in configuration.groups {
            guard let container = try? GroupContainer(group.directory) else { continue }
            do {
                guard try container.journal() != nil, let lock = try container.lock() else { continue }
                try withExtendedLifetime(lock) { _ in
                    try Recovery(container: container) { event in
                        if case .recovered(let text) = event { self.logger.notice("\(text)") }
                        if case .note(let text) = event { self.logger.notice("\(text)") }
                    }.run()
                }
            } catch {
                logger.error("an interrupted relocation in \(PrintablePath(group.directory)) is not over: \(error)")
            }
        }
    }

    private func relocateDue(_ stores: inout LegacyStores) {
        for store in stores.all where store.takeTurn() {
            if store.isOpen(), !canBeAskedFor(store) {
                if store.state != .waiting { announceWaiting(store) }
                store.state = .waiting
            } else {
                relocate(store, claimDeadline: stores.configuration.claimDeadline)
                publishStatus(stores)
            }
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

    private func announceWaiting(_ store: LegacyStore) {
        let holders = store.holders()
        logger.info(
            "waiting to relocate \(PrintablePath(store.path))",
            metadata: ["open-in": "\(holders.list)"])
        feed.announce(
            .relocating(waitingFor: holders.map { .init($0) }), of: store.address)
    }

    private func relocate(_ store: LegacyStore, claimDeadline: Duration) {
        store.endProbing()
        guard Self.isThere(store) else { return store.find() }
        guard !Self.isLinkToGroup(store) else {
            store.state = .relocated
            return
        }
        let asked = presenting(store)
        if store.state != .waiting || !asked.isEmpty {
            feed.announce(.relocating(waitingFor: asked.map { .init($0) }), of: store.address)
        }
        store.state = .relocating
        var request = RelocationRequest(source: store.path, group: store.group)
        request.name = store.configuration.name.database
        request.onConflict = store.configuration.onConflict
        request.retirement = store.configuration.retirement
        request.identifier = GroupIdentifier(store.address.group)
        request.claimDeadline = claimDeadline
        // Whoever opens it in this instant is waited for by their close's event, not here, while presenters wait.
        request.deadline = .milliseconds(asked.isEmpty ? 100 : 1000)
        let opener = FeedOpener(feed: feed, store: store.address)
        do throws(RelocationFailure) {
            request.transform = try store.configuration.transform(isStopping: { [isStopping] in isStopping.isSet })
            let summary = try engine(request, opener).run()
            opener.resume(announcing: summary.event)
            if let migration = summary.migration { feed.announce(migration, of: store.address) }
            succeeded(summary, store)
        } catch {
            opener.resume(announcing: error.event)
            failed(error, store)
        }
    }

    private func engine(
        _ request: RelocationRequest, _ opener: FeedOpener, report: @escaping (RelocationEvent) -> Void = { _ in }
    ) -> RelocationEngine {
        RelocationEngine(
            request, registry: presenters, opener: opener, isCancelled: { [isStopping] in isStopping.isSet },
            report: report)
    }

    private static func isThere(_ store: LegacyStore) -> Bool {
        guard let directory = try? Directory(store.directory) else { return false }
        return (try? directory.status(store.name.database)) != nil
    }

    /// What `retire: symlink` left.
    private static func isLinkToGroup(_ store: LegacyStore) -> Bool {
        guard let directory = try? Directory(store.directory),
            (try? directory.status(store.name.database))?.kind == .symbolicLink
        else { return false }
        let target = FileStatus(following: store.path)?.identity
        let group = store.group.appending(store.configuration.name.database)
        return target != nil && target == FileStatus(following: group)?.identity
    }

    private func succeeded(_ summary: RelocationSummary, _ store: LegacyStore) {
        logger.notice(
            "\(summary.outcome.rawValue): \(PrintablePath(summary.from)) to \(PrintablePath(summary.to))",
            metadata: ["method": "\(summary.method?.rawValue ?? "none")", "bytes": "\(summary.bytes)"])
        for note in summary.notes { logger.notice("\(note)") }
        store.state = .relocated
    }

    private func failed(_ failure: RelocationFailure, _ store: LegacyStore) {
        if failure.kind == .busy {
            store.state = .waiting
            if !presenting(store).isEmpty {
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
        store.state = .failed(state: failure.outcome, detail: "\(failure.message) (\(failure.remedy))")
    }

}

private final class StopFlag: Sendable {
    private let state = Mutex(false)
    var isSet: Bool { state.withLock { $0 } }
    func set() { state.withLock { $0 = true } }
}

/// The feed as something that has the group's store open. It lets go when the engine asks, and takes the store again
/// when `resume` is called: together with what its subscribers are told.
private final class FeedOpener: StoreOpener {
    private let feed: FeedControl
    private let store: StoreAddress?
    /// Nil until it was asked; false when the feed did not come to it in time: then the engine's lease is refused, and
    /// nothing is moved.
    private let isReleased = Mutex<Bool?>(nil)

    init(feed: FeedControl, store: StoreAddress?) {
        self.feed = feed
        self.store = store
    }

    func relinquish(_ path: FilePath) {
        guard let store else { return }
        isReleased.withLock { released in
            guard released == nil else { return }
            do throws(FeedControl.NotReleased) {
                try feed.release(store)
                released = true
            } catch {
                released = false
            }
        }
    }

    func reacquire(_ path: FilePath) {}

    func resume(announcing event: StoreEvent?) {
        guard let store else { return }
        if isReleased.withLock({ $0 == true }) {
            feed.resume(store, announcing: event)
        } else if let event {
            feed.announce(event, of: store)
        }
    }
}

extension Configuration.Store {
    /// The migration to the model that is configured; nil for none. Throws `RelocationFailure` when that can't be read.
    fileprivate func transform(
        isStopping: @escaping @Sendable () -> Bool
    ) throws(RelocationFailure) -> MigrationTransform? {
        guard let model else { return nil }
        do {
            let bundle = try ModelBundle(reading: model)
            return MigrationTransform(to: bundle.current, in: bundle, isCancelled: isStopping)
        } catch {
            throw RelocationFailure(
                .badData, code: "bad_model", "the configured model can't be read: \(error)",
                remedy: "correct model: in the configuration, or install the model")
        }
    }
}

extension RelocationSummary {
    /// What they are told besides, where the store is of another version now.
    fileprivate var migration: StoreEvent? {
        transformed.map { .migrated(fromModel: $0.before, toModel: $0.after) }
    }

    /// What subscribers of the store are told.
    fileprivate var event: StoreEvent {
        outcome == .relocated
            ? .relocated(from: from.bytes, to: to.bytes)
            : .relocationEnded(outcome: outcome.rawValue, message: notes.joined(separator: "; "))
    }
}

extension RelocationFailure {
    fileprivate var event: StoreEvent { .relocationEnded(outcome: outcome, message: message) }
}

// MARK: Clients' relocations

extension RelocationScheduler {
    private func relocate(
        _ operation: RelocateOperation, _ configuration: Configuration,
        _ events: @escaping @Sendable (RelocateAnswer) -> Void
    ) {
        do throws(WireError) {
            var request = try RelocationRequest(operation)
            let store = configuration.address(of: request)
            request.identifier = store.flatMap { GroupIdentifier($0.group) }
            let configured = store.flatMap { store in
                FilePath.Component(bytes: store.name).flatMap { configuration.group(store.group)?.store(named: $0) }
            }
            if let store, !operation.dryRun { feed.announce(.relocating(waitingFor: []), of: store) }
            let started = ContinuousClock.now
            let opener = FeedOpener(feed: feed, store: store)
            var announced: StoreEvent?
            var migration: StoreEvent?
            do throws(RelocationFailure) {
                request.transform = try configured?.transform(isStopping: { [isStopping] in isStopping.isSet })
                let engine = engine(request, opener) { event in
                    if let line = event.line { events(.progress(type: line.type, line.members)) }
                }
                let summary = operation.dryRun ? try engine.dryRun() : try engine.run()
                announced = summary.event
                migration = summary.migration
                events(
                    .summary(
                        summary.members(seconds: started.duration(to: .now).seconds, dryRun: operation.dryRun)))
            } catch {
                announced = error.event
                events(.summary(error.members(source: request.source, seconds: started.duration(to: .now).seconds)))
            }
            opener.resume(announcing: operation.dryRun ? nil : announced)
            if let store, let migration { feed.announce(migration, of: store) }
        } catch {
            events(.refused(error))
        }
    }
}
