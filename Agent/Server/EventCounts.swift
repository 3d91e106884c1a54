import AgentProtocol

/// The numbers of a store's events since the agent started. They only grow, so that the difference of two answers is
/// what happened between them.
struct EventCounts: Equatable {
    private(set) var changes: UInt64 = 0
    /// The resets, by their reasons.
    private(set) var resets: [String: UInt64] = [:]
    /// The ends of relocations, by their outcomes.
    private(set) var relocations: [String: UInt64] = [:]
    /// The hazards, by their codes.
    private(set) var hazards: [String: UInt64] = [:]
    /// How subscriptions that are over have kept up.
    private var ended = LagCounts()

    mutating func add(_ event: StoreEvent) {
        switch event {
        case .change, .branchChange: changes += 1
        case .reset(let reason): resets[reason.rawValue, default: 0] += 1
        case .relocated: relocations["relocated", default: 0] += 1
        case .migrated: relocations["migrated", default: 0] += 1
        case .abandoned(let outcome, _): relocations[outcome, default: 0] += 1
        case .hazard(let hazard): hazards[hazard.code, default: 0] += 1
        case .relocating, .progress, .hazardOver: break
        }
    }

    /// Adds the counts of a subscription that is over.
    mutating func add(_ subscription: LagCounts) { ended += subscription }

    /// The members for `status`. `subscriptions`: those of the present ones.
    func json(with subscriptions: [LagCounts]) -> JSONObject {
        let all = subscriptions.reduce(ended) { $0 + $1 }
        var object: JSONObject = ["changes": .integer(Int64(clamping: changes))]
        object["resets"] = Self.json(resets)
        object["relocations"] = Self.json(relocations)
        object["hazards"] = hazards.isEmpty ? nil : Self.json(hazards)
        object["lags"] = .integer(Int64(clamping: all.lags))
        object["overflows"] = .integer(Int64(clamping: all.overflows))
        return object
    }

    static func json(_ counts: [String: UInt64]) -> JSONValue {
        var object = JSONObject()
        for (word, count) in counts.sorted(by: { $0.key < $1.key }) { object[word] = .integer(Int64(clamping: count)) }
        return .object(object)
    }
}

/// How a subscription has kept up.
struct LagCounts: Equatable {
    /// The number of times that its socket was full when an event came.
    var lags: UInt64 = 0
    /// The number of times that so many events waited that one reset replaced them.
    var overflows: UInt64 = 0

    static func + (left: LagCounts, right: LagCounts) -> LagCounts {
        LagCounts(lags: left.lags + right.lags, overflows: left.overflows + right.overflows)
    }

    static func += (left: inout LagCounts, right: LagCounts) { left = left + right }
}

/// The numbers of connections since the agent started.
struct ConnectionCounts: Equatable {
    private(set) var accepted: UInt64 = 0
    /// Those that ended with output which their clients had not taken.
    private(set) var lost: UInt64 = 0
    /// Those that were ended because their user may no longer read a store.
    private(set) var unauthorized: UInt64 = 0
    /// Those that were not accepted, by the error's code.
    private(set) var refused: [String: UInt64] = [:]

    mutating func addAccepted() { accepted += 1 }
    mutating func addLost() { lost += 1 }
    mutating func addUnauthorized() { unauthorized += 1 }
    mutating func addRefused(_ code: String) { refused[code, default: 0] += 1 }

    /// The members for `status`.
    func json(open: Int) -> JSONObject {
        [
            "open": .integer(Int64(open)), "accepted": .integer(Int64(clamping: accepted)),
            "lost": .integer(Int64(clamping: lost)), "unauthorized": .integer(Int64(clamping: unauthorized)),
            "refused": EventCounts.json(refused),
        ]
    }
}
