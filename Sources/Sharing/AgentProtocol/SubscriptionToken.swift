/// A subscriber's position: in an agent's feed, in the store's history, or in both, `FEED/HISTORY`; opaque to clients.
package struct SubscriptionToken: Sendable, Equatable, CustomStringConvertible {
    /// The position in the feed; nil if the token names only a history.
    package let feed: FeedToken?
    /// The history's token, valid with any agent; nil if the store keeps no history.
    package let history: String?

    package init(feed: FeedToken?, history: String?) {
        self.feed = feed
        self.history = history
    }

    /// Parses a token; returns nil if it is neither.
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

    /// The prefix of a history's tokens.
    private static let historyPrefix = "h1."

    package var description: String {
        guard let feed = feed?.description else { return history ?? "" }
        return history.map { feed + "/" + $0 } ?? feed
    }
}
