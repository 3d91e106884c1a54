import AgentProtocol
import LinuxSystem
import StoreWatching

/// The clients' requests that the feed thread answers.
struct SubscriptionRequests {
    let stores: FollowedStores
    let publisher: Publisher

    func subscribe(_ connection: UInt64, _ operation: SubscribeOperation, id: JSONValue?) {
        guard operation.wantsDetail else { return complete(connection, operation, id: id) }
        stores.whenTablesAreKnown(of: operation.store) { [self] in complete(connection, operation, id: id) }
    }

    private func complete(_ connection: UInt64, _ operation: SubscribeOperation, id: JSONValue?) {
        let address = operation.store
        // Checked again, now that no event can come before the subscription.
        guard publisher.mayRead(connection, address) else {
            publisher.answer(connection, .failure(id: id, .unknownStore(address)), wasExpected: true)
            return stores.forgetIfUnused(address)
        }
        guard stores.follow(address), let store = stores.stores[address] else {
            let isServed = stores.isFollowable(address)
            let error: WireError = isServed ? .unwatchable(stores.descriptors.shortage) : .unknownStore(address)
            return publisher.answer(connection, .failure(id: id, error), wasExpected: true)
        }
        // The directory may be watchable by now.
        if stores.watched[store.directory] == nil { stores.refreshWatches() }
        guard stores.watched[store.directory] != nil else {
            let reason = stores.unwatchable[store.directory] ?? "\(PrintablePath(store.directory)) can't be watched"
            publisher.answer(connection, .failure(id: id, .unwatchable(reason)), wasExpected: true)
            return stores.forgetIfUnused(address)
        }
        if let reason = stores.unwatchableDatabases[address] {
            publisher.answer(connection, .failure(id: id, .unwatchable(reason)), wasExpected: true)
            return stores.forgetIfUnused(address)
        }
        if let limit = store.limit {
            let reason = "\(PrintablePath(store.path)) can't be read: \(limit.message); \(limit.remedy)"
            publisher.answer(connection, .failure(id: id, .unwatchable(reason)), wasExpected: true)
            return stores.forgetIfUnused(address)
        }
        publisher.subscribe(connection, operation, id: id, path: store.path.bytes, wasExpected: true)
        // No event reaches the subscriber until that is over, and nothing else would report it.
        if store.state == .unreadable { publisher.publish(.reset(.unreadable), of: address) }
        stores.forgetIfUnused(address)
    }

    func unsubscribe(_ connection: UInt64, from address: StoreAddress, id: JSONValue?) {
        // The subscription may still wait for its answer.
        stores.sendPendingAnswers(of: address)
        let wasSubscribed = publisher.unsubscribe(connection, from: address)
        publisher.answer(
            connection, wasSubscribed ? .reply(id: id, [:]) : .failure(id: id, .notSubscribed(address)),
            wasExpected: true)
        stores.forgetIfUnused(address)
    }

    /// Answers once all earlier commits were published, including those whose events are still in the kernel's queue.
    func sync(_ connection: UInt64, _ address: StoreAddress, id: JSONValue?) {
        // A client need not wait for the answer to its subscription before it asks.
        stores.afterPendingAnswers(of: address) { [self] in
            stores.catchUp(address)
            publisher.sync(connection, address, id: id)
        }
    }
}

extension WireError {
    static func unknownStore(_ store: StoreAddress) -> WireError {
        WireError(
            code: "unknown_store", "the agent does not serve group \(store.group), or its stores can't have that name",
            hint: "name a group of the agent's configuration: GROUP_ID/NAME")
    }

    fileprivate static func unwatchable(_ reason: String) -> WireError {
        WireError(code: "not_watchable", reason, hint: "see which limit or permission: groupstore doctor")
    }

    fileprivate static func notSubscribed(_ store: StoreAddress) -> WireError {
        WireError(code: "not_subscribed", "this connection has no subscription to that store")
    }
}
