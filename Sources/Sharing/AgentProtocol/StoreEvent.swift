/// An event that is published to a store's subscribers. Only this type encodes and decodes events: `json` and
/// `init(type:_:)`, and `ChangeLine` on the fast path. Within a process, events are passed on as values.
package enum StoreEvent: Sendable, Equatable {
    package struct Holder: Sendable, Equatable {
        package let pid: Int32
        package let program: String
        /// True if the process is in another PID namespace than the agent, where the number means another process or
        /// none.
        package let isElsewhere: Bool

        package init(pid: Int32, program: String, isElsewhere: Bool = false) {
            self.pid = pid
            self.program = program
            self.isElsewhere = isElsewhere
        }
    }

    /// A transaction was committed, and is visible to a program that opens the store now.
    case change(ChangedTables)
    /// A process has committed to files of the store that have lost their names: a history that nobody else sees. It is
    /// a change with the process's number, `branch`, on the wire.
    case branchChange(ChangedTables, pid: Int32)
    /// A legacy store is about to become this one; `waitingFor` lists the processes that still have it open.
    case relocating(waitingFor: [Holder])
    /// How far the relocation is that `relocating` announced. It has no number of its own.
    case progress(StoreProgress)
    /// The store was relocated. `from` is empty for subscribers that may not know it.
    case relocated(from: [UInt8], to: [UInt8])
    /// The store has another model version now; everything read from it before is stale. `fromModel` is nil if the
    /// former version is unknown.
    case migrated(fromModel: String?, toModel: String)
    /// The relocation announced by `relocating` ended and moved nothing; `outcome` is that of the command's summary.
    case abandoned(outcome: String, message: String)
    /// Commits to the store can be lost or hidden from now on.
    case hazard(HazardDescription)
    /// The hazard is over.
    case hazardOver(HazardDescription)
    /// Everything the subscriber knows is stale and must be read again.
    case reset(ResetReason)

    /// The reason of a reset. A later agent may have others.
    package struct ResetReason: RawRepresentable, Sendable, Hashable {
        package let rawValue: String

        package init(rawValue: String) { self.rawValue = rawValue }

        /// The subscription begins. Only a client's library says this, to its own program.
        package static var subscribed: Self { Self(rawValue: "subscribed") }
        /// The subscriber missed events that can't be sent any more.
        package static var lagged: Self { Self(rawValue: "lagged") }
        /// The token belongs to another agent or to an earlier run.
        package static var epoch: Self { Self(rawValue: "epoch") }
        /// The kernel's queue of file events overflowed.
        package static var overflow: Self { Self(rawValue: "overflow") }
        /// Another file has taken the store's name.
        package static var replaced: Self { Self(rawValue: "replaced") }
        package static var appeared: Self { Self(rawValue: "appeared") }
        package static var vanished: Self { Self(rawValue: "vanished") }
        /// The store can't be followed now: a program uses it in exclusive mode, or the agent may not read it.
        package static var unreadable: Self { Self(rawValue: "unreadable") }
        /// The store's history purged changes after the token.
        package static var historyTrimmed: Self { Self(rawValue: "history_trimmed") }
        /// The store's history may have missed changes.
        package static var historyGap: Self { Self(rawValue: "history_gap") }
        /// The store's model version has changed since the token.
        package static var migrated: Self { Self(rawValue: "migrated") }
        /// The agent's configuration no longer has the group. The store is followed again once the configuration
        /// changes.
        package static var unconfigured: Self { Self(rawValue: "unconfigured") }
    }

    /// The same event for a user who may read the store but perhaps not the places it comes from.
    package var withoutPlaces: StoreEvent {
        switch self {
        case .relocated(_, let to): .relocated(from: [], to: to)
        case .abandoned(let outcome, _):
            .abandoned(outcome: outcome, message: "the relocation moved nothing: \(outcome)")
        case .hazard(let hazard): .hazard(hazard.withoutPlaces)
        case .hazardOver(let hazard): .hazardOver(hazard.withoutPlaces)
        case .change, .branchChange, .relocating, .progress, .migrated, .reset: self
        }
    }

    private static let maxHolders = 32

    /// Returns the event's line.
    package func json(store: StoreAddress, token: String) -> JSONObject { json(store: store.bytes, token: token) }

    /// Returns the event's line.
    ///
    /// - Parameters:
    ///   - store: The bytes of the member `store`.
    ///   - rows: The changed rows, if they are sent with a change.
    package func json(store: [UInt8], token: String, rows: [JSONObject]? = nil) -> JSONObject {
        var object: JSONObject = ["type": .string(type)]
        object.setPath("store", bytes: store)
        switch self {
        case .change(let tables):
            tables.write(to: &object)
        case .branchChange(let tables, let pid):
            tables.write(to: &object)
            object["branch"] = .integer(Int64(pid))
        case .relocating(let holders):
            object["waiting_for"] = Self.json(of: holders)
        case .progress(let progress): progress.write(to: &object)
        case .relocated(let from, let to):
            if !from.isEmpty { object.setPath("from", bytes: from) }
            object.setPath("to", bytes: to)
        case .migrated(let fromModel, let toModel):
            object["from_model"] = fromModel.map { .string($0) }
            object["to_model"] = .string(toModel)
        case .abandoned(let outcome, let message):
            object["outcome"] = .string(outcome)
            object["message"] = .string(message)
        case .hazard(let hazard): hazard.write(to: &object, isOver: false)
        case .hazardOver(let hazard): hazard.write(to: &object, isOver: true)
        case .reset(let reason): object["reason"] = .string(reason.rawValue)
        }
        object["token"] = .string(token)
        if let rows { object["rows"] = .array(rows.map { .object($0) }) }
        return object
    }

    /// Parses an event's line, except for its store, token and rows. Members that a shortened line lacks are empty.
    /// Returns nil for a bookmark, and for an event of a later agent.
    package init?(type: String, _ object: JSONObject) {
        if let progress = StoreProgress.Work(rawValue: type).flatMap({ StoreProgress($0, object) }) {
            self = .progress(progress)
            return
        }
        switch type {
        case "change":
            let tables = ChangedTables(object)
            self = object.integer("branch").map { .branchChange(tables, pid: Int32(clamping: $0)) } ?? .change(tables)
        case "relocating": self = .relocating(waitingFor: object.objects("waiting_for").map(Holder.init))
        case "relocated": self = .relocated(from: object.path("from") ?? [], to: object.path("to") ?? [])
        case "migrated":
            self = .migrated(fromModel: object.string("from_model"), toModel: object.string("to_model") ?? "")
        case "abandoned":
            self = .abandoned(outcome: object.string("outcome") ?? "", message: object.string("message") ?? "")
        case "hazard": self = .hazard(HazardDescription(object))
        case "hazard_over": self = .hazardOver(HazardDescription(object))
        case "reset": self = .reset(ResetReason(rawValue: object.string("reason") ?? ""))
        default: return nil
        }
    }

    /// Returns the line of a bookmark, which isn't an event: everything up to the token was published, or isn't for
    /// this subscriber.
    package static func bookmark(store: StoreAddress, token: String) -> JSONObject {
        var object: JSONObject = ["type": "bookmark"]
        object.setStore(store)
        object["token"] = .string(token)
        return object
    }

    package static func json(of holders: [Holder]) -> JSONValue {
        .array(holders.prefix(maxHolders).map { .object($0.json) })
    }

    /// True for a commit, to the store or to a branch of it.
    package var isCommit: Bool {
        switch self {
        case .change, .branchChange: true
        case .relocating, .progress, .relocated, .migrated, .abandoned, .hazard, .hazardOver, .reset: false
        }
    }

    /// Returns one event for two commits to the same files; nil for other events.
    package func union(_ later: StoreEvent) -> StoreEvent? {
        switch (self, later) {
        case (.change(let tables), .change(let more)): .change(tables.union(more))
        case (.branchChange(let tables, let pid), .branchChange(let more, let other)) where pid == other:
            .branchChange(tables.union(more), pid: pid)
        default: nil
        }
    }

    /// The word for the kind of event on the wire.
    package var type: String {
        switch self {
        case .change, .branchChange: "change"
        case .relocating: "relocating"
        case .progress(let progress): progress.work.rawValue
        case .relocated: "relocated"
        case .migrated: "migrated"
        case .abandoned: "abandoned"
        case .hazard: "hazard"
        case .hazardOver: "hazard_over"
        case .reset: "reset"
        }
    }
}

/// A position in a store's feed, `EPOCH-N`; opaque to clients.
package struct FeedToken: Sendable, Equatable, CustomStringConvertible {
    /// The identifier of one run of an agent's feed.
    package let epoch: String
    package let number: UInt64

    package init(epoch: String, number: UInt64) {
        self.epoch = epoch
        self.number = number
    }

    /// Parses a token; returns nil if the text isn't one.
    package init?(_ text: String) {
        guard let hyphen = text.lastIndex(of: "-"), let number = UInt64(text[text.index(after: hyphen)...]) else {
            return nil
        }
        self.init(epoch: String(text[..<hyphen]), number: number)
    }

    package var description: String { "\(epoch)-\(number)" }
}

extension StoreEvent.Holder {
    package init(_ object: JSONObject) {
        self.init(
            pid: Int32(clamping: object.integer("pid") ?? 0), program: object.string("program") ?? "?",
            isElsewhere: object.bool("elsewhere") ?? false)
    }

    package var json: JSONObject {
        var object = JSONObject()
        write(to: &object)
        return object
    }

    func write(to object: inout JSONObject) {
        object["pid"] = .integer(Int64(pid))
        object["program"] = .string(program.shortened(toWireLength: 256))
        if isElsewhere { object["elsewhere"] = true }
    }
}
