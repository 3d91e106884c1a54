import GroupStore
import LinuxSystem
import Synchronization
import SystemPackage

/// Watches the store, without an agent, while the object exists. The watching thread wakes the publisher.
///
/// Each write to a watched log costs its writer time. A publisher that finds changes whenever it looks needs no watch:
/// it pauses it, unless it publishes a mirror, which must know of each write that no transaction explains.
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
    private let namesTables: Bool

    /// The time between polls of a store that can't be watched.
    private static let pollInterval = Duration.seconds(2)

    /// Throws `SystemError` if no thread can be created.
    ///
    /// - Parameter namesTables: True to tell transactions from other writes: these have no complete list of tables.
    init(_ path: FilePath, _ mailbox: PublisherMailbox, namesTables: Bool = false) throws {
        self.namesTables = namesTables
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
                    try Self.watch(path, noting: mailbox, shared, namesTables: namesTables)
                } catch {
                    let failure = Self.failure(error)
                    mailbox.post { content in
                        content.watchFailure = failure
                        (content.storeChanged, content.hasOtherWrites) = (true, true)
                    }
                    shared.changed.wait(within: Self.pollInterval)
                }
            }
        }
    }

    /// Stops watching until `resume`. The caller looks for changes itself.
    func pause() {
        if namesTables { return }
        let subscription = shared.state.withLock { state in
            state.isPaused = true
            return state.subscription.take()
        }
        subscription?.end()
    }

    /// Watches again, and first reports the store as changed: commits during the pause are unknown.
    func resume() {
        if namesTables { return }
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
        _ path: FilePath, noting mailbox: PublisherMailbox, _ shared: Shared, namesTables: Bool
    ) throws(GroupStoreError) {
        let subscription = try DirectSubscription(path, since: nil, tables: nil, namesTables: namesTables)
        let isUnwanted = shared.state.withLock { state in
            state.subscription = subscription
            return state.isResting
        }
        if isUnwanted { subscription.end() }
        while let (event, _) = try subscription.next(within: nil) {
            if case .branchChange = event { continue }
            var isTransaction = false
            if case .change(let tables) = event { isTransaction = tables.isComplete }
            mailbox.post { content in
                content.storeChanged = true
                content.hasOtherWrites = content.hasOtherWrites || !isTransaction
            }
        }
    }
}
