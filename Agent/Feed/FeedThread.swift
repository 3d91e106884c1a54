import AgentProtocol
import DirectoryWatching
import Dispatch
import LinuxSystem
import Logging
import Synchronization

/// The thread that waits for file events, and does all work on the stores that are followed, in order. Other threads
/// leave work for it.
package final class FeedThread: Sendable {
    typealias Work = @Sendable (FollowedStores) -> Void

    private struct Mailbox {
        var work: [Work] = []
        var isStopping = false
    }

    /// All but `wake`, which any thread may call, is called by the watch's thread alone once it runs.
    nonisolated(unsafe) private let source: any EventSource
    private let mailbox = Mutex(Mailbox())
    private let thread = Mutex<SystemThread?>(nil)
    private let surveyor = PageMapScanner()
    private let descriptors: DescriptorBudget
    private let log: Logger

    package init(source: any EventSource, descriptors: DescriptorBudget = .unlimited, log: Logger) {
        self.source = source
        self.descriptors = descriptors
        self.log = log
    }

    /// Work for the thread, done after what was left before it, and not before `start`.
    func perform(_ work: @escaping Work) {
        mailbox.withLock { $0.work.append(work) }
        source.wake()
    }

    /// Makes the thread, and returns when all that is configured is followed. `failed` is called on it when no more events can be had.
    package func start(
        configuration: Configuration, hub: Publisher, scheduler: (any RelocationScheduling)?, states: FollowingStates,
        onEvent: @escaping @Sendable (StoreEvent, StoreAddress) -> Void = { _, _ in },
        failed: @escaping @Sendable (any Error) -> Void
    ) throws {
        let isConfigured = DispatchSemaphore(value: 0)
        let started = try SystemThread(name: "gs-watch") { [self] in
            wakeExactly()
            let stores = FollowedStores(
                source: source, hub: hub, surveyor: surveyor, scheduler: scheduler, states: states,
                descriptors: descriptors, log: log, onEvent: onEvent,
                perform: { [weak self] work in self?.perform(work) })
            stores.configure(configuration)
            isConfigured.signal()
            do { try run(stores) } catch { failed(error) }
            stores.letGoOfAll()
        }
        thread.withLock { $0 = started }
        isConfigured.wait()
    }

    private static let workTime = Duration.milliseconds(5)

    private func run(_ stores: FollowedStores) throws {
        var pace = PollingThrottle()
        var arrived: ContinuousClock.Instant?
        let written: (Int) -> Void = { mark in
            arrived = .now
            stores.tellAhead(mark)
        }
        var work: ArraySlice<Work> = []
        while true {
            let isStopping = mailbox.withLock { mailbox in
                work += mailbox.work
                mailbox.work = []
                return mailbox.isStopping
            }
            let hadWork = !work.isEmpty
            let end = ContinuousClock.now.advanced(by: Self.workTime)
            // Then the events that came meanwhile: whoever asks much must not keep others from hearing of commits.
            while isStopping || ContinuousClock.now < end, let item = work.popFirst() { item(stores) }
            if isStopping { return }
            arrived = nil
            // Work reads ahead of itself: it may have taken in the wake-up for what was left meanwhile.
            let began = ContinuousClock.now
            let notices = try source.next(timeout: hadWork ? .zero : stores.timeUntilNextLook(), written: written)
            let waited = began.duration(to: arrived ?? .now)
            let before = stores.toldCount
            stores.handle(notices)
            // What was written in a rest was written without an event.
            if notices.isEmpty, arrived == nil, stores.toldCount == before {
                pace.waited(waited)
            } else if let rest = pace.rest(
                afterWaiting: waited, isBacklogged: notices.count >= InotifySource.batch)
            {
                try stores.rest(rest)
            }
        }
    }

    /// Ends the thread once the work left so far is done; false when that takes too long.
    @discardableResult
    package func stop(within duration: Duration = .seconds(5)) -> Bool {
        mailbox.withLock { $0.isStopping = true }
        source.wake()
        defer { surveyor.stop() }
        return thread.withLock { $0.take() }?.join(within: duration) ?? true
    }
}
