import AgentProtocol
import DirectoryWatching
import LinuxSystem
import Synchronization

/// The loop that waits for file events and does all work on followed stores, in order. One thread runs it; other
/// threads queue work for it.
package final class FeedLoop: Sendable {
    package typealias Work = @Sendable (FollowedStores) -> Void

    private struct Mailbox {
        var work: [Work] = []
        var isStopping = false
    }

    /// The thread that runs the loop calls it, except for `wake`, which any thread may call.
    nonisolated(unsafe) private let source: any EventSource
    private let mailbox = Mutex(Mailbox())
    /// Reads whole stores for their page maps.
    let scanner = WorkerThread(name: "gs-survey")
    /// Looks for hazards.
    let lookout = WorkerThread(name: "gs-hazards")
    /// Reads the logs of branches, which don't wait for looks at all processes.
    let branchReader = WorkerThread(name: "gs-branches")

    package init(source: any EventSource) { self.source = source }

    /// Returns the stores of this loop, none yet. Only the thread that runs the loop may use them.
    package func makeStores(
        for receiver: any StoreEventReceiver, states: FollowingStates, descriptors: DescriptorBudget, log: FeedLog
    ) -> FollowedStores {
        FollowedStores(
            source: source, receiver: receiver, loop: self, states: states, descriptors: descriptors, log: log)
    }

    /// Queues work for the thread that runs the loop.
    package func perform(_ work: @escaping Work) {
        mailbox.withLock { $0.work.append(work) }
        source.wake()
    }

    /// Makes `step` return.
    package func wake() { source.wake() }

    /// Ends the loop once the queued work is done.
    package func stop() {
        mailbox.withLock { $0.isStopping = true }
        source.wake()
    }

    /// Ends the threads that work for the loop. Call it when no thread runs the loop any more.
    package func close() {
        scanner.stop()
        lookout.stop()
        branchReader.stop()
    }

    private static let workSlice = Duration.milliseconds(5)

    /// Does the queued work, waits for file events and handles them. `timeout` limits the wait (nil: no limit), and
    /// so do scheduled polls. Returns false once the loop is stopped. Throws if the source fails.
    package func step(_ stores: FollowedStores, timeout: Duration? = nil) throws -> Bool {
        let hadWork = hasWork
        if hadWork, !doWork(stores) { return false }
        var arrived: ContinuousClock.Instant?
        // Work reads events itself, and may have read the wake-up for work queued meanwhile.
        let began = ContinuousClock.now
        let limit = hadWork ? .zero : [timeout, stores.timeUntilNextPoll()].compactMap(\.self).min()
        let notices = try source.next(timeout: limit) {
            if stores.publishExpectedCommit() { arrived = .now }
        } onFastPath: { index in
            arrived = .now
            stores.publishFastPath(index)
        }
        let waited = began.duration(to: arrived ?? .now)
        let before = stores.publishedCount
        stores.handle(notices)
        // Writes during a suspension raise no event.
        if notices.isEmpty, arrived == nil, stores.publishedCount == before {
            stores.throttle.recordIdleRound(waited)
        } else if let pause = stores.throttle.pause(
            afterWaiting: waited, isBacklogged: notices.count >= InotifySource.batch)
        {
            try stores.suspendModifyEvents(for: pause)
        }
        return true
    }

    private var hasWork: Bool { mailbox.withLock { !$0.work.isEmpty || $0.isStopping } }

    /// Does the queued work for a while; then the events that came meanwhile have their turn, so that a client with
    /// many requests doesn't delay the reporting of commits. Returns false if the loop is stopped and all work is done.
    private func doWork(_ stores: FollowedStores) -> Bool {
        let end = ContinuousClock.now.advanced(by: Self.workSlice)
        while true {
            let (work, isStopping) = mailbox.withLock { mailbox in
                defer { mailbox.work = [] }
                return (mailbox.work, mailbox.isStopping)
            }
            if work.isEmpty { return !isStopping }
            for (index, item) in work.enumerated() {
                item(stores)
                guard !isStopping, ContinuousClock.now >= end else { continue }
                mailbox.withLock { $0.work.insert(contentsOf: work[(index + 1)...], at: 0) }
                return true
            }
        }
    }
}
