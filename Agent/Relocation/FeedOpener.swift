import AgentProtocol
import StoreRelocation
import Synchronization
import SystemPackage

/// The feed as something that has the group's store open. It lets go when the engine asks, and takes the store again
/// when `resume` is called: together with what its subscribers are told.
final class FeedOpener: StoreOpener {
    private let feed: FeedControl
    private let store: StoreAddress?
    /// The store that is moved, where it is another group's that is followed too.
    private let source: StoreAddress?
    private let isSourceReleased = Mutex(false)
    /// Nil until it was asked; false when the feed did not come to it in time: then the engine's lease is refused, and
    /// nothing is moved.
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
