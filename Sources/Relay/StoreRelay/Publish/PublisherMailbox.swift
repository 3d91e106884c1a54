import GroupStore
import LinuxSystem
import NATSStreams
import PersistentHistory
import SystemPackage
import Synchronization

/// The work for the publisher's thread, from the threads that wait for the store and for followers.
final class PublisherMailbox: Sendable {
    struct Content {
        /// True if the store may have been written.
        var storeChanged = false
        /// The tokens that followers have confirmed since the last look, by their names.
        var confirmed: [String: HistoryToken] = [:]
        var wantsSnapshot = false
        /// The requests that got no answer, or no other than a refusal.
        var refused = 0
        /// The reasons why the sessions of these numbers can't go on. Those of former ones come late.
        var failures: [Int: NATSError] = [:]
        /// The reason why the store can't be watched.
        var watchFailure: (any ActionableError)?
    }

    private let content = Mutex(Content())
    private let arrived = MonotonicSemaphore()

    func post(_ change: (inout Content) -> Void) {
        content.withLock { change(&$0) }
        arrived.signal()
    }

    /// Adds content that can wait for other content.
    func note(_ change: (inout Content) -> Void) { content.withLock { change(&$0) } }

    /// Waits for content, at most that long, and takes it.
    func take(within limit: Duration) -> Content {
        arrived.wait(within: limit)
        while arrived.wait(within: .zero) {}
        return content.withLock { content in
            defer { content = Content() }
            return content
        }
    }
}
