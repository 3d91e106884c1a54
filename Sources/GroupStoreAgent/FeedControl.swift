import AgentProtocol
import Dispatch
import LinuxSystem
import Logging
import Synchronization

/// The feed as relocations see it. Any thread but the watch's may call it.
package final class FeedControl: RelocationFeed {
    private let watch: Watch
    private let log: Logger
    /// The watch's thread never waits, so that only a bug makes it miss this.
    private static let patience = Duration.seconds(5)

    package init(watch: Watch, log: Logger) {
        self.watch = watch
        self.log = log
    }

    /// What was committed before is told before. Each `release` wants one `resume`.
    package func release(_ store: StoreAddress) {
        let promise = Promise()
        watch.perform { stores in
            promise.fulfil { stores.release(store) }
        }
        if !promise.wait(Self.patience) {
            log.error("the feed did not let go of \(store.group)/\(String(decoding: store.name, as: UTF8.self)) in time")
        }
    }

    package func resume(_ store: StoreAddress) { watch.perform { $0.resume(store) } }

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
    private let current: Mutex<Configuration>

    package init(_ configuration: Configuration) { current = Mutex(configuration) }

    package var value: Configuration { current.withLock { $0 } }

    package func replace(with new: Configuration) { current.withLock { $0 = new } }
}
