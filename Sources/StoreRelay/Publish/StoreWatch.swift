import Dispatch
import GroupStore
import LinuxSystem
import Synchronization
import SystemPackage

/// Watches the store, without an agent, for as long as the object exists. The watching thread itself wakes the
/// publisher.
final class StoreWatch: Sendable {
    /// What the thread and the object share.
    private final class Shared: Sendable {
        let state = Mutex<(subscription: DirectSubscription?, isEnded: Bool)>((nil, false))
        let ended = DispatchSemaphore(value: 0)
    }

    private let shared = Shared()

    /// The time between polls of a store that can't be watched.
    private static let pollInterval = Duration.seconds(2)

    /// Throws `SystemError` if no thread can be created.
    init(_ path: FilePath, _ mailbox: PublisherMailbox) throws {
        _ = try SystemThread(name: "gs-store") { [shared] in
            while !shared.state.withLock({ $0.isEnded }) {
                do {
                    try Self.watch(path, mailbox, shared)
                } catch {
                    let failure = Self.failure(error)
                    mailbox.post { content in
                        content.watchFailure = failure
                        content.storeChanged = true
                    }
                }
                _ = shared.ended.wait(timeout: .now() + .nanoseconds(Int(Self.pollInterval.nanoseconds)))
            }
        }
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
        shared.ended.signal()
    }

    /// Watches until the end is requested. Throws if the store can't be watched.
    private static func watch(
        _ path: FilePath, _ mailbox: PublisherMailbox, _ shared: Shared
    ) throws(GroupStoreError) {
        let subscription = try DirectSubscription(path, since: nil, tables: nil, namesTables: false) {
            mailbox.post { $0.storeChanged = true }
        }
        let isEnded = shared.state.withLock { state in
            state.subscription = subscription
            return state.isEnded
        }
        if isEnded { subscription.end() }
        while try subscription.next(within: nil) != nil {}
    }
}
