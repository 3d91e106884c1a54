import AgentProtocol
import LinuxSystem
import Synchronization

// Subscribers of other users. Whether one may read the store is asked before the subscription, before each event after which
// another file may have the store's name, and now and then while it changes: a right may be taken away.
extension Publisher {
    /// `mayRead` is asked without the hub's lock, on the thread that has something to tell.
    package func checkReaders(with mayRead: @escaping @Sendable (PeerCredentials, StoreAddress) -> Bool) {
        reading.withLock { $0 = mayRead }
    }

    /// How long a subscription may last after its user lost the right to read the store.
    private static let checkInterval = Duration.seconds(10)

    func mayRead(_ connection: UInt64, _ store: StoreAddress) -> Bool {
        guard let peer = state.withLock({ state in state.outlets[connection].flatMap { $0.isOthers ? $0.peer : nil } }),
            let mayRead = reading.withLock({ $0 })
        else { return true }
        return mayRead(peer, store)
    }

    /// Ends the connections that may not hear of the event.
    func endUnreadable(of store: StoreAddress, before event: StoreEvent) {
        let now = ContinuousClock.now
        let readers: [(connection: UInt64, peer: PeerCredentials)] = state.withLock { state in
            guard !state.readByOthers.isEmpty, let last = state.readByOthers[store] else { return [] }
            switch event {
            case .relocated, .migrated, .reset: break
            case .change, .relocating, .abandoned: if last.duration(to: now) < Self.checkInterval { return [] }
            }
            state.readByOthers[store] = now
            let others = (state.subscribers[store] ?? []).map(\.outlet).filter(\.isOthers)
            return others.compactMap { outlet in outlet.peer.map { (outlet.connection, $0) } }
        }
        guard !readers.isEmpty, let mayRead = reading.withLock({ $0 }) else { return }
        // Once for each user: a thousand subscribers of one wait for one answer.
        var answers: [PeerCredentials: Bool] = [:]
        for (connection, peer) in readers {
            let user = PeerCredentials(pid: 0, uid: peer.uid, gid: peer.gid, groups: peer.groups)
            let may = answers[user] ?? mayRead(peer, store)
            answers[user] = may
            if !may { end(connection) }
        }
    }

    /// Its client connects and asks again, and is then answered as anybody who may not see the store.
    private func end(_ connection: UInt64) {
        state.withLock { state in
            guard let outlet = state.outlets[connection] else { return }
            outlet.end(with: WireLine.bytes(AgentMessage.failure(id: nil, .unreadable).json))
            note(outlet, &state)
        }
    }
}

extension WireError {
    fileprivate static let unreadable = WireError(
        code: "not_permitted", "a store of a subscription can't be read by this user any more",
        hint: "connect and subscribe again, to those that can be")
}
