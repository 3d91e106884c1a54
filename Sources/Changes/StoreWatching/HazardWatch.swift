import AgentProtocol
import DirectoryWatching
import LinuxSystem
import SQLiteFormat
import StoreHazards

/// Which stores are in danger, and when to look again. A pure value.
///
/// A look follows an event that can have caused a hazard: a file that goes or comes at a store's names, a commit, a new
/// subscriber. While nothing happens there is none, unless a store is in danger: no event tells when that is over. A
/// warning waits for the next event.
struct HazardWatch {
    private(set) var known: [StoreAddress: [StoreHazard]] = [:]
    /// The stores to look at; true if a file went or came.
    private var requested: [StoreAddress: Bool] = [:]
    /// The stores with a new subscriber, which doesn't know the hazards yet.
    private var unannounced: Set<StoreAddress> = []
    private var isLooking = false
    /// The times of the last looks at each store.
    private var looks: [StoreAddress: Looks] = [:]
    private var lastLook: ContinuousClock.Instant?

    private struct Looks {
        var last: ContinuousClock.Instant
        /// The last ones that followed from a file that went or came.
        var urgent: [ContinuousClock.Instant] = []
    }

    /// The time between two looks at a store that aren't urgent.
    static let interval = Duration.seconds(1)
    /// The time between any two looks: each goes through all processes.
    static let shortestInterval = Duration.milliseconds(50)
    /// The number of urgent looks at a store in a row without that time between them. Programs that open and close a
    /// store for each commit remove its log each time.
    private static let maximumUrgent = 3

    /// - Parameter isUrgent: True for the event of a file that went or came.
    mutating func request(_ store: StoreAddress, isUrgent: Bool) {
        if requested[store] != true { requested[store] = isUrgent }
    }

    /// True if an event has come since the last look began.
    func isRequested(_ store: StoreAddress) -> Bool { requested[store] != nil }

    /// Requests a look for a new subscriber. It hears of the hazards that others know already.
    mutating func announce(_ store: StoreAddress) {
        unannounced.insert(store)
        request(store, isUrgent: true)
    }

    /// The time of the next look; nil if there is none to come.
    var due: ContinuousClock.Instant? {
        guard !isLooking else { return nil }
        let times =
            requested.map { due($0.key, isUrgent: $0.value) } + endangered.map { due($0, isUrgent: false) }
        guard let first = times.min() else { return nil }
        return lastLook.map { max(first, $0.advanced(by: Self.shortestInterval)) } ?? first
    }

    /// The stores of which commits can be lost now.
    private var endangered: [StoreAddress] {
        known.filter { $0.value.contains { !$0.code.isWarning } }.map(\.key)
    }

    private func due(_ store: StoreAddress, isUrgent: Bool) -> ContinuousClock.Instant {
        guard let looks = looks[store] else { return Self.start }
        let isFree =
            isUrgent
            && (looks.urgent.count < Self.maximumUrgent
                || looks.urgent[0].advanced(by: Self.interval * Self.maximumUrgent) <= .now)
        return isFree ? looks.last : looks.last.advanced(by: Self.interval)
    }

    /// A time that has passed.
    private static let start = ContinuousClock.now

    /// Begins a look at the requested stores and those in danger of which one is due, and returns them. A look at a
    /// file that went or came doesn't wait for looks at all others.
    mutating func begin(at now: ContinuousClock.Instant) -> Set<StoreAddress> {
        let stores = Set(requested.keys).union(endangered.filter { due($0, isUrgent: false) <= now })
        for store in stores {
            var looks = looks[store] ?? Looks(last: now)
            looks.last = now
            if requested[store] == true { looks.urgent = (looks.urgent + [now]).suffix(Self.maximumUrgent) }
            self.looks[store] = looks
        }
        (requested, isLooking, lastLook) = ([:], true, now)
        return stores
    }

    /// Ends a look. Returns what it says that wasn't known, in order.
    mutating func end(_ found: [StoreAddress: [StoreHazard]], of stores: Set<StoreAddress>) -> [(
        StoreAddress, StoreEvent
    )] {
        isLooking = false
        let isNew = unannounced.intersection(stores)
        unannounced.subtract(stores)
        var events: [(StoreAddress, StoreEvent)] = []
        for store in stores {
            let (former, now) = (known[store] ?? [], found[store] ?? [])
            for hazard in former where !now.contains(where: hazard.isSame) {
                events.append((store, .hazardOver(HazardDescription(hazard, isOver: true))))
            }
            for hazard in now where isNew.contains(store) || !former.contains(where: hazard.isSame) {
                events.append((store, .hazard(HazardDescription(hazard))))
            }
            known[store] = now.isEmpty ? nil : now
        }
        return events
    }

    /// Ends a look that couldn't be made, and requests another one.
    mutating func postpone(_ stores: Set<StoreAddress>) {
        isLooking = false
        for store in stores { request(store, isUrgent: false) }
    }

    mutating func forget(_ store: StoreAddress) {
        known[store] = nil
        requested[store] = nil
        looks[store] = nil
        unannounced.remove(store)
    }
}

extension StoreHazard {
    /// True for the same hazard in another look. A file that was renamed meanwhile is the same.
    fileprivate func isSame(_ other: StoreHazard) -> Bool {
        code == other.code && holder.pid == other.holder.pid && held.identity == other.held.identity
    }
}

extension HazardDescription {
    package init(_ hazard: StoreHazard, isOver: Bool = false) {
        self.init(
            code: hazard.code.rawValue, isWarning: hazard.code.isWarning,
            holder: StoreEvent.Holder(
                pid: hazard.holder.pid, program: hazard.holder.program, isElsewhere: hazard.holder.isElsewhere),
            path: hazard.held.path.bytes, inode: hazard.held.identity.inode,
            expectedInode: isOver ? nil : hazard.expected?.inode, message: isOver ? "" : hazard.message,
            hint: isOver ? "" : hazard.remedy)
    }
}

/// Looks for hazards to followed stores, on a thread of its own.
extension FollowedStores {
    /// Requests a look after an event of a store's file.
    func noteHazards(of store: FollowedStore, _ kinds: DirectoryEvent.Kinds) {
        let hasChangedName = !kinds.isDisjoint(with: DirectoryEvent.Kinds.arrived.union(.departed).union(.attributes))
        hazards.request(store.address, isUrgent: hasChangedName)
        // At once: by the time of the look, the new log may have another name.
        if !kinds.isDisjoint(with: .arrived), let directory = try? Directory(store.directory) {
            sideFiles.record(store.name, in: directory)
        }
    }

    /// Begins a look if one is due.
    func lookForHazards(_ now: ContinuousClock.Instant) {
        guard let due = hazards.due, due <= now else { return }
        let addresses = hazards.begin(at: now)
        let places = addresses.compactMap { address in stores[address].map { (address, $0.name, $0.directory) } }
        let branches = branches.all.filter { addresses.contains($0.store) }
        let isUnderWay = loop.lookout.perform { [loop, sideFiles, versions] in
            var found: [StoreAddress: [StoreHazard]] = [:]
            var (open, missed): ([(StoreAddress, StoreName, Directory)], Set<StoreAddress>) = ([], [])
            for (address, name, path) in places {
                do throws(SystemError) {
                    open.append((address, name, try Directory(path)))
                } catch {
                    if ResourceLimit(error) != nil { missed.insert(address) }
                }
            }
            let scan = HazardScan(open.map { ($0.1, $0.2) }, recordingIn: sideFiles, warningsBy: versions)
            for hazard in scan.hazards() {
                let place = open.first { $0.2.path.appending($0.1.database) == hazard.store }
                if let address = place?.0 { found[address, default: []].append(hazard) }
            }
            // Last: a branch that is over has no later commit.
            let commits = branches.map { ($0, $0.observer.poll()) }
            loop.perform { [found, missed] stores in
                stores.publish(commits)
                stores.adoptHazards(found, of: addresses.subtracting(missed))
                stores.hazards.postpone(missed)
            }
        }
        if !isUnderWay { hazards.postpone(addresses) }
    }

    private func adoptHazards(_ found: [StoreAddress: [StoreHazard]], of addresses: Set<StoreAddress>) {
        var found = found
        for address in addresses { followBranches(of: address, &found[address, default: []]) }
        for (address, event) in hazards.end(found, of: addresses) {
            guard let store = stores[address] else { continue }
            if case .hazard(let hazard) = event { log.write(.warning, "\(hazard.code): \(hazard.message)") }
            states.setHazards(hazards.known[address] ?? [], of: address)
            publish(event, of: store)
        }
    }
}
