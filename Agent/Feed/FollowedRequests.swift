import AgentProtocol
import ChangeFeed
import LinuxSystem
import SystemPackage

/// What other threads ask of the followed stores.
extension FollowedStores {
    func subscribe(_ connection: UInt64, _ operation: SubscribeOperation, id: JSONValue?) {
        if operation.wantsDetail, waitsForSurvey(operation.store) {
            waiting[operation.store]?.answers.append { $0.complete(connection, operation, id: id) }
        } else {
            complete(connection, operation, id: id)
        }
    }

    private func complete(_ connection: UInt64, _ operation: SubscribeOperation, id: JSONValue?) {
        let address = operation.store
        // Again, now that no event can come before the subscription.
        guard hub.mayRead(connection, address) else {
            hub.answer(connection, .failure(id: id, .unknownStore(address)), wasExpected: true)
            return forgetIfUnused(address)
        }
        follow(address)
        guard let store = stores[address] else {
            let isServed = isFollowable(address)
            let error: WireError = isServed ? .unwatchable(descriptors.shortage) : .unknownStore(address)
            return hub.answer(connection, .failure(id: id, error), wasExpected: true)
        }
        // What could not be watched before perhaps can be now.
        if watched[store.directory] == nil { refreshWatches() }
        guard watched[store.directory] != nil else {
            let reason = unwatchable[store.directory] ?? "\(PrintablePath(store.directory)) can't be watched"
            hub.answer(connection, .failure(id: id, .unwatchable(reason)), wasExpected: true)
            return forgetIfUnused(address)
        }
        if let reason = unheardDatabases[address] {
            hub.answer(connection, .failure(id: id, .unwatchable(reason)), wasExpected: true)
            return forgetIfUnused(address)
        }
        if let limit = store.limit {
            let reason = "\(PrintablePath(store.path)) can't be read: \(limit.message); \(limit.remedy)"
            hub.answer(connection, .failure(id: id, .unwatchable(reason)), wasExpected: true)
            return forgetIfUnused(address)
        }
        hub.subscribe(connection, operation, id: id, path: store.path.bytes, wasExpected: true)
        // It hears of nothing until that is over, and nothing else would tell.
        if store.state == .unreadable { hub.publish(.reset(.unreadable), of: address) }
        forgetIfUnused(address)
    }

    func unsubscribe(_ connection: UInt64, from address: StoreAddress, id: JSONValue?) {
        // It may be one of those that wait.
        answer(address)
        let wasSubscribed = hub.unsubscribe(connection, from: address)
        hub.answer(
            connection, wasSubscribed ? .reply(id: id, [:]) : .failure(id: id, .notSubscribed(address)),
            wasExpected: true)
        forgetIfUnused(address)
    }

    /// Answers once all that was committed before has been told: what is under way in the kernel's queue too.
    func sync(_ connection: UInt64, _ address: StoreAddress, id: JSONValue?) {
        catchUp(address)
        hub.sync(connection, address, id: id)
    }

    /// Tells all that was committed before.
    func catchUp(_ address: StoreAddress) {
        guard let store = stores[address], released[address] == nil else { return }
        if readAhead(of: store) != nil { handle([]) }
        look(store)
    }

    /// What was committed so far is told first.
    func release(_ address: StoreAddress) {
        answer(address)
        if let store = stores[address] {
            store.noteFiles()
            look(store)
            store.letGo()
            expecting.remove(address)
        }
        released[address] = released[address] ?? []
        states.set(.released, of: address)
    }

    /// What was announced meanwhile, and `event`, are told once the store is followed again, so that no commit falls
    /// in between. When they don't say that it is another store, one that is there may have been written.
    func resume(_ address: StoreAddress, announcing event: StoreEvent?) {
        guard let held = released.removeValue(forKey: address) else { return }
        let announced = held + (event.map { [$0] } ?? [])
        let store = stores[address]
        if let store {
            attach(store)
            report(store)
        } else {
            let isStarved = starved.contains(address)
            states.set(isStarved ? .unwatched : nil, of: address, because: isStarved ? descriptors.shortage : nil)
        }
        let saysAll = announced.contains { event in
            switch event {
            case .relocated, .migrated, .reset: true
            case .change, .relocating, .abandoned: false
            }
        }
        // A relocation that has to wait for somebody lets go again and again, without a word.
        let isAsBefore = announced.isEmpty && store?.isAsNoted == true
        if !saysAll, let store, store.state != .absent, !isAsBefore { hub.publish(.change(.unknown), of: address) }
        for event in announced {
            hub.publish(event, of: address)
            onEvent(event, address)
        }
        // Nothing else would tell that it isn't followed.
        if let store, store.state == .unreadable || unheardReason(of: store) != nil {
            publish(.reset(.unreadable), of: store)
        }
    }

    func announce(_ event: StoreEvent, of address: StoreAddress) {
        if released[address] != nil, !event.isRelocating {
            released[address]?.append(event)
        } else {
            if let store = stores[address] { look(store) }
            hub.publish(event, of: address)
        }
    }

    func letGoOfAll() { for store in stores.values { store.letGo() } }
}

extension StoreEvent {
    fileprivate var isRelocating: Bool {
        if case .relocating = self { true } else { false }
    }
}

extension WireError {
    static func unknownStore(_ store: StoreAddress) -> WireError {
        WireError(
            code: "unknown_store", "no group \(store.group) is served here, or its stores can't have that name",
            hint: "name a group of the agent's configuration: GROUP_ID/NAME")
    }

    fileprivate static func unwatchable(_ reason: String) -> WireError {
        WireError(code: "not_watchable", reason, hint: "groupstore doctor names the limit or permission")
    }

    fileprivate static func notSubscribed(_ store: StoreAddress) -> WireError {
        WireError(code: "not_subscribed", "this connection has no subscription to that store")
    }
}
