import AgentProtocol
import ChangeFeed
import LinuxSystem
import SystemPackage

/// The requests of other threads to the followed stores.
extension FollowedStores {
    func subscribe(_ connection: UInt64, _ operation: SubscribeOperation, id: JSONValue?) {
        if operation.wantsDetail, waitsForScan(operation.store) {
            pendingAnswers[operation.store]?.answers.append { $0.complete(connection, operation, id: id) }
        } else {
            complete(connection, operation, id: id)
        }
    }

    private func complete(_ connection: UInt64, _ operation: SubscribeOperation, id: JSONValue?) {
        let address = operation.store
        // Checked again, now that no event can come before the subscription.
        guard publisher.mayRead(connection, address) else {
            publisher.answer(connection, .failure(id: id, .unknownStore(address)), wasExpected: true)
            return forgetIfUnused(address)
        }
        follow(address)
        guard let store = stores[address] else {
            let isServed = isFollowable(address)
            let error: WireError = isServed ? .unwatchable(descriptors.shortage) : .unknownStore(address)
            return publisher.answer(connection, .failure(id: id, error), wasExpected: true)
        }
        // The directory may be watchable by now.
        if watched[store.directory] == nil { refreshWatches() }
        guard watched[store.directory] != nil else {
            let reason = unwatchable[store.directory] ?? "\(PrintablePath(store.directory)) can't be watched"
            publisher.answer(connection, .failure(id: id, .unwatchable(reason)), wasExpected: true)
            return forgetIfUnused(address)
        }
        if let reason = unwatchableDatabases[address] {
            publisher.answer(connection, .failure(id: id, .unwatchable(reason)), wasExpected: true)
            return forgetIfUnused(address)
        }
        if let limit = store.limit {
            let reason = "\(PrintablePath(store.path)) can't be read: \(limit.message); \(limit.remedy)"
            publisher.answer(connection, .failure(id: id, .unwatchable(reason)), wasExpected: true)
            return forgetIfUnused(address)
        }
        publisher.subscribe(connection, operation, id: id, path: store.path.bytes, wasExpected: true)
        // No event reaches the subscriber until that is over, and nothing else would report it.
        if store.state == .unreadable { publisher.publish(.reset(.unreadable), of: address) }
        forgetIfUnused(address)
    }

    func unsubscribe(_ connection: UInt64, from address: StoreAddress, id: JSONValue?) {
        // The subscription may still wait for its answer.
        sendPendingAnswers(of: address)
        let wasSubscribed = publisher.unsubscribe(connection, from: address)
        publisher.answer(
            connection, wasSubscribed ? .reply(id: id, [:]) : .failure(id: id, .notSubscribed(address)),
            wasExpected: true)
        forgetIfUnused(address)
    }

    /// Answers once all earlier commits were published, including those whose events are still in the kernel's queue.
    func sync(_ connection: UInt64, _ address: StoreAddress, id: JSONValue?) {
        catchUp(address)
        publisher.sync(connection, address, id: id)
    }

    /// Publishes all earlier commits.
    func catchUp(_ address: StoreAddress) {
        guard let store = stores[address], released[address] == nil else { return }
        if readQueuedEvents(of: store) != nil { handle([]) }
        poll(store)
    }

    /// Publishes earlier commits, then closes the store's descriptors.
    func release(_ address: StoreAddress) {
        sendPendingAnswers(of: address)
        if let store = stores[address] {
            store.recordFileStatuses()
            poll(store)
            store.release()
            pollScheduled.remove(address)
        }
        released[address] = released[address] ?? []
        states.set(.released, of: address)
    }

    /// Follows the store again, then publishes the events announced meanwhile and `event`, so that no commit falls in
    /// between. If none of them says that the store is a different one, a change comes first: the store may have been
    /// written.
    func resume(_ address: StoreAddress, announcing event: StoreEvent?) {
        guard let held = released.removeValue(forKey: address) else { return }
        let announced = held + (event.map { [$0] } ?? [])
        let store = stores[address]
        if let store {
            attach(store)
            reportState(of: store)
        } else {
            let isStarved = starved.contains(address)
            states.set(isStarved ? .unwatched : nil, of: address, because: isStarved ? descriptors.shortage : nil)
        }
        let includesReplacement = announced.contains { event in
            switch event {
            case .relocated, .migrated, .reset: true
            case .change, .relocating, .abandoned: false
            }
        }
        // A relocation that waits for other programs releases the store repeatedly, without an event.
        let isUnchanged = announced.isEmpty && store?.filesAreUnchanged == true
        if !includesReplacement, let store, store.state != .absent, !isUnchanged {
            publisher.publish(.change(.unknown), of: address)
        }
        for event in announced {
            publisher.publish(event, of: address)
            onEvent(event, address)
        }
        // Nothing else reports that it isn't followed.
        if let store, store.state == .unreadable || unwatchedReason(of: store) != nil {
            publish(.reset(.unreadable), of: store)
        }
    }

    func announce(_ event: StoreEvent, of address: StoreAddress) {
        if released[address] != nil, !event.isRelocating {
            released[address]?.append(event)
        } else {
            if let store = stores[address] { poll(store) }
            publisher.publish(event, of: address)
        }
    }

    func releaseAll() { for store in stores.values { store.release() } }
}

extension StoreEvent {
    fileprivate var isRelocating: Bool {
        if case .relocating = self { true } else { false }
    }
}

extension WireError {
    static func unknownStore(_ store: StoreAddress) -> WireError {
        WireError(
            code: "unknown_store", "the agent does not serve group \(store.group), or its stores can't have that name",
            hint: "name a group of the agent's configuration: GROUP_ID/NAME")
    }

    fileprivate static func unwatchable(_ reason: String) -> WireError {
        WireError(code: "not_watchable", reason, hint: "groupstore doctor names the limit or permission")
    }

    fileprivate static func notSubscribed(_ store: StoreAddress) -> WireError {
        WireError(code: "not_subscribed", "this connection has no subscription to that store")
    }
}
