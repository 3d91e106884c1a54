import AgentProtocol
import StoreRelocation

extension RelocationSummary {
    /// What they are told besides, where the store is of another version now.
    var migration: StoreEvent? {
        transformed.map { .migrated(fromModel: $0.before, toModel: $0.after) }
    }

    /// What subscribers of the store are told.
    var event: StoreEvent {
        // What was set aside where it is comes from nowhere: that its content is another one is told besides.
        let hasArrived = outcome == .relocated || setAside.map { $0.store != to } ?? false
        return hasArrived
            ? .relocated(from: from.bytes, to: to.bytes)
            : .abandoned(outcome: outcome.rawValue, message: notes.joined(separator: "; "))
    }
}

extension RelocationFailure {
    var event: StoreEvent { .abandoned(outcome: outcome, message: message) }
}
