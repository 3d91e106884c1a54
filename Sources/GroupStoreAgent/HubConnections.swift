import AgentProtocol
import LinuxSystem

/// Connections: answers, and what waits for a socket.
extension Hub {
    /// `raw` is a non-blocking socket that the event loop watches under `connection`; it stays open until `remove`.
    package func add(_ connection: UInt64, raw: CInt, peer: PeerCredentials? = nil) {
        state.withLock { $0.outlets[connection] = Outlet(connection: connection, raw: raw, peer: peer, loop: loop) }
    }

    /// Returns the stores that nobody is subscribed to any more.
    package func remove(_ connection: UInt64) -> [StoreAddress] {
        state.withLock { state in
            guard let outlet = state.outlets.removeValue(forKey: connection) else { return [] }
            state.finished.remove(connection)
            let stores = Array(outlet.subscriptions.keys)
            for store in stores { remove(store, of: outlet, &state) }
            return stores.filter { state.subscribers[$0] == nil }
        }
    }

    /// False once the connection was closed.
    func isConnected(_ connection: UInt64) -> Bool { state.withLock { $0.outlets[connection] != nil } }

    /// Bytes of answers and events that its socket hasn't taken.
    func waitingBytes(of connection: UInt64) -> Int { state.withLock { $0.outlets[connection]?.waitingBytes ?? 0 } }

    /// An answer is coming from another thread.
    package func expectAnswer(_ connection: UInt64) { state.withLock { $0.outlets[connection]?.unanswered += 1 } }

    /// Sends a whole answer, or the last line of one. `wasExpected`: after `expectAnswer`.
    package func answer(_ connection: UInt64, _ message: AgentMessage, wasExpected: Bool = false) {
        state.withLock { state in
            guard let outlet = state.outlets[connection] else { return }
            if wasExpected { outlet.unanswered -= 1 }
            answer(message, outlet, &state)
        }
    }

    /// Sends lines that belong to an answer; `optional` ones are left out for a client that doesn't keep up.
    package func send(_ connection: UInt64, _ messages: [AgentMessage], optional: Bool = false) {
        state.withLock { state in
            guard let outlet = state.outlets[connection], !(optional && outlet.isCongested) else { return }
            outlet.send(answer: messages.flatMap { WireLine.bytes($0.json) })
        }
    }

    func answer(_ message: AgentMessage, _ outlet: Outlet, _ state: inout State) {
        outlet.send(answer: WireLine.bytes(message.json))
        note(outlet, &state)
    }

    package func flush(_ connection: UInt64) {
        state.withLock { state in
            guard let outlet = state.outlets[connection] else { return }
            var told: [Subscription] = []
            outlet.flush { events, subscription in
                told.append(subscription)
                return lines(events, subscription.store, isOthers: outlet.isOthers, state)
            }
            for subscription in told { answerBarriers(of: subscription, &state) }
            note(outlet, &state)
        }
    }

    /// The peer ended its side; the connection is kept for as long as there is something to send.
    package func peerIsSilent(_ connection: UInt64) {
        state.withLock { state in
            guard let outlet = state.outlets[connection] else { return }
            outlet.peerIsSilent = true
            outlet.setReading(false)
            note(outlet, &state)
        }
    }

    /// Whether the client should take its answers before it asks more; requests aren't read meanwhile.
    package func pausesIfCongested(_ connection: UInt64) -> Bool {
        state.withLock { state in
            guard let outlet = state.outlets[connection], !outlet.peerIsSilent else { return false }
            outlet.setReading(!outlet.isCongested)
            return outlet.isCongested
        }
    }

    /// Connections on which nothing will ever be sent or asked again.
    package func takeFinished() -> Set<UInt64> {
        state.withLock { state in
            defer { state.finished = [] }
            return state.finished.filter { state.outlets[$0]?.isFinished == true }
        }
    }

    package var isFlushed: Bool { state.withLock { $0.outlets.values.allSatisfy(\.isFlushed) } }
}
