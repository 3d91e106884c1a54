import AgentProtocol
import StoreRelocation

extension RelocationSummary {
    /// The additional event, if the store was migrated.
    var migration: StoreEvent? {
        transformed.map { .migrated(fromModel: $0.before, toModel: $0.after) }
    }

    /// The event for the store's subscribers.
    var event: StoreEvent {
        // Merged rows come from the legacy place: what subscribers know of the store is outdated.
        // A store that was set aside in place has not moved: the migration's event reports its new content.
        let hasArrived = outcome == .relocated || outcome == .merged || setAside.map { $0.store != to } ?? false
        return hasArrived
            ? .relocated(from: from.bytes, to: to.bytes)
            : .abandoned(outcome: outcome.rawValue, message: notes.joined(separator: "; "))
    }
}

extension RelocationFailure {
    var event: StoreEvent { .abandoned(outcome: outcome, message: message) }
}
