import Dispatch
import GroupStore
import LinuxSystem
import NATSStreams
import PersistentHistory
import SystemPackage
import Synchronization

/// What the publisher's thread has to do, from the threads that wait for others.
final class PublisherMailbox: Sendable {
    struct Content {
        /// True if the store may have been written.
        var storeChanged = false
        /// What followers have confirmed since.
        var confirmed: [String: HistoryToken] = [:]
        var wantsSnapshot = false
        /// The reasons why the sessions of these numbers can't go on. Those of former ones come late.
        var failures: [Int: NATSError] = [:]
        /// The reason why the store can't be watched.
        var watchFailure: (any ActionableError)?
    }

    private let content = Mutex(Content())
    private let arrived = DispatchSemaphore(value: 0)

    func post(_ change: (inout Content) -> Void) {
        content.withLock { change(&$0) }
        arrived.signal()
    }

    /// Waits for content, at most that long, and takes it.
    func take(within limit: Duration) -> Content {
        _ = arrived.wait(timeout: .now() + .nanoseconds(Int(limit.nanoseconds)))
        while arrived.wait(timeout: .now()) == .success {}
        return content.withLock { content in
            defer { content = Content() }
            return content
        }
    }
}

/// Watches the store, without an agent, for as long as the object exists.
final class StoreWatch: Sendable {
    private let task: Task<Void, Never>

    /// The time between polls of a store that can't be watched.
    private static let pollInterval = Duration.seconds(2)

    init(_ path: FilePath, _ mailbox: PublisherMailbox) {
        // The main thread's priority would be a higher one, for which an ordinary user has no permission: libdispatch
        // complains on standard error then.
        task = Task(priority: .medium) {
            while !Task.isCancelled {
                do {
                    for try await _ in StoreChanges(of: .init(filePath: path.string), namingTables: false) {
                        mailbox.post { $0.storeChanged = true }
                    }
                } catch {
                    guard !Task.isCancelled else { return }
                    let failure = Self.failure(error)
                    mailbox.post { content in
                        content.watchFailure = failure
                        content.storeChanged = true
                    }
                }
                try? await Task.sleep(for: Self.pollInterval)
            }
        }
    }

    /// Returns what is reported of an error, whatever its type.
    static func failure(_ error: any Error) -> any ActionableError {
        error as? any ActionableError ?? RelayError.notWatched("\(error)")
    }

    deinit { task.cancel() }
}
