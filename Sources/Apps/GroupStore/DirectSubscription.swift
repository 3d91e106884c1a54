import AgentProtocol
import CLinux
import DirectoryWatching
import Glibc
import LinuxSystem
import StoreWatching
import Synchronization
import SystemPackage

/// A subscription to a store's events without an agent. Events that aren't taken wait here, where many changes become
/// one.
package final class DirectSubscription: Sendable {
    private struct State {
        var waiting: [(event: StoreEvent, token: DirectToken)] = []
        var failure: GroupStoreError?
        var isEnded = false
        /// True if the present call of `next`, or the next one, returns without an event.
        var isWoken = false
        var number: Int?
    }

    private let tables: TableFilter?
    private let arriving: (@Sendable () -> Void)?
    private let state = Mutex(State())
    private let arrived = MonotonicSemaphore()

    /// Starts to follow the store. The first event is a `reset` with the reason `subscribed`, or what happened since
    /// the token.
    ///
    /// - Parameters:
    ///   - path: The absolute path of the database, which need not exist.
    ///   - tables: Leaves out changes that are known to affect only other tables.
    ///   - arriving: Called on the watching thread when an event can be taken, before `next` returns it. It mustn't
    ///     wait for anything.
    /// - Throws: ``GroupStoreError`` with `system`.
    package init(
        _ path: FilePath, since token: String?, tables: TableFilter?, namesTables: Bool,
        arriving: (@Sendable () -> Void)? = nil
    ) throws(GroupStoreError) {
        self.tables = tables
        self.arriving = arriving
        do {
            try DirectWatcher.shared.perform { watcher in
                watcher.add(self, path, since: token, namesTables: namesTables)
            }
        } catch {
            throw GroupStoreError(.system, "\(error)", remedy: "see the limits of open files and threads")
        }
    }

    /// Makes `next` return nil once, the present call or the next one, if no event waits.
    func wake() {
        state.withLock { $0.isWoken = true }
        arrived.signal()
    }

    /// Returns the next event and the position after it, or nil if none came within the time. Throws the error that
    /// ended the subscription.
    package func next(
        within time: Duration?
    ) throws(GroupStoreError) -> (event: StoreEvent, token: DirectToken)? {
        let deadline = time.map(Deadline.init(after:)) ?? .none
        while true {
            let (next, failure, isOver) = state.withLock { state in
                defer { state.isWoken = false }
                return (
                    state.waiting.isEmpty ? nil : state.waiting.removeFirst(), state.failure,
                    state.isEnded || state.isWoken
                )
            }
            if let next { return next }
            if let failure { throw failure }
            if isOver { return nil }
            guard let remaining = deadline.remaining else {
                arrived.wait()
                continue
            }
            guard remaining > .zero else { return nil }
            arrived.wait(within: remaining)
        }
    }

    /// Makes `next` return nil, and stops following the store.
    package func end() {
        let number = state.withLock { state in
            state.isEnded = true
            return state.number
        }
        arrived.signal()
        guard let number else { return }
        try? DirectWatcher.shared.perform { $0.remove(number, of: self) }
    }

    // MARK: The watching thread

    /// Returns false if the subscription has ended meanwhile.
    fileprivate func begin(_ number: Int) -> Bool {
        state.withLock { state in
            state.number = number
            return !state.isEnded
        }
    }

    fileprivate func fail(_ error: any Error) {
        let advice = (error as? any ActionableError)?.remedy ?? "see the limits of open files and inotify watches"
        state.withLock { $0.failure = GroupStoreError(.system, "\(error)", remedy: advice) }
        arriving?()
        arrived.signal()
    }

    fileprivate func receive(_ event: StoreEvent, token: DirectToken) {
        switch event {
        case .change(let changed), .branchChange(let changed, pid: _):
            if let tables, !tables.admits(changed) { return }
        case .relocating, .progress, .relocated, .migrated, .abandoned, .hazard, .hazardOver, .reset: break
        }
        state.withLock { state in
            if case .reset = event { state.waiting = [] }
            var event = event
            // Commits to the store and to a branch may alternate.
            if let index = state.waiting.lastIndex(where: { $0.event.union(event) != nil }),
                state.waiting[index...].allSatisfy(\.event.isCommit)
            {
                event = state.waiting.remove(at: index).event.union(event) ?? event
            }
            state.waiting.append((event, token))
        }
        arriving?()
        arrived.signal()
    }
}

/// The thread that follows this process's directly watched stores, while there are any.
private final class DirectWatcher: Sendable {
    static let shared = DirectWatcher()

    private let run = Mutex<Run?>(nil)

    /// Has the watching thread do the work, and starts it if it isn't running. Throws `SystemError`.
    func perform(_ work: @escaping @Sendable (Run) -> Void) throws {
        try run.withLock { current in
            if let run = current {
                if run.perform(work) { return }
                run.closeWaker()
                current = nil
            }
            let run = try Run()
            current = run
            _ = run.perform(work)
        }
    }

    /// One run of the thread.
    ///
    /// The thread has a table of descriptors of its own: if a process closes any descriptor of a database, it loses all
    /// of its record locks on it, and the app's SQLite relies on these (https://sqlite.org/howtocorrupt.html, §2.2).
    /// All that owns descriptors is made and released on the thread.
    final class Run: Sendable {
        private struct Mailbox {
            var items: [@Sendable (Run) -> Void] = []
            /// True once the thread accepts no more.
            var isOver = false
        }

        private let mailbox = Mutex(Mailbox())
        /// Open in both tables under the same number.
        private let waker: CInt
        // Only the watching thread uses these.
        nonisolated(unsafe) private var feed: DirectFeed?
        nonisolated(unsafe) private var subscriptions: [Int: DirectSubscription] = [:]
        /// The subscriptions that get events: those whose first event was delivered.
        nonisolated(unsafe) private var ready: Set<Int> = []

        init() throws {
            waker = try retrying("eventfd") { gs_eventfd() }
            do {
                _ = try SystemThread(name: "gs-watch") { [self] in run() }
            } catch {
                close(waker)
                throw error
            }
        }

        /// Closes the waker in the callers' table. No call of `perform` may follow.
        func closeWaker() { close(waker) }

        /// Queues work. Returns false if the thread is about to end.
        func perform(_ item: @escaping @Sendable (Run) -> Void) -> Bool {
            let isQueued = mailbox.withLock { mailbox in
                if !mailbox.isOver { mailbox.items.append(item) }
                return !mailbox.isOver
            }
            var one: UInt64 = 1
            if isQueued { _ = write(waker, &one, 8) }
            return isQueued
        }

        private func run() {
            do {
                try retrying("close_range") { gs_unshare_descriptors(waker) }
                try follow(FeedLoop(source: InotifySource(SystemInotify(waker: waker))))
            } catch {
                let items = mailbox.withLock { mailbox in
                    mailbox.isOver = true
                    return mailbox.items
                }
                failure = error
                for item in items { item(self) }
                for subscription in subscriptions.values { subscription.fail(error) }
            }
            feed?.close()
            feed = nil
            subscriptions = [:]
        }

        private func follow(_ loop: FeedLoop) throws {
            defer { loop.close() }
            let feed = DirectFeed(loop: loop, log: .none) { [unowned self] number, event, token in
                if ready.contains(number) { subscriptions[number]?.receive(event, token: token) }
            }
            self.feed = feed
            while work() { _ = try feed.step(loop) }
            feed.close()
            self.feed = nil
        }

        /// Does the queued work. Returns false, and accepts no more, if nobody needs the thread any longer.
        private func work() -> Bool {
            while true {
                let items = mailbox.withLock { mailbox -> [@Sendable (Run) -> Void] in
                    defer { mailbox.items = [] }
                    mailbox.isOver = mailbox.items.isEmpty && subscriptions.isEmpty && hasWorked
                    return mailbox.items
                }
                if items.isEmpty { return !subscriptions.isEmpty || !hasWorked }
                hasWorked = true
                for item in items { item(self) }
            }
        }

        // Only the watching thread uses these, too.
        /// The error that ended the thread.
        nonisolated(unsafe) private var failure: (any Error)?
        /// True once a subscription was added.
        nonisolated(unsafe) private var hasWorked = false

        func add(_ subscription: DirectSubscription, _ path: FilePath, since token: String?, namesTables: Bool) {
            guard let feed else { return subscription.fail(failure ?? SystemError("close_range", .notSupported)) }
            do {
                let numbers = try feed.add([path], wantsTables: namesTables) { [unowned self] numbers in
                    for number in numbers {
                        ready.insert(number)
                        begin(subscription, number, since: token)
                    }
                }
                for number in numbers {
                    subscriptions[number] = subscription
                    if !subscription.begin(number) { remove(number, of: subscription) }
                }
            } catch {
                subscription.fail(error)
            }
        }

        private func begin(_ subscription: DirectSubscription, _ number: Int, since token: String?) {
            guard let now = feed?.token(of: number) else { return }
            guard let token else {
                return subscription.receive(.reset(.subscribed), token: now)
            }
            guard let former = DirectToken(token) else {
                return subscription.receive(.reset(.epoch), token: now)
            }
            if let event = former.event(until: now) { subscription.receive(event, token: now) }
        }

        /// Removes a subscription, unless the number is another's: each run of the thread counts anew, and a
        /// subscription of an earlier run may end in this one.
        func remove(_ number: Int, of subscription: DirectSubscription) {
            guard subscriptions[number] === subscription else { return }
            subscriptions[number] = nil
            ready.remove(number)
            feed?.remove([number])
        }
    }
}
