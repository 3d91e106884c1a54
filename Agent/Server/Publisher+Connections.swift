import AgentProtocol
import LinuxSystem

/// Connections: answers, and output that waits for a socket.
extension Publisher {
    /// Adds a connection. `raw` is a non-blocking socket that the event loop watches under `connection`; it stays open
    /// until `remove`.
    package func add(_ connection: UInt64, raw: CInt, peer: PeerCredentials? = nil) {
        state.withLock {
            $0.connectionCounts.addAccepted()
            $0.clients[connection] = ClientConnection(connection: connection, raw: raw, peer: peer, loop: loop)
        }
    }

    /// Removes a connection, and returns the stores that have no subscriber any more.
    package func remove(_ connection: UInt64) -> [StoreAddress] {
        state.withLock { state in
            guard let client = state.clients.removeValue(forKey: connection) else { return [] }
            if client.isBroken || !client.isFlushed { state.connectionCounts.addLost() }
            state.finished.remove(connection)
            state.resumed.remove(connection)
            let stores = Array(client.subscriptions.keys)
            for store in stores { remove(store, of: client, &state) }
            return stores.filter { state.subscribers(of: $0).isEmpty }
        }
    }

    /// True until the connection is closed.
    func isConnected(_ connection: UInt64) -> Bool { state.withLock { $0.clients[connection] != nil } }

    /// Returns the bytes of answers and events that the connection's socket hasn't taken.
    func waitingBytes(of connection: UInt64) -> Int { state.withLock { $0.clients[connection]?.waitingBytes ?? 0 } }

    /// Records that another thread will answer.
    package func expectAnswer(_ connection: UInt64) { state.withLock { $0.clients[connection]?.unanswered += 1 } }

    /// Sends a whole answer, or the last line of one. `wasExpected`: after `expectAnswer`.
    package func answer(_ connection: UInt64, _ message: AgentMessage, wasExpected: Bool = false) {
        state.withLock { state in
            guard let client = state.clients[connection] else { return }
            if wasExpected { client.unanswered -= 1 }
            answer(message, to: client, &state)
        }
    }

    /// Sends lines that belong to an answer. `optional` lines are dropped for a client that doesn't keep up.
    package func send(_ connection: UInt64, _ messages: [AgentMessage], optional: Bool = false) {
        // Encoded before the lock is taken: an answer may have thousands of lines.
        send(connection, lines: messages.flatMap { WireLine.bytes($0.json) }, optional: optional)
    }

    /// Sends encoded lines that belong to an answer.
    func send(_ connection: UInt64, lines: [UInt8], optional: Bool = false) {
        state.withLock { state in
            guard let client = state.clients[connection], !(optional && client.isCongested) else { return }
            client.send(answer: lines)
        }
    }

    func answer(_ message: AgentMessage, to client: ClientConnection, _ state: inout State) {
        client.send(answer: WireLine.bytes(message.json))
        reportIfFinished(client, &state)
    }

    package func flush(_ connection: UInt64) {
        state.withLock { state in
            guard let client = state.clients[connection] else { return }
            var flushed: [Subscription] = []
            client.flush { events, subscription in
                flushed.append(subscription)
                return lines(events, of: subscription, state)
            }
            for subscription in flushed { answerBarriers(of: subscription, &state) }
            reportIfFinished(client, &state)
        }
    }

    /// Records that the peer has shut down its side. The connection is kept for as long as there is something to send.
    package func peerStoppedSending(_ connection: UInt64) {
        state.withLock { state in
            guard let client = state.clients[connection] else { return }
            client.peerHasStoppedSending = true
            client.setReading(false)
            reportIfFinished(client, &state)
        }
    }

    /// True if the connection still takes answers. If it doesn't, earlier requests need no answer and aren't handled.
    func canAnswer(_ connection: UInt64) -> Bool {
        state.withLock { $0.clients[connection].map { !$0.isBroken && !$0.isEnding } ?? false }
    }

    /// Stops reading the connection's requests, and returns true, while the client must take its answers or the feed
    /// thread must catch up with its requests first.
    package func pausesIfCongested(_ connection: UInt64) -> Bool {
        state.withLock { state in
            guard let client = state.clients[connection] else { return false }
            let isHeldBack = client.isBusy || client.isCongested && !client.peerHasStoppedSending
            client.isHeldBack = isHeldBack
            if !client.peerHasStoppedSending { client.setReading(!isHeldBack) }
            return isHeldBack
        }
    }

    /// Records work of the feed thread for the connection, until `endWork`. A connection with too much of it is held
    /// back, since the work of all connections is done in order.
    func beginWork(_ connection: UInt64) { state.withLock { $0.clients[connection]?.work += 1 } }

    func endWork(_ connection: UInt64) {
        state.withLock { state in
            guard let client = state.clients[connection] else { return }
            client.work -= 1
            guard client.isHeldBack, !client.isBusy, state.resumed.insert(connection).inserted else { return }
            loop.wake()
        }
    }

    /// Removes and returns the connections that were held back until their work was done.
    func drainResumed() -> Set<UInt64> {
        state.withLock { state in
            defer { state.resumed = [] }
            return state.resumed
        }
    }

    /// Removes and returns the connections on which nothing will ever be sent or requested again.
    package func drainFinished() -> Set<UInt64> {
        state.withLock { state in
            defer { state.finished = [] }
            return state.finished.filter { state.clients[$0]?.isFinished == true }
        }
    }

    package var isFlushed: Bool { state.withLock { $0.clients.values.allSatisfy(\.isFlushed) } }
}
