/// Up to where a subscriber was told: in an agent's feed, in the store's history, or in both, `FEED/HISTORY`. To clients it
/// is opaque.
package struct SubscriptionToken: Sendable, Equatable, CustomStringConvertible {
    /// Nil when it is of a history alone.
    package let feed: FeedToken?
    /// A history's token; nil where the store keeps none. Good with any agent.
    package let history: String?

    package init(feed: FeedToken?, history: String?) {
        self.feed = feed
        self.history = history
    }

    /// Nil when it is neither.
    package init?(_ text: String) {
        if text.hasPrefix(Self.historyPrefix) {
            self.init(feed: nil, history: text)
            return
        }
        let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard let feed = parts.first.flatMap({ FeedToken(String($0)) }) else { return nil }
        guard parts.count == 2 else {
            self.init(feed: feed, history: nil)
            return
        }
        guard parts[1].hasPrefix(Self.historyPrefix) else { return nil }
        self.init(feed: feed, history: String(parts[1]))
    }

    /// What a history's tokens begin with.
    private static let historyPrefix = "h1."

    package var description: String {
        guard let feed = feed?.description else { return history ?? "" }
        return history.map { feed + "/" + $0 } ?? feed
    }
}
