import AgentProtocol
import DirectoryWatching
import Dispatch
import LinuxSystem
import Logging
import Synchronization

/// The thread that waits for file events and does all work on followed stores, in order. Other threads queue work for
/// it.
package final class FeedThread: Sendable {
    typealias Work = @Sendable (FollowedStores) -> Void

    private struct Mailbox {
        var work: [Work] = []
        var isStopping = false
    }

    /// Once the thread runs, only that thread calls the source, except for `wake`, which any thread may call.
    nonisolated(unsafe) private let source: any EventSource
    private let mailbox = Mutex(Mailbox())
    private let thread = Mutex<SystemThread?>(nil)
    private let scanner = PageMapScanner()
    private let descriptors: DescriptorBudget
    private let log: Logger

    package init(source: any EventSource, descriptors: DescriptorBudget = .unlimited, log: Logger) {
        self.source = source
        self.descriptors = descriptors
        self.log = log
    }

    /// Queues work for the thread. It runs after earlier work, and not before `start`.
    func perform(_ work: @escaping Work) {
        mailbox.withLock { $0.work.append(work) }
        source.wake()
    }

    /// Starts the thread, and returns once all configured stores are followed. `failed` is called on it when the source
    /// fails.
    package func start(
        configuration: Configuration, publisher: Publisher, scheduler: (any RelocationScheduling)?,
        states: FollowingStates,
        onEvent: @escaping @Sendable (StoreEvent, StoreAddress) -> Void = { _, _ in },
        failed: @escaping @Sendable (any Error) -> Void
    ) throws {
        let isConfigured = DispatchSemaphore(value: 0)
        let started = try SystemThread(name: "gs-watch") { [self] in
            reduceTimerSlack()
            let stores = FollowedStores(
                source: source, publisher: publisher, scanner: scanner, scheduler: scheduler, states: states,
                descriptors: descriptors, log: log, onEvent: onEvent,
                perform: { [weak self] work in self?.perform(work) })
            stores.configure(configuration)
            isConfigured.signal()
            do { try run(stores) } catch { failed(error) }
            stores.releaseAll()
        }
        thread.withLock { $0 = started }
        isConfigured.wait()
    }

    private static let workSlice = Duration.milliseconds(5)

    private func run(_ stores: FollowedStores) throws {
        var throttle = PollingThrottle()
        var arrived: ContinuousClock.Instant?
        let written: (Int) -> Void = { index in
            arrived = .now
            stores.publishFastPath(index)
        }
        var work: ArraySlice<Work> = []
        while true {
            let isStopping = mailbox.withLock { mailbox in
                work += mailbox.work
                mailbox.work = []
                return mailbox.isStopping
            }
            let hadWork = !work.isEmpty
            let end = ContinuousClock.now.advanced(by: Self.workSlice)
            // Then the events that came meanwhile: a client with many requests must not delay the reporting of commits.
            while isStopping || ContinuousClock.now < end, let item = work.popFirst() { item(stores) }
            if isStopping { return }
            arrived = nil
            // Work reads events itself, and may have read the wake-up for work queued meanwhile.
            let began = ContinuousClock.now
            let notices = try source.next(timeout: hadWork ? .zero : stores.timeUntilNextPoll(), onFastPath: written)
            let waited = began.duration(to: arrived ?? .now)
            let before = stores.publishedCount
            stores.handle(notices)
            // Writes during a suspension raise no event.
            if notices.isEmpty, arrived == nil, stores.publishedCount == before {
                throttle.recordIdleRound(waited)
            } else if let pause = throttle.pause(
                afterWaiting: waited, isBacklogged: notices.count >= InotifySource.batch)
            {
                try stores.suspendModifyEvents(for: pause)
            }
        }
    }

    /// Stops the thread once the queued work is done; false if the deadline passes first.
    @discardableResult
    package func stop(within duration: Duration = .seconds(5)) -> Bool {
        mailbox.withLock { $0.isStopping = true }
        source.wake()
        defer { scanner.stop() }
        return thread.withLock { $0.take() }?.join(within: duration) ?? true
    }
}
