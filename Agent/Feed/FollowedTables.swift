import AgentProtocol
import ChangeFeed
import DirectoryWatching
import LinuxSystem
import SQLiteFormat

/// A subscription's answer that waits for a survey.
struct PendingAnswers {
    let until: ContinuousClock.Instant
    var answers: [(FollowedStores) -> Void] = []

    /// How long the answer may wait. A store of some hundred megabytes is surveyed in half a second; a larger one's first changes
    /// can't say which tables. A small one takes milliseconds, and longer only while others have the processor.
    static func patience(storeSize: Int64) -> Duration {
        storeSize <= smallStore ? .seconds(2) : .milliseconds(500)
    }

    private static let smallStore: Int64 = 16 << 20
}

/// Finding out which tables change, where somebody is subscribed.
extension FollowedStores {
    /// Gives another thread what there is to be read of the store, and sees to it that it is looked at again when it is
    /// to be read later.
    func survey(_ store: FollowedStore) {
        if let survey = store.survey() {
            let isUnderWay = surveyor.perform(survey) { [perform, address = store.address] in
                perform { $0.adopt(survey, of: address) }
            }
            if !isUnderWay { store.wantsTables = false }
        }
        if store.lookAt == nil { expecting.remove(store.address) } else { expecting.insert(store.address) }
    }

    private func adopt(_ survey: PageMapScan, of address: StoreAddress) {
        if let store = stores[address] {
            store.adopt(survey)
            self.survey(store)
            if store.isSurveying { return }
        }
        answer(address)
    }

    /// Follows a store for a subscriber who wants to know which tables change. True when its answer is to wait in `waiting`.
    func waitsForSurvey(_ address: StoreAddress) -> Bool {
        if waiting[address] != nil { return true }
        follow(address)
        guard let store = stores[address], !store.wantsTables else { return false }
        store.wantsTables = true
        guard isFollowed(address) else { return false }
        // A program that has just opened the store has made what is to be read.
        if readAhead(of: store) != nil { handle([]) }
        survey(store)
        guard store.isSurveying else { return false }
        let patience = PendingAnswers.patience(storeSize: FileStatus(following: store.path)?.size ?? 0)
        waiting[address] = PendingAnswers(until: .now.advanced(by: patience))
        return true
    }

    /// Lets the subscriptions that wait have their answers now.
    func answer(_ address: StoreAddress) {
        for answer in waiting.removeValue(forKey: address)?.answers ?? [] { answer(self) }
    }

    /// Takes what is there as known, as `FollowedStore.attach` does, and finds out its tables anew.
    func attach(_ store: FollowedStore) {
        store.attach()
        watchDatabase(of: store)
        survey(store)
    }

    /// Takes in what the kernel has queued, to be handled in turn, and returns what of it is about the store's side
    /// files; nil when something was lost, or there is no end of it.
    func readAhead(of store: FollowedStore) -> SideFileEventCounts? {
        for _ in 0..<Self.longestReadAhead {
            guard let more = try? source.next(timeout: .zero) else { return nil }
            if more.isEmpty { return unnoted(of: store) }
            unhandled += more
        }
        return nil
    }

    private static let longestReadAhead = 64

    private func unnoted(of store: FollowedStore) -> SideFileEventCounts? {
        var found = SideFileEventCounts()
        for notice in unhandled {
            switch notice {
            case .event(let event):
                for (followed, part) in parts[event.directory]?[event.name] ?? [] where followed === store {
                    found.note(part, event.kinds)
                }
            case .overflow, .directoryAppeared, .directoryVanished, .unwatchable: return nil
            case .directoryChanged, .woken: break
            }
        }
        return found
    }
}

extension SideFileEventCounts {
    fileprivate mutating func note(_ part: StorePart, _ kinds: DirectoryEvent.Kinds) {
        note(part, created: !kinds.isDisjoint(with: .arrived), modified: kinds.contains(.modified))
    }
}
