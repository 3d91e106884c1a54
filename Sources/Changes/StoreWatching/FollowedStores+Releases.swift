import AgentProtocol
import ChangeFeed
import LinuxSystem
import SystemPackage

/// Releases of stores for relocations, and the events that relocations announce.
extension FollowedStores {
    /// Publishes all earlier commits.
    package func catchUp(_ address: StoreAddress) {
        guard let store = stores[address], released[address] == nil else { return }
        if store.isDormant { wake(store) }
        if readQueuedEvents(of: store) != nil { handle([]) }
        poll(store)
        sleepSoonIfUnheard(address)
    }

    /// Publishes earlier commits, then closes the store's descriptors.
    package func release(_ address: StoreAddress) {
        sendPendingAnswers(of: address)
        if let store = stores[address] {
            if store.isDormant { wake(store, mayExceedBudget: true) }
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
    package func resume(_ address: StoreAddress, announcing event: StoreEvent?) {
        guard let held = released.removeValue(forKey: address) else { return }
        let announced = held + (event.map { [$0] } ?? [])
        let store = stores[address]
        if let store {
            // A relocation may have put it there. There are few.
            _ = reserve(for: store, mayExceed: true)
            attach(store)
            reportState(of: store)
            sleepSoonIfUnheard(address)
        } else {
            let isStarved = starved.contains(address)
            states.set(isStarved ? .unwatched : nil, of: address, because: isStarved ? descriptors.shortage : nil)
        }
        let includesReplacement = announced.contains { event in
            switch event {
            case .relocated, .migrated, .reset: true
            case .change, .branchChange, .relocating, .progress, .abandoned, .hazard, .hazardOver: false
            }
        }
        // A relocation that waits for other programs releases the store repeatedly, without an event.
        let isUnchanged = announced.isEmpty && store?.filesAreUnchanged == true
        if !includesReplacement, let store, store.state != .absent, !isUnchanged {
            receiver.publish(.change(.unknown), of: address)
        }
        for event in announced {
            receiver.publish(event, of: address)
        }
        // Nothing else reports that it isn't followed.
        if let store, store.state == .unreadable || unwatchedReason(of: store) != nil {
            publish(.reset(.unreadable), of: store)
        }
    }

    /// Follows the store again after a claim, whose holder may have replaced it.
    package func resumeAfterClaim(_ address: StoreAddress) {
        resume(address, announcing: stores[address]?.isReplaced == true ? .reset(.replaced) : nil)
    }

    package func announce(_ event: StoreEvent, of address: StoreAddress) {
        if case .progress = event {
            receiver.publish(event, of: address)
        } else if released[address] != nil, !event.isRelocating {
            released[address]?.append(event)
        } else {
            if let store = stores[address] { poll(store) }
            receiver.publish(event, of: address)
        }
    }

    package func releaseAll() {
        endBranches()
        for store in stores.values { store.release() }
    }
}

extension StoreEvent {
    fileprivate var isRelocating: Bool {
        if case .relocating = self { true } else { false }
    }
}
