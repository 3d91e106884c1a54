import AgentProtocol
import FoundationEssentials
import StoreWatching
import LinuxSystem
import Synchronization

/// The change feed as relocations see it. Any thread but the feed thread may call it.
package final class FeedControl: Sendable {
    /// The feed thread did not release the store within the deadline.
    package struct NotReleased: Error, CustomStringConvertible {
        package let store: StoreAddress
        package var description: String { "the agent's change feed did not release the store in time" }
    }

    private let feedThread: FeedThread

    package init(feedThread: FeedThread) { self.feedThread = feedThread }

    /// Closes every descriptor that the feed has of the store, opens none until `resume`, and returns when that is
    /// done. Commits made before are published first. Each `release` needs one `resume`, unless it throws.
    package func release(_ store: StoreAddress, within duration: Duration = .seconds(5)) throws(NotReleased) {
        let promise = Promise()
        feedThread.perform { stores in
            promise.fulfill { stores.release(store) }
        }
        guard promise.wait(duration) else { throw NotReleased(store: store) }
    }

    /// Releases the stores, then calls `body` on the feed thread. Doesn't wait. Each store needs one `resume`.
    func release(_ stores: [StoreAddress], then body: @escaping @Sendable () -> Void) {
        feedThread.perform { followed in
            for store in stores { followed.release(store) }
            body()
        }
    }

    /// Follows the store again, then publishes `event`. If that doesn't say that the store is a different one now
    /// (`relocated` or `reset`), a change comes first if the store is there: it may have been written meanwhile.
    package func resume(_ store: StoreAddress, announcing event: StoreEvent? = nil) {
        feedThread.perform { $0.resume(store, announcing: event) }
    }

    /// Follows the store again after a claim. Publishes a reset if another file has its name now.
    func resumeAfterClaim(_ store: StoreAddress) { feedThread.perform { $0.resumeAfterClaim(store) } }

    /// Returns once all earlier commits were published; false if the deadline passes first.
    func catchUp(_ store: StoreAddress, within duration: Duration = .seconds(5)) -> Bool {
        let promise = Promise()
        feedThread.perform { stores in
            promise.fulfill { stores.catchUp(store) }
        }
        return promise.wait(duration)
    }

    /// Publishes the event after earlier commits; after `resume` while the store is released, except for
    /// `relocating` and progress.
    package func announce(_ event: StoreEvent, of store: StoreAddress) {
        feedThread.perform { $0.announce(event, of: store) }
    }
}

/// Work that another thread does unless the caller has stopped waiting for it.
private final class Promise: Sendable {
    private enum State { case open, done, abandoned }
    private let state = Mutex(State.open)
    private let signal = MonotonicSemaphore()

    func fulfill(_ work: () -> Void) {
        state.withLock { state in
            guard state == .open else { return }
            work()
            state = .done
        }
        signal.signal()
    }

    func wait(_ duration: Duration) -> Bool {
        if signal.wait(within: duration) { return true }
        return state.withLock { state in
            if state == .open { state = .abandoned }
            return state == .done
        }
    }
}

/// The configuration in effect.
package final class CurrentConfiguration: Sendable {
    /// The reason why the last configuration that was read was rejected.
    package struct Rejection: Sendable {
        package let message: String
        package let remedy: String
        package let at: Date
    }

    private struct State: Sendable {
        var value: Configuration
        var rejection: Rejection?
        var reloads = ReloadCounts()
    }

    /// The numbers of configurations that were read since the agent started.
    struct ReloadCounts: Sendable {
        var applied: Int64 = 0
        var rejected: Int64 = 0
    }

    private let current: Mutex<State>

    package init(_ configuration: Configuration) { current = Mutex(State(value: configuration)) }

    package var value: Configuration { current.withLock { $0.value } }

    package func replace(with new: Configuration) {
        current.withLock { state in
            state.value = new
            state.rejection = nil
            state.reloads.applied += 1
        }
    }

    /// Replaces the configuration by the same one with more groups, which were found without reading a file.
    func update(_ new: Configuration) { current.withLock { $0.value = new } }

    /// The rejection of the last configuration that was read; nil if it is in effect.
    package var rejection: Rejection? { current.withLock { $0.rejection } }

    var reloads: ReloadCounts { current.withLock { $0.reloads } }

    func reject(_ error: any Error) {
        let remedy = (error as? any ActionableError)?.remedy ?? "fix the file, then send SIGHUP again"
        current.withLock { state in
            state.rejection = Rejection(message: "\(error)", remedy: remedy, at: Date())
            state.reloads.rejected += 1
        }
    }
}
