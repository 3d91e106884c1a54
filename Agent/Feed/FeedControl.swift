import AgentProtocol
import Dispatch
import FoundationEssentials
import LinuxSystem
import Synchronization

/// The feed as relocations see it. Any thread but the watch's may call it.
package final class FeedControl: Sendable {
    /// The thread that watches did not come to it in time.
    package struct NotReleased: Error, CustomStringConvertible {
        package let store: StoreAddress
        package var description: String { "the agent's own feed did not let go of the store in time" }
    }

    private let watch: FeedThread

    package init(watch: FeedThread) { self.watch = watch }

    /// Closes every descriptor that the feed has of the store, and opens none until `resume`; returns when that is
    /// done. What was committed before is told before. Each `release` wants one `resume`, unless it throws.
    package func release(_ store: StoreAddress, within duration: Duration = .seconds(5)) throws(NotReleased) {
        let promise = Promise()
        watch.perform { stores in
            promise.fulfil { stores.release(store) }
        }
        guard promise.wait(duration) else { throw NotReleased(store: store) }
    }

    /// Follows the store again, then tells `event`. Where that doesn't say that the store is another one now
    /// (`relocated` or `reset`), a change comes first if it is there: somebody may have written it meanwhile.
    package func resume(_ store: StoreAddress, announcing event: StoreEvent? = nil) {
        watch.perform { $0.resume(store, announcing: event) }
    }

    /// Returns when all that was committed before was told; false when that takes too long.
    func catchUp(_ store: StoreAddress, within duration: Duration = .seconds(5)) -> Bool {
        let promise = Promise()
        watch.perform { stores in
            promise.fulfil { stores.catchUp(store) }
        }
        return promise.wait(duration)
    }

    /// Tells the subscribers, after what was committed until now; after `resume` while the store is released, except
    /// for `relocating`.
    package func announce(_ event: StoreEvent, of store: StoreAddress) {
        watch.perform { $0.announce(event, of: store) }
    }
}

/// Work that another thread does unless nobody waits for it any more.
private final class Promise: Sendable {
    private enum State { case open, done, abandoned }
    private let state = Mutex(State.open)
    private let signal = DispatchSemaphore(value: 0)

    func fulfil(_ work: () -> Void) {
        state.withLock { state in
            guard state == .open else { return }
            work()
            state = .done
        }
        signal.signal()
    }

    func wait(_ duration: Duration) -> Bool {
        if signal.wait(timeout: .now() + .nanoseconds(Int(duration.nanoseconds))) == .success { return true }
        return state.withLock { state in
            if state == .open { state = .abandoned }
            return state == .done
        }
    }
}

/// The configuration that holds now.
package final class CurrentConfiguration: Sendable {
    /// Why the last one that was read did not replace it.
    package struct Rejection: Sendable {
        package let message: String
        package let remedy: String
        package let at: Date
    }

    private let current: Mutex<(value: Configuration, rejection: Rejection?)>

    package init(_ configuration: Configuration) { current = Mutex((configuration, nil)) }

    package var value: Configuration { current.withLock { $0.value } }

    package func replace(with new: Configuration) { current.withLock { $0 = (new, nil) } }

    /// Nil when the last one that was read holds.
    package var rejection: Rejection? { current.withLock { $0.rejection } }

    func reject(_ message: String, remedy: String) {
        current.withLock { $0.rejection = Rejection(message: message, remedy: remedy, at: Date()) }
    }
}
