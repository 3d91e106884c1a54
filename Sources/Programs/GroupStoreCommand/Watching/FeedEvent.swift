import AgentProtocol
import GroupStoreAgent
import LinuxSystem
import StoreWatching
import SystemPackage

/// A store that is watched.
final class WatchedStore {
    /// The store in the lines for people.
    let name: String
    /// The member `store` of the lines for programs.
    let bytes: [UInt8]
    /// The place of the database.
    var path: FilePath
    /// The position up to which all events were received.
    var token: String {
        get { position?.description ?? text }
        set { (text, position) = (newValue, nil) }
    }
    /// The same of a store that this process follows; nil if an agent does. Its text is made when it is needed.
    var position: DirectToken?
    private var text: String
    /// The position after the last event that was told.
    var told: String
    /// True if the agent reads the store's history for this subscription.
    let hasHistory: Bool

    init(name: String, bytes: [UInt8], path: FilePath, token: String, hasHistory: Bool = false) {
        self.hasHistory = hasHistory
        self.name = name
        self.bytes = bytes
        self.path = path
        text = token
        told = token
    }
}

/// The events of watched stores, from an agent or from the kernel.
protocol WatchedFeed: AnyObject {
    var stores: [WatchedStore] { get }
    /// The first line of each store under `--json`.
    var openingType: String { get }
    /// Waits for events and passes each to `body` as soon as it is known. Returns false if none came before the
    /// deadline. Throws the error of `body`, `AgentConnectionError`, and the errors of the source.
    func receive(until deadline: Deadline, _ body: (FeedEvent) throws -> Void) throws -> Bool
}

/// An event of a watched store.
struct FeedEvent {
    private enum Content {
        /// The event is nil for a bookmark, and for one of a later agent.
        case received(type: String, StoreEvent?, JSONObject)
        case found(StoreEvent, DirectToken)
        /// The token is the log's of a shadow.
        case told(StoreEvent, String)
        case advanced(String)
    }

    let store: WatchedStore
    private let content: Content
    /// The event's line, if it was encoded already.
    let line: [UInt8]?

    /// Creates an event that an agent has sent.
    init(_ store: WatchedStore, type: String, object: JSONObject) {
        self.store = store
        content = .received(type: type, StoreEvent(type: type, object), object)
        line = nil
    }

    /// Creates an event that this process has found.
    init(_ store: WatchedStore, _ event: StoreEvent, _ token: DirectToken, line: [UInt8]? = nil) {
        self.store = store
        content = .found(event, token)
        self.line = line
    }

    /// Creates an event of a store whose rows this process tells from its pages.
    ///
    /// - Parameter line: Its line, behind those of its rows that weren't written yet.
    init(_ store: WatchedStore, _ event: StoreEvent, token: String, line: [UInt8]? = nil) {
        self.store = store
        content = .told(event, token)
        self.line = line
    }

    /// Creates the bookmark of a store whose rows this process tells from its pages.
    init(_ store: WatchedStore, bookmark token: String) {
        self.store = store
        content = .advanced(token)
        line = nil
    }

    /// Returns the event with another position after it.
    func with(token: String) -> FeedEvent {
        guard case .received(let type, _, var object) = content, object.string("token") != token else { return self }
        object["token"] = .string(token)
        return FeedEvent(store, type: type, object: object)
    }

    /// True if this process tells the rows from the store's pages.
    var isTold: Bool {
        switch content {
        case .told, .advanced: true
        case .received, .found: false
        }
    }

    /// The event; nil for a bookmark, and for an event of a later agent.
    var event: StoreEvent? {
        switch content {
        case .received(_, let event, _): event
        case .found(let event, _), .told(let event, _): event
        case .advanced: nil
        }
    }

    /// The position after it; nil for an event of an agent that has none.
    var token: String? {
        switch content {
        case .received(_, _, let object): object.string("token")
        case .found(_, let token): token.description
        case .told(_, let token), .advanced(let token): token
        }
    }

    var type: String {
        switch content {
        case .received(let type, _, _): type
        case .found(let event, _), .told(let event, _): event.type
        case .advanced: "bookmark"
        }
    }

    /// The event as on the wire.
    var object: JSONObject {
        switch content {
        case .received(_, _, let object): object
        case .found(let event, let token): event.json(store: store.bytes, token: token.description)
        case .told(let event, let token): event.json(store: store.bytes, token: token)
        case .advanced(let token): ["type": "bookmark", "token": .string(token)]
        }
    }

    /// The changed tables; nil for other events.
    var tables: ChangedTables? { if case .change(let tables)? = event { tables } else { nil } }

    /// The process that has committed to files which only it has; nil for other events.
    var branch: Int32? { if case .branchChange(_, let pid)? = event { pid } else { nil } }

    /// True if the store's content may have changed; the other events only report progress.
    var requiresReading: Bool {
        switch event {
        case .hazard(let hazard): !hazard.isWarning
        case .relocating, .progress, .abandoned, .hazardOver: false
        case .change, .branchChange, .relocated, .migrated, .reset, nil: true
        }
    }

    /// True for an event that only tells how far a relocation or migration is. It doesn't advance the position.
    var isProgress: Bool { if case .progress? = event { true } else { false } }

    /// True for a bookmark, which only advances the subscription's position.
    var isBookmark: Bool { type == "bookmark" }

    /// The text that follows the event's type for people, or nil. The token is for programs: `--json` has it.
    var words: String? {
        switch event {
        case .change(let tables): Self.words(tables)
        case .branchChange(let tables, let pid): Self.words(tables) + "  branch of pid \(pid)"
        case .progress(let progress): AgentStatus.words(progress)
        case .reset(let reason): reason.rawValue
        case .abandoned(let outcome, _): RelocationSentence.words(forOutcome: outcome)
        case .relocated(_, let to): FilePath(bytes: to).map { "to \(PrintablePath($0))" }
        case .hazard(let hazard): "\(hazard.code)  \(hazard.message)" + (hazard.hint.isEmpty ? "" : " (\(hazard.hint))")
        case .hazardOver(let hazard):
            hazard.holder.pid == 0
                ? hazard.code : "\(hazard.code)  \(hazard.holder.program) (pid \(hazard.holder.pid))"
        case .relocating, .migrated, nil: nil
        }
    }

    /// Returns the names of changed tables, as far as they are known.
    private static func words(_ tables: ChangedTables) -> String {
        let names = (tables.names ?? []).map {
            $0.isEmpty || $0.contains { " ,\"".contains($0) } ? "\"\($0)\"" : $0
        }
        if names.isEmpty { return tables.isComplete ? "no table" : "unknown tables" }
        return names.joined(separator: ",") + (tables.isComplete ? "" : ",…")
    }
}
