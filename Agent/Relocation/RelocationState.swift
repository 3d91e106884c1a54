import AgentProtocol
import FoundationEssentials

/// The state of a store's relocation, as last published.
package struct RelocationState: Sendable, Equatable {
    package enum Phase: Sendable, Equatable {
        case relocating(waitingFor: [StoreEvent.Holder], StoreProgress? = nil)
        case relocated
        case abandoned(outcome: String, message: String)
    }

    package let phase: Phase
    /// The time at which the phase began. A change of holders or of the progress begins no new phase.
    package let since: Date

    package init(_ phase: Phase, since: Date) {
        self.phase = phase
        self.since = since
    }

    /// The event for a subscriber that missed the last one; nil if no relocation is running.
    var announcement: StoreEvent? {
        if case .relocating(let holders, _) = phase { .relocating(waitingFor: holders) } else { nil }
    }

    /// How far the relocation is; nil before its first report, and if none is running.
    var progress: StoreProgress? {
        if case .relocating(_, let progress) = phase { progress } else { nil }
    }

    /// Returns the state after the event: the same one if the event is not about relocations.
    static func after(_ event: StoreEvent, _ state: RelocationState?) -> RelocationState? {
        switch event {
        case .relocating(let holders):
            let since = state?.announcement != nil ? state?.since : nil
            return RelocationState(.relocating(waitingFor: holders), since: since ?? Date())
        case .progress(let progress):
            // A report that comes late says nothing about what has followed.
            guard let state, state.announcement != nil else { return state }
            return RelocationState(.relocating(waitingFor: [], progress), since: state.since)
        case .relocated: return RelocationState(.relocated, since: Date())
        case .abandoned(let outcome, let message):
            return RelocationState(.abandoned(outcome: outcome, message: message), since: Date())
        case .change, .branchChange, .migrated, .hazard, .hazardOver, .reset: return state
        }
    }

    /// The members for `status`.
    var json: JSONObject {
        var object = JSONObject()
        switch phase {
        case .relocating(let holders, let progress):
            object["state"] = "relocating"
            progress?.write(to: &object)
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
