import AgentProtocol

extension RelocationScheduler {
    /// The state that only the scheduler's thread uses.
    struct Round {
        var stores: LegacyStores
        var apps: LegacyApps
        var recovery: UnfinishedRelocations
        /// The stores that workers have, by the numbers of their attempts.
        var underWay: [UInt64: LegacyStore] = [:]
        var nextNumber: UInt64 = 1
        /// The number of clients' relocations of each store.
        var operations: [StoreAddress: Int] = [:]
        /// The configured stores that clients' relocations use, by their numbers.
        var usedByClients: [UInt64: [LegacyStore]] = [:]

        /// The stores whose announcements are ended elsewhere.
        var announced: Set<StoreAddress> {
            stores.arriving.union(operations.keys).union(underWay.values.map(\.address))
        }

        mutating func begin(_ store: LegacyStore, _ state: LegacyStore.State = .relocating) -> UInt64 {
            defer { nextNumber += 1 }
            store.begin(state)
            underWay[nextNumber] = store
            return nextNumber
        }

        /// Lends a client's relocation the configured stores that it touches.
        mutating func lend(_ keys: Set<RelocationKey>) -> UInt64 {
            defer { nextNumber += 1 }
            let touched = stores.all.filter { !RelocationKey.of($0.file.path).isDisjoint(with: keys) }
            for store in touched { store.beginClientRelocation() }
            usedByClients[nextNumber] = touched
            return nextNumber
        }
    }
}
