import AgentProtocol
import FoundationEssentials

/// The state of a store's relocation, as last published.
package struct RelocationState: Sendable, Equatable {
    package enum Phase: Sendable, Equatable {
        case relocating(waitingFor: [StoreEvent.Holder])
        case relocated
        case abandoned(outcome: String, message: String)
    }

    package let phase: Phase
    /// The time at which the phase began. A change of holders begins no new phase.
    package let since: Date

    package init(_ phase: Phase, since: Date) {
        self.phase = phase
        self.since = since
    }

    /// The event for a subscriber that missed the last one; nil if no relocation is running.
    var announcement: StoreEvent? {
        if case .relocating(let holders) = phase { .relocating(waitingFor: holders) } else { nil }
    }

    /// Returns the state after the event: the same one if the event is not about relocations.
    static func after(_ event: StoreEvent, _ state: RelocationState?) -> RelocationState? {
        switch event {
        case .relocating(let holders):
            let since = state?.announcement != nil ? state?.since : nil
            return RelocationState(.relocating(waitingFor: holders), since: since ?? Date())
        case .relocated: return RelocationState(.relocated, since: Date())
        case .abandoned(let outcome, let message):
            return RelocationState(.abandoned(outcome: outcome, message: message), since: Date())
        case .change, .migrated, .reset: return state
        }
    }

    /// The members for `status`.
    var json: JSONObject {
        var object = JSONObject()
        switch phase {
        case .relocating(let holders):
            object["state"] = "relocating"
            object["waiting_for"] = StoreEvent.json(of: holders)
        case .relocated: object["state"] = "relocated"
        case .abandoned(let outcome, let message):
            object["state"] = "abandoned"
            object["outcome"] = .string(outcome)
            object["message"] = .string(message)
        }
        object["since"] = .string(since.formatted(.iso8601))
        return object
    }
}
