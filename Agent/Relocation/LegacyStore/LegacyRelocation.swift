import AgentProtocol
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage

/// A configured store's place, for the thread that relocates it.
struct LegacyStoreLocation: Sendable {
    let address: StoreAddress
    let group: FilePath
    let path: FilePath
    let configuration: Configuration.Store
    let claimDeadline: Duration
    let keys: Set<RelocationKey>

    init(_ store: LegacyStore, _ claimDeadline: Duration) {
        address = store.address
        group = store.file.group
        path = store.file.path
        configuration = store.configuration
        self.claimDeadline = claimDeadline
        keys = RelocationKey.of(path).union(RelocationKey.of(group.appending(configuration.name.database)))
    }
}

/// The configured stores' relocations, on a worker's thread.
extension RelocationScheduler {
    /// `last`: the failure that this is tried again after, for no other reason than that time has passed.
    func relocate(
        _ place: LegacyStoreLocation, after last: LegacyStore.Failure?
    ) -> Result<RelocationSummary, RelocationFailure> {
        let opener = FeedOpener(feed: feed, store: place.address)
        do throws(RelocationFailure) {
            let request = try request(for: place)
            if last != nil { try rehearse(request, place) }
            let summary = try engine(request, opener).run()
            announcements.ended(place.address)
            opener.resume(announcing: summary.event)
            if let migration = summary.migration { feed.announce(migration, of: place.address) }
            return .success(summary)
        } catch {
            // Whoever is in the way is waited for: that it is not over yet is told when it is known who they are.
            let isOver = error.kind != .busy
            if isOver { announcements.ended(place.address) }
            let isNews = isOver && LegacyStore.Failure(error) != last
            opener.resume(announcing: isNews ? error.event : nil)
            return .failure(error)
        }
    }

    /// Nobody is asked to let go before it is seen that the reason for the last failure is gone.
    private func rehearse(_ request: RelocationRequest, _ place: LegacyStoreLocation) throws(RelocationFailure) {
        let opener = FeedOpener(feed: feed, store: place.address)
        defer { opener.resume(announcing: nil) }
        _ = try engine(request, opener).dryRun()
    }

    func request(for place: LegacyStoreLocation) throws(RelocationFailure) -> RelocationRequest {
        let configuration = place.configuration
        var request = RelocationRequest(source: place.path, group: place.group)
        request.name = configuration.name.database
        request.onConflict = configuration.onConflict
        request.retirement = configuration.retirement
        request.journalMode = configuration.journalMode
        request.identifier = GroupIdentifier(place.address.group)
        request.claimDeadline = place.claimDeadline
        // Whoever opens it in this instant is waited for by their close's event, not here, while presenters wait.
        request.deadline = .milliseconds(presenting(place.address).isEmpty ? 100 : 1000)
        if let migration = configuration.migration {
            try request.migrate(migration, isCancelled: { [isStopping] in isStopping.isSet })
        }
        return request
    }

    func engine(
        _ request: RelocationRequest, _ opener: FeedOpener, isAbandoned: @escaping @Sendable () -> Bool = { false },
        report: @escaping (RelocationEvent) -> Void = { _ in }
    ) -> Relocation {
        Relocation(
            request, registry: presenters, opener: opener,
            isCancelled: { [isStopping] in isStopping.isSet || isAbandoned() },
            report: report)
    }
}
