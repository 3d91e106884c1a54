import AgentProtocol
import Dispatch
import FoundationEssentials
import GroupContainers
import LinuxSystem
import Synchronization
import SystemPackage

/// The changes of a store, as an asynchronous sequence: those of a ``SharedStore``, from
/// ``SharedStore/changes(since:tables:namingTables:filter:includingRows:durably:reportingProgress:)``, or those of any
/// SQLite database.
///
///     for try await change in StoreChanges(of: URL(filePath: "/srv/notes/Notes.sqlite")) {
///         if change.changesContent { reload(change.tables) }
///     }
///
/// The sequence needs no agent. Without one, this process watches the files itself.
///
/// A slow subscriber receives one change for many, or a ``StoreChange/reset(reason:token:)``; it never misses that
/// something changed. The sequence ends when the iterating task is cancelled.
public struct StoreChanges: AsyncSequence, Sendable {
    /// The sequence yields changes.
    public typealias Element = StoreChange

    private let source: ChangeSource

    init(subscription: SubscribeOperation, socket: FilePath?, store: SharedStore? = nil) {
        source = ChangeSource(subscription: subscription, socket: socket, store: store)
    }

    /// Returns the changes of the database at a path, found by this process itself, without an agent.
    ///
    /// Without a token, the first element is a `reset` with the reason `subscribed`: a program that reads the store
    /// after that misses nothing. With one, the first is a change if the store may have been written since; what was
    /// changed isn't known then.
    ///
    ///     for try await change in StoreChanges(of: URL(filePath: "/srv/notes/Notes.sqlite")) {
    ///         print(change.tables ?? ["unknown tables"])
    ///     }
    ///
    /// - Parameters:
    ///   - url: The database. It need not exist yet; it may be replaced, deleted and made again.
    ///   - token: The position after which to begin, from ``StoreChange/token``.
    ///   - tables: Leaves out changes that are known to affect only other tables.
    ///   - namingTables: If false, changes don't name their tables. Naming them costs one read of the whole store.
    public init(of url: URL, since token: String? = nil, tables: [String]? = nil, namingTables: Bool = true) {
        source = ChangeSource(
            path: FilePath(url.absoluteURL.path), since: token, tables: tables.map { TableFilter($0) },
            namesTables: namingTables)
    }

    /// Creates an iterator. Each iterator has its own subscription.
    public func makeAsyncIterator() -> Iterator { Iterator(ChangeReader(source)) }

    /// The iterator of ``StoreChanges``.
    public struct Iterator: AsyncIteratorProtocol {
        private let reader: ChangeReader

        init(_ reader: ChangeReader) { self.reader = reader }

        /// Returns the next change, or nil after cancellation.
        ///
        /// - Throws: ``GroupStoreError`` with `refused` if the agent refuses the subscription, except for a group that
        ///   it doesn't serve (``StoreChange/notServed(message:)``); `system` if no thread can be created, or if the
        ///   files can't be watched. The sequence ends then.
        public mutating func next() async throws -> StoreChange? { try await reader.next() }
    }
}

extension SharedStore {
    /// Returns the store's changes since a token.
    ///
    ///     for try await change in store.changes(since: savedToken) {
    ///         if let token = change.token { save(token) }
    ///         reload()
    ///     }
    ///
    /// With a token, the changes since then come first. Without one, the first element is a `reset` with the reason
    /// `subscribed`: a program that reads the store after that misses nothing. A lost connection is reopened, and the
    /// sequence continues where it was.
    ///
    /// If there is no agent, the first element is `disconnected`. This process then watches the group container itself:
    /// a `reset` comes next, and changes follow. It learns of no relocation in advance, and looks for an agent from
    /// time to time.
    ///
    /// `filter`, `includingRows` and `durably` need an agent, and a store that keeps a history or whose rows the agent
    /// reads from its pages (`rows: true` in its configuration), without authors and entities. Each of them delays
    /// every change by some milliseconds, until the agent has read the history.
    ///
    /// - Parameters:
    ///   - token: The position after which to begin, from ``StoreChange/token``.
    ///   - tables: Leaves out changes that are known to affect only other tables; nil for `filter.tables`.
    ///   - namingTables: If false for all subscribers, the agent doesn't determine which tables changed, and publishes
    ///     sooner.
    ///   - filter: Leaves out changes whose rows it all leaves out. A change whose rows the history doesn't know is
    ///     delivered.
    ///   - includingRows: Adds the changed rows to a change if they are few.
    ///   - durably: Makes tokens valid after a restart of the agent, and with another agent.
    ///   - reportingProgress: Also delivers ``StoreChange/progress(_:token:)``, if an agent relocates or migrates the
    ///     store.
    ///
    /// - Important: Pass false for `namingTables` only without a filter, `tables` or `includingRows`; the agent refuses
    ///   the combination.
    public func changes(
        since token: String? = nil, tables: [String]? = nil, namingTables: Bool = true,
        filter: RowFilter = RowFilter(), includingRows: Bool = false, durably: Bool = false,
        reportingProgress: Bool = false
    ) -> StoreChanges {
        let names = tables ?? filter.tables
        var subscription = SubscribeOperation(address, since: token, tables: names.map { TableFilter($0) })
        subscription.filter = HistoryOperation.Filter(filter)
        subscription.wantsDetail = namingTables
        subscription.wantsRows = includingRows
        subscription.wantsDurableTokens = durably
        subscription.wantsProgress = reportingProgress
        return StoreChanges(
            subscription: subscription, socket: AgentSocket.path(environment: AgentRegistries.environment), store: self)
    }
}
