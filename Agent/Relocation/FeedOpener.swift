import AgentProtocol
import StoreRelocation
import Synchronization
import SystemPackage

/// The change feed as an opener of the group's store. It releases the store when the engine asks, and follows it again
/// on `resume`, together with the event for its subscribers.
final class FeedOpener: StoreOpener {
    private let feed: FeedControl
    private let store: StoreAddress?
    /// The store at the source, if it belongs to another group that is followed too.
    private let source: StoreAddress?
    private let isSourceReleased = Mutex(false)
    /// Nil until the engine asks; false if the feed did not release the store in time. The engine's lease is then
    /// refused, and nothing is moved.
    private let isReleased = Mutex<Bool?>(nil)

    init(feed: FeedControl, store: StoreAddress?, source: StoreAddress? = nil) {
        self.feed = feed
        self.store = store
        self.source = source
    }

    func relinquish(_ path: FilePath) {
        if let source {
            isSourceReleased.withLock { if !$0 { $0 = (try? feed.release(source)) != nil } }
        }
        guard let store else { return }
        isReleased.withLock { released in
            guard released == nil else { return }
            do throws(FeedControl.NotReleased) {
                try feed.release(store)
                released = true
            } catch {
                released = false
            }
        }
    }

    func reacquire(_ path: FilePath) {}

    func resume(announcing event: StoreEvent?) {
        if let source, isSourceReleased.withLock({ $0 }) {
            let hasLeft = if case .relocated? = event { true } else { false }
            feed.resume(source, announcing: hasLeft ? .reset(.vanished) : nil)
        }
        guard let store else { return }
        if isReleased.withLock({ $0 == true }) {
            feed.resume(store, announcing: event)
        } else if let event {
            feed.announce(event, of: store)
        }
    }
}
