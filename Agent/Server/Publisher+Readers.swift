import AgentProtocol
import LinuxSystem
import Synchronization

// Subscribers of other users. Permission to read the store is checked before the subscription, before each event after
// which another file may have the store's name, and periodically while the store changes, because it may be revoked.
extension Publisher {
    /// Sets the check of permissions. `mayRead` is called without the publisher's lock, on the publishing thread.
    package func checkReaders(with mayRead: @escaping @Sendable (PeerCredentials, StoreAddress) -> Bool) {
        readAuthorization.withLock { $0 = mayRead }
    }

    /// The time that a subscription may outlive its user's permission to read the store.
    private static let checkInterval = Duration.seconds(10)

    func mayRead(_ connection: UInt64, _ store: StoreAddress) -> Bool {
        guard
            let peer = state.withLock({ state in state.clients[connection].flatMap { $0.isUntrusted ? $0.peer : nil } }
            ),
            let mayRead = readAuthorization.withLock({ $0 })
        else { return true }
        return mayRead(peer, store)
    }

    /// Ends the connections whose user may not receive the event.
    func endUnauthorized(of store: StoreAddress, before event: StoreEvent) {
        let now = ContinuousClock.now
        let readers: [(connection: UInt64, peer: PeerCredentials)] = state.withLock { state in
            guard !state.lastReaderChecks.isEmpty, let last = state.lastReaderChecks[store] else { return [] }
            switch event {
            case .relocated, .migrated, .reset: break
            case .change, .branchChange, .relocating, .progress, .abandoned, .hazard, .hazardOver:
                if last.duration(to: now) < Self.checkInterval { return [] }
            }
            state.lastReaderChecks[store] = now
            let untrusted = state.subscribers(of: store).map(\.client).filter(\.isUntrusted)
            return untrusted.compactMap { client in client.peer.map { (client.connection, $0) } }
        }
        guard !readers.isEmpty, let mayRead = readAuthorization.withLock({ $0 }) else { return }
        // One check per user: a thousand subscribers of one user wait for one answer.
        var answers: [PeerCredentials: Bool] = [:]
        for (connection, peer) in readers {
            let user = PeerCredentials(pid: 0, uid: peer.uid, gid: peer.gid, groups: peer.groups)
            let may = answers[user] ?? mayRead(peer, store)
            answers[user] = may
            if !may { end(connection) }
        }
    }

    /// Ends the connection. Its client connects and subscribes again, and is then answered like anybody who may not see
    /// the store.
    private func end(_ connection: UInt64) {
        state.withLock { state in
            guard let client = state.clients[connection] else { return }
            state.connectionCounts.addUnauthorized()
            client.end(with: WireLine.bytes(AgentMessage.failure(id: nil, .unreadable).json))
            reportIfFinished(client, &state)
        }
    }
}

extension WireError {
    fileprivate static let unreadable = WireError(
        code: "not_permitted", "this user may no longer read a store of a subscription",
        hint: "connect and subscribe again, to the stores that this user may read")
}
