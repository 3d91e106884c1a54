import LinuxSystem
import Synchronization

/// The thread that runs a `FeedLoop`.
package final class FeedThread: Sendable {
    private let loop: FeedLoop
    private let thread = Mutex<SystemThread?>(nil)

    package init(_ loop: FeedLoop) { self.loop = loop }

    /// Queues work for the thread. It runs after earlier work, and not before `start`.
    package func perform(_ work: @escaping FeedLoop.Work) { loop.perform(work) }

    /// Starts the thread, and returns once `prepare` has returned there. `failed` is called on it when the source
    /// fails. Throws `SystemError`.
    package func start(
        receiver: any StoreEventReceiver, states: FollowingStates, descriptors: DescriptorBudget = .unlimited,
        log: FeedLog, prepare: @escaping @Sendable (FollowedStores) -> Void,
        failed: @escaping @Sendable (any Error) -> Void
    ) throws {
        let isPrepared = MonotonicSemaphore()
        let started = try SystemThread(name: "gs-watch") { [loop] in
            reduceTimerSlack()
            let stores = loop.makeStores(for: receiver, states: states, descriptors: descriptors, log: log)
            prepare(stores)
            isPrepared.signal()
            do {
                while try loop.step(stores) {}
            } catch {
                failed(error)
            }
            stores.releaseAll()
        }
        thread.withLock { $0 = started }
        isPrepared.wait()
    }

    /// Stops the thread once the queued work is done; false if the deadline passes first.
    @discardableResult
    package func stop(within duration: Duration = .seconds(5)) -> Bool {
        loop.stop()
        defer { loop.close() }
        return thread.withLock { $0.take() }?.join(within: duration) ?? true
    }
}
