import AgentProtocol
import Dispatch
import GroupContainer
import LinuxSystem
import Synchronization
import SystemPackage

/// What the scheduler of relocations may ask of the feed. Any thread but the watch's may call it.
package final class FeedControl: Sendable {
    /// The thread that watches did not come to it in time.
    package struct NotReleased: Error, CustomStringConvertible {
        package let store: StoreAddress
        package var description: String { "the agent's own feed did not let go of the store in time" }
    }

    private let watch: Watch
    private let configuration: CurrentConfiguration

    package init(watch: Watch, configuration: CurrentConfiguration) {
        self.watch = watch
        self.configuration = configuration
    }

    /// Closes every descriptor that the feed has of the store, and opens none until `resume`; returns when that is
    /// done. What was committed before is told before. Each `release` wants one `resume`, unless it throws.
    package func release(_ store: StoreAddress, within duration: Duration = .seconds(5)) throws(NotReleased) {
        let isWaitedFor = Promise()
        watch.perform { stores in
            isWaitedFor.fulfil { stores.release(store) }
        }
        guard isWaitedFor.wait(duration) else { throw NotReleased(store: store) }
    }

    /// Follows the store again. `event` says what happened to it meanwhile (`relocated`, or a `reset`); without one,
    /// subscribers of a store that is there are told of a change, since somebody may have written it.
    package func resume(_ store: StoreAddress, announcing event: StoreEvent? = nil) {
        watch.perform { $0.resume(store, announcing: event) }
    }

    /// Tells the subscribers, after what was committed until now.
    package func announce(_ event: StoreEvent, of store: StoreAddress) {
        watch.perform { $0.announce(event, of: store) }
    }

    /// Whose store a path is; nil when no configured group has that directory.
    package func address(of path: FilePath) -> StoreAddress? {
        guard let name = path.lastComponent, let directory = try? Directory(path.removingLastComponent()),
            let group = configuration.value.groups.first(where: { group in
                (try? Directory(group.directory))?.identity == directory.identity
            })
        else { return nil }
        return StoreAddress(group: group.identifier.rawValue, name: name.bytes)
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
