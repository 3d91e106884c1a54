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
        /// True if something other than known transactions may have written it.
        var hasOtherWrites = false
        /// The tokens that followers have confirmed since the last look, by their names.
        var confirmed: [String: HistoryToken] = [:]
        var wantsSnapshot = false
        /// The number of requests that were refused or not answered.
        var refused = 0
        /// The errors that end the sessions of these numbers. Those of former sessions may come late, and must not end
        /// this one.
        var failures: [Int: NATSError] = [:]
        /// The reason why the store can't be watched.
        var watchFailure: (any ActionableError)?
    }

    private let content = Mutex(Content())
    private let arrived = MonotonicSemaphore()

    /// Changes the content, and wakes the publisher's thread.
    func post(_ change: (inout Content) -> Void) {
        content.withLock { change(&$0) }
        arrived.signal()
    }

    /// Changes the content without waking the publisher's thread.
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
