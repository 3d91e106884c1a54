import AgentProtocol

/// Requests that are answered once a subscription was sent all earlier events.
extension Publisher {
    /// Answers once the connection was sent all events numbered so far, except those that aren't for it.
    func sync(_ connection: UInt64, _ store: StoreAddress, id: JSONValue?) {
        state.withLock { state in
            guard let client = state.clients[connection] else { return }
            let number = state.lastNumber(of: store)
            guard let number, let subscription = client.subscriptions[store] else {
                client.unanswered -= 1
                var reply: JSONObject = [:]
                if let number { reply["token"] = .string(token(number)) }
                return answer(.reply(id: id, reply), to: client, &state)
            }
            subscription.barriers.append((id, number))
            answerBarriers(of: subscription, &state)
        }
    }

    /// Answers the subscription's requests that have no event to wait for.
    func answerBarriers(of subscription: Subscription, _ state: inout State) {
        let ids = subscription.drainBarriers()
        guard !ids.isEmpty else { return }
        // Without a history, the token is of the store's last event; with one, of the last delivered event.
        let number = subscription.rows == nil ? state.lastNumber(of: subscription.store) : nil
        let token = token(number ?? subscription.delivered, subscription.rows?.position)
        for id in ids { answer(id, token: token, of: subscription, &state) }
    }

    /// Answers all requests of a subscription that ends, with the last delivered event.
    func answerAll(of subscription: Subscription, _ state: inout State) {
        let token = token(subscription.delivered, subscription.rows?.position)
        if let joining = subscription.joining.take() {
            answer(joining.id, token: joining.since ?? token, of: subscription, path: joining.path, &state)
        }
        for (id, _) in subscription.barriers { answer(id, token: token, of: subscription, &state) }
        subscription.barriers = []
    }

    private func answer(
        _ id: JSONValue?, token: String, of subscription: Subscription, path: [UInt8]? = nil, _ state: inout State
    ) {
        var reply: JSONObject = ["token": .string(token)]
        if let path { reply.setPath("path", bytes: path) }
        subscription.client.unanswered -= 1
        answer(.reply(id: id, reply), to: subscription.client, &state)
    }
}
