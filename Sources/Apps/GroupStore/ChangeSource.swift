import AgentProtocol
import LinuxSystem
import SystemPackage

/// Where a sequence of changes comes from: an agent, this process itself, or the one while there isn't the other.
struct ChangeSource: Sendable {
    /// The subscription at the agent; nil if no agent is asked.
    let subscription: SubscribeOperation?
    let socket: FilePath?
    /// The store whose presentations in this process are waited for; nil for none.
    let store: SharedStore?
    /// The database to watch if there is no agent; nil if only an agent can serve the subscription.
    let path: FilePath?
    let since: String?
    let tables: TableFilter?
    let namesTables: Bool

    /// A source of an agent's events. If `store` isn't nil and needs no history, this process replaces a missing agent.
    init(subscription: SubscribeOperation, socket: FilePath?, store: SharedStore?) {
        self.subscription = subscription
        self.socket = socket
        self.store = store
        let needsAgent =
            subscription.wantsRows || subscription.wantsDurableTokens
            || subscription.filter != HistoryOperation.Filter()
        path = needsAgent ? nil : store.map { FilePath($0.groupURL.path) }
        since = subscription.since
        tables = subscription.tables
        namesTables = subscription.wantsDetail
    }

    /// A source without an agent.
    init(path: FilePath, since: String?, tables: TableFilter?, namesTables: Bool) {
        (subscription, socket, store) = (nil, nil, nil)
        self.path = path
        self.since = since
        self.tables = tables
        self.namesTables = namesTables
    }
}
