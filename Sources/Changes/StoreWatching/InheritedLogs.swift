import AgentProtocol
import LinuxSystem
import StoreHazards

/// What comparisons have said of lost logs that forked children may have inherited. A pure value.
///
/// Other programs change the database, after which no comparison can prove any more that it had all of a log. A log
/// that nobody has written since a proof has nothing to lose.
struct InheritedLogs {
    /// Those proven last at the end.
    private var proven: [StoreAddress: [StoreHazard.LogVersion]] = [:]
    private var attempts: [StoreAddress: [StoreHazard.LogVersion: Int]] = [:]

    /// The comparisons of one state of a log. Each reads all of it.
    static let maximumAttempts = 3
    /// The number of proofs that are kept for a store.
    static let capacity = 32

    /// True if a comparison has proven that nothing can be lost with the log in this state.
    func isProven(_ log: StoreHazard.LogVersion, of store: StoreAddress) -> Bool {
        proven[store]?.contains(log) ?? false
    }

    /// True if another comparison may say more.
    func mayCompare(_ log: StoreHazard.LogVersion, of store: StoreAddress) -> Bool {
        attempts[store]?[log] ?? 0 < Self.maximumAttempts
    }

    mutating func record(_ log: StoreHazard.LogVersion, of store: StoreAddress, isProven: Bool) {
        if isProven {
            proven[store] = (proven[store, default: []] + [log]).suffix(Self.capacity)
        } else {
            attempts[store, default: [:]][log, default: 0] += 1
        }
    }

    /// Forgets the attempts at all other logs of a store: no process has them open in these states.
    mutating func keepAttempts(at logs: Set<StoreHazard.LogVersion>, of store: StoreAddress) {
        attempts[store] = attempts[store].map { $0.filter { logs.contains($0.key) } }.flatMap { $0.isEmpty ? nil : $0 }
    }

    mutating func forget(_ store: StoreAddress) { (proven[store], attempts[store]) = (nil, nil) }
}

extension FollowedStores {
    /// Leaves out the hazards of processes that may be forked children, if the database has all of their logs, or had
    /// before a log was written for the last time.
    ///
    /// The database is opened and closed on this thread, as the store's other files are. Returns the stores that a
    /// relocation has: it must be the only one that opens them, and a later look tells.
    func leaveOutInheritedLogs(
        _ found: inout [StoreAddress: [StoreHazard]], of addresses: Set<StoreAddress>
    ) -> Set<StoreAddress> {
        var undecided: Set<StoreAddress> = []
        for address in addresses {
            let logs = Set((found[address] ?? []).filter(\.mayBeInherited).compactMap(\.logVersion))
            inheritedLogs.keepAttempts(at: logs, of: address)
            found[address]?.removeAll { hazard in
                guard hazard.mayBeInherited else { return false }
                let version = hazard.logVersion
                if let version {
                    if inheritedLogs.isProven(version, of: address) { return true }
                    guard inheritedLogs.mayCompare(version, of: address) else { return false }
                }
                guard released[address] == nil else {
                    undecided.insert(address)
                    return false
                }
                let isProven = isInDatabase(hazard, of: address)
                if let version {
                    inheritedLogs.record(version, of: address, isProven: isProven)
                } else if isProven {
                    // Remembered by a later look.
                    hazards.request(address, isUrgent: false)
                }
                return isProven
            }
        }
        return undecided
    }

    private func isInDatabase(_ hazard: StoreHazard, of address: StoreAddress) -> Bool {
        guard let store = stores[address], let directory = try? Directory(store.directory) else { return false }
        return hazard.isInDatabase(store.name, in: directory)
    }
}
