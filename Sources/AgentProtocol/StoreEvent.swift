/// What subscribers of a store are told.
package enum StoreEvent: Sendable, Equatable {
    package struct Holder: Sendable, Equatable {
        package let pid: Int32
        package let program: String
        /// In another PID namespace than the agent: the number means another process there, or none.
        package let isElsewhere: Bool

        package init(pid: Int32, program: String, isElsewhere: Bool = false) {
            self.pid = pid
            self.program = program
            self.isElsewhere = isElsewhere
        }
    }

    /// Committed, and to be found by who opens the store now.
    case change(ChangedTables)
    /// A legacy store is about to become this one; who still has it open.
    case relocating(waitingFor: [Holder])
    /// `from` is empty for those who may not know it.
    case relocated(from: [UInt8], to: [UInt8])
    /// The store is of another version of its model: what was known of it is stale. Without `fromModel` it was of no known
    /// version.
    case migrated(fromModel: String?, toModel: String)
    /// The relocation that `relocating` announced is over and moved nothing; `outcome` as in the command's summary.
    case abandoned(outcome: String, message: String)
    /// What the subscriber knows is stale: read anew.
    case reset(ResetReason)

    package enum ResetReason: String, Sendable {
        /// The subscriber missed events that can't be sent any more.
        case lagged
        /// The token is another agent's, or of an earlier run.
        case epoch
        /// The kernel's queue of file events overflowed.
        case overflow
        /// Another file stands at the store's name.
        case replaced
        case appeared
        case vanished
        /// The store can't be followed now: a program uses it in exclusive mode, or it may not be read.
        case unreadable
        /// Changes after the token were forgotten by the store's history.
        case historyTrimmed = "history_trimmed"
        /// Changes may have gone unrecorded by the store's history.
        case historyGap = "history_gap"
        /// The store has come to be of another version of its model since the token.
        case migrated
        /// The agent's configuration no longer has the group; it is followed again when that changes.
        case unconfigured
    }

    /// The same for a user who may read the store, and perhaps not the places that it comes from.
    package var withoutPlaces: StoreEvent {
        switch self {
        case .relocated(_, let to): .relocated(from: [], to: to)
        case .abandoned(let outcome, _):
            .abandoned(outcome: outcome, message: "the relocation moved nothing: \(outcome)")
        case .change, .relocating, .migrated, .reset: self
        }
    }

    private static let mostHolders = 32

    /// The event's line.
    package func json(store: StoreAddress, token: String) -> JSONObject {
        var object: JSONObject = ["type": .string(type)]
        object.setStore(store)
        switch self {
        case .change(let tables):
            tables.write(to: &object)
        case .relocating(let holders):
            object["waiting_for"] = Self.json(of: holders)
        case .relocated(let from, let to):
            if !from.isEmpty { object.setPath("from", bytes: from) }
            object.setPath("to", bytes: to)
        case .migrated(let fromModel, let toModel):
            object["from_model"] = fromModel.map { .string($0) }
            object["to_model"] = .string(toModel)
        case .abandoned(let outcome, let message):
            object["outcome"] = .string(outcome)
            object["message"] = .string(message)
        case .reset(let reason): object["reason"] = .string(reason.rawValue)
        }
        object["token"] = .string(token)
        return object
    }

    /// The line of what is no event: all up to the token was told, or isn't for the subscriber.
    package static func bookmark(store: StoreAddress, token: String) -> JSONObject {
        var object: JSONObject = ["type": "bookmark"]
        object.setStore(store)
        object["token"] = .string(token)
        return object
    }

    package static func json(of holders: [Holder]) -> JSONValue {
        .array(holders.prefix(mostHolders).map { .object($0.json) })
    }

    private var type: String {
        switch self {
        case .change: "change"
        case .relocating: "relocating"
        case .relocated: "relocated"
        case .migrated: "migrated"
        case .abandoned: "abandoned"
        case .reset: "reset"
        }
    }
}

/// A position in a store's feed, `EPOCH-N`. To clients it is opaque.
package struct FeedToken: Sendable, Equatable, CustomStringConvertible {
    /// One run of an agent's feed.
    package let epoch: String
    package let number: UInt64

    package init(epoch: String, number: UInt64) {
        self.epoch = epoch
        self.number = number
    }

    /// Nil when it could not have been made here.
    package init?(_ text: String) {
        guard let hyphen = text.lastIndex(of: "-"), let number = UInt64(text[text.index(after: hyphen)...]) else {
            return nil
        }
        self.init(epoch: String(text[..<hyphen]), number: number)
    }

    package var description: String { "\(epoch)-\(number)" }
}

extension StoreEvent.Holder {
    init(_ object: JSONObject) {
        self.init(
            pid: Int32(clamping: object.integer("pid") ?? 0), program: object.string("program") ?? "?",
            isElsewhere: object.bool("elsewhere") ?? false)
    }

    package var json: JSONObject {
        var object: JSONObject = ["pid": .integer(Int64(pid)), "program": .string(program)]
        if isElsewhere { object["elsewhere"] = true }
        return object
    }
}
