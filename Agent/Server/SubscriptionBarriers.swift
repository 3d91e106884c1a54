import AgentProtocol

/// Requests that are answered when a subscription was told all that came before them.
extension Publisher {
    /// Answers when the connection was told all that is numbered now, or what isn't for it is left out.
    func sync(_ connection: UInt64, _ store: StoreAddress, id: JSONValue?) {
        state.withLock { state in
            guard let outlet = state.outlets[connection] else { return }
            let number = state.channels[store]?.number
            guard let number, let subscription = outlet.subscriptions[store] else {
                outlet.unanswered -= 1
                var reply: JSONObject = [:]
                if let number { reply["token"] = .string(token(number)) }
                return answer(.reply(id: id, reply), outlet, &state)
            }
            subscription.barriers.append((id, number))
            answerBarriers(of: subscription, &state)
        }
    }

    /// Those whose turn it is.
    func answerBarriers(of subscription: Subscription, _ state: inout State) {
        let ids = subscription.takeBarriers()
        guard !ids.isEmpty else { return }
        // What it was told last stands for all; without a history the store's last event does.
        let number = subscription.rows == nil ? state.channels[subscription.store]?.number : nil
        let token = token(number ?? subscription.told, subscription.rows?.position)
        for id in ids { answer(id, token, of: subscription, &state) }
    }

    /// A subscription ends: what it has asked for is answered with what it was told.
    func answerAll(of subscription: Subscription, _ state: inout State) {
        let token = token(subscription.told, subscription.rows?.position)
        if let joining = subscription.joining.take() {
            answer(joining.id, joining.since ?? token, of: subscription, path: joining.path, &state)
        }
        for (id, _) in subscription.barriers { answer(id, token, of: subscription, &state) }
        subscription.barriers = []
    }

    private func answer(
        _ id: JSONValue?, _ token: String, of subscription: Subscription, path: [UInt8]? = nil, _ state: inout State
    ) {
        var reply: JSONObject = ["token": .string(token)]
        if let path { reply.setPath("path", bytes: path) }
        subscription.outlet.unanswered -= 1
        answer(.reply(id: id, reply), subscription.outlet, &state)
    }
}
