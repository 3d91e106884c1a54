import GroupStore
import LinuxSystem
import Synchronization
import SystemPackage

/// Watches the store, without an agent, while the object exists. The watching thread wakes the publisher.
///
/// Each write to a watched log costs its writer time. A publisher that finds changes whenever it looks needs no watch:
/// it pauses it.
final class StoreWatch: Sendable {
    private struct State {
        var subscription: DirectSubscription?
        var isPaused = false
        var isEnded = false

        /// True if nothing is to be watched now.
        var isResting: Bool { isPaused || isEnded }
    }

    /// The state that the thread and the object share.
    private final class Shared: Sendable {
        let state = Mutex(State())
        let changed = MonotonicSemaphore()
    }

    private let shared = Shared()

    /// The time between polls of a store that can't be watched.
    private static let pollInterval = Duration.seconds(2)

    /// Throws `SystemError` if no thread can be created.
    init(_ path: FilePath, _ mailbox: PublisherMailbox) throws {
        _ = try SystemThread(name: "gs-store") { [shared] in
            while true {
                let (isPaused, isEnded) = shared.state.withLock { ($0.isPaused, $0.isEnded) }
                if isEnded { return }
                if isPaused {
                    // The publisher looks by itself, and says when it doesn't any more.
                    shared.changed.wait()
                    continue
                }
                do {
                    try Self.watch(path, noting: mailbox, shared)
                } catch {
                    let failure = Self.failure(error)
                    mailbox.post { content in
                        content.watchFailure = failure
                        content.storeChanged = true
                    }
                    shared.changed.wait(within: Self.pollInterval)
                }
            }
        }
    }

    /// Stops watching until `resume`. The caller looks for changes itself.
    func pause() {
        let subscription = shared.state.withLock { state in
            state.isPaused = true
            return state.subscription.take()
        }
        subscription?.end()
    }

    /// Watches again, and first reports the store as changed: commits during the pause are unknown.
    func resume() {
        shared.state.withLock { $0.isPaused = false }
        shared.changed.signal()
    }

    /// Returns what is reported of an error, whatever its type.
    static func failure(_ error: any Error) -> any ActionableError {
        error as? any ActionableError ?? RelayError.notWatched("\(error)")
    }

    deinit {
        let subscription = shared.state.withLock { state in
            state.isEnded = true
            return state.subscription
        }
        subscription?.end()
        shared.changed.signal()
    }

    /// Watches until the watch is paused or ended. Throws if the store can't be watched.
    private static func watch(
        _ path: FilePath, noting mailbox: PublisherMailbox, _ shared: Shared
    ) throws(GroupStoreError) {
        let subscription = try DirectSubscription(path, since: nil, tables: nil, namesTables: false) {
            mailbox.post { $0.storeChanged = true }
        }
        let isUnwanted = shared.state.withLock { state in
            state.subscription = subscription
            return state.isResting
        }
        if isUnwanted { subscription.end() }
        while try subscription.next(within: nil) != nil {}
    }
}
