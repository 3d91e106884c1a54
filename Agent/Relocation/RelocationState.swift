import AgentProtocol
import FoundationEssentials

/// How it stands with the relocation of a store, as its subscribers were told last.
package struct RelocationState: Sendable, Equatable {
    package enum Phase: Sendable, Equatable {
        case relocating(waitingFor: [StoreEvent.Holder])
        case relocated
        case abandoned(outcome: String, message: String)
    }

    package let phase: Phase
    /// When it began: a change of who is waited for is none of the phase.
    package let since: Date

    package init(_ phase: Phase, since: Date) {
        self.phase = phase
        self.since = since
    }

    /// The event that whoever didn't hear the last one is to hear; nil when nothing is under way.
    var announcement: StoreEvent? {
        if case .relocating(let holders) = phase { .relocating(waitingFor: holders) } else { nil }
    }

    /// The state after the event: this one when the event says nothing of relocations.
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

    /// As `status` shows it.
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
