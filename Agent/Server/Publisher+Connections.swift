import AgentProtocol
import LinuxSystem

/// Connections: answers, and what waits for a socket.
extension Publisher {
    /// `raw` is a non-blocking socket that the event loop watches under `connection`; it stays open until `remove`.
    package func add(_ connection: UInt64, raw: CInt, peer: PeerCredentials? = nil) {
        state.withLock {
            $0.outlets[connection] = ClientConnection(connection: connection, raw: raw, peer: peer, loop: loop)
        }
    }

    /// Returns the stores that nobody is subscribed to any more.
    package func remove(_ connection: UInt64) -> [StoreAddress] {
        state.withLock { state in
            guard let outlet = state.outlets.removeValue(forKey: connection) else { return [] }
            state.finished.remove(connection)
            state.resumed.remove(connection)
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
        // Written out before the lock is taken: an answer may have thousands of lines.
        let lines = messages.flatMap { WireLine.bytes($0.json) }
        state.withLock { state in
            guard let outlet = state.outlets[connection], !(optional && outlet.isCongested) else { return }
            outlet.send(answer: lines)
        }
    }

    func answer(_ message: AgentMessage, _ outlet: ClientConnection, _ state: inout State) {
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

    /// False where nobody takes an answer any more: what was asked before needs none, and isn't done.
    func canAnswer(_ connection: UInt64) -> Bool {
        state.withLock { $0.outlets[connection].map { !$0.isBroken && !$0.isEnding } ?? false }
    }

    /// Whether the client should take its answers before it asks more, or the watch should do what it has asked for;
    /// requests aren't read meanwhile.
    package func pausesIfCongested(_ connection: UInt64) -> Bool {
        state.withLock { state in
            guard let outlet = state.outlets[connection] else { return false }
            let isHeldBack = outlet.isBusy || outlet.isCongested && !outlet.peerIsSilent
            outlet.isHeldBack = isHeldBack
            if !outlet.peerIsSilent { outlet.setReading(!isHeldBack) }
            return isHeldBack
        }
    }

    /// The watch has work for the connection until `endWork`. One that has too much of it is held back: what all have asked for
    /// is done one after the other.
    func beginWork(_ connection: UInt64) { state.withLock { $0.outlets[connection]?.work += 1 } }

    func endWork(_ connection: UInt64) {
        state.withLock { state in
            guard let outlet = state.outlets[connection] else { return }
            outlet.work -= 1
            guard outlet.isHeldBack, !outlet.isBusy, state.resumed.insert(connection).inserted else { return }
            loop.wake()
        }
    }

    /// Connections that were held back until their work was done, and need not be any more.
    func takeResumed() -> Set<UInt64> {
        state.withLock { state in
            defer { state.resumed = [] }
            return state.resumed
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
