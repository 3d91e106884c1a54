import AgentProtocol
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage

/// A configured store's location, for the thread that relocates it.
struct LegacyStoreLocation: Sendable {
    let address: StoreAddress
    let group: FilePath
    let path: FilePath
    let configuration: Configuration.Store
    let claimDeadline: Duration
    /// The served groups. The store may be in one of them.
    let groups: [FileIdentity: GroupIdentifier]
    let keys: Set<RelocationKey>

    init(_ store: LegacyStore, _ claimDeadline: Duration, _ groups: [FileIdentity: GroupIdentifier]) {
        address = store.address
        group = store.file.group
        path = store.file.path
        configuration = store.configuration
        self.claimDeadline = claimDeadline
        self.groups = groups
        keys = RelocationKey.of(path).union(RelocationKey.of(group.appending(configuration.name.database)))
    }
}

/// The configured stores' relocations, on a worker's thread.
extension RelocationScheduler {
    /// Relocates the store. `last`: the failure that is retried only because time has passed.
    func relocate(
        _ location: LegacyStoreLocation, after last: LegacyStore.Failure?
    ) -> Result<RelocationSummary, RelocationFailure> {
        let opener = FeedOpener(feed: feed, store: location.address)
        do throws(RelocationFailure) {
            let request = try request(for: location)
            if last != nil { try rehearse(request, location) }
            let engine = engine(
                request, opener,
                report: { [announcements] event in
                    if let progress = StoreProgress(event) { announcements.progress(progress, of: location.address) }
                })
            let summary = try engine.run()
            announcements.ended(location.address)
            opener.resume(announcing: summary.event)
            if let migration = summary.migration { feed.announce(migration, of: location.address) }
            return .success(summary)
        } catch {
            // A busy store is waited for: the announcement follows once the holders are known.
            let isOver = error.kind != .busy
            if isOver { announcements.ended(location.address) }
            let isNew = isOver && LegacyStore.Failure(error) != last
            opener.resume(announcing: isNew ? error.event : nil)
            return .failure(error)
        }
    }

    /// Checks that the reason for the last failure is gone, before presenters are asked to release the store.
    private func rehearse(_ request: RelocationRequest, _ location: LegacyStoreLocation) throws(RelocationFailure) {
        let opener = FeedOpener(feed: feed, store: location.address)
        defer { opener.resume(announcing: nil) }
        _ = try engine(request, opener).dryRun()
    }

    func request(for location: LegacyStoreLocation) throws(RelocationFailure) -> RelocationRequest {
        let configuration = location.configuration
        var request = RelocationRequest(source: location.path, group: location.group)
        request.name = configuration.name.database
        request.onConflict = configuration.onConflict
        request.retirement = configuration.retirement
        request.journalMode = configuration.journalMode
        request.identifier = GroupIdentifier(location.address.group)
        request.knownGroups = location.groups
        request.assumeClosed = configuration.assumesClosed(location.path, location.group)
        request.claimDeadline = location.claimDeadline
        // A program that opens it at this instant is waited for by its close event, not here while presenters wait.
        request.deadline = .milliseconds(presenting(location.address).isEmpty ? 100 : 1000)
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

extension Configuration.Store {
    /// True if the configuration asserts that the store is closed, and one of the two places is on a file system where
    /// that can't be proved. Elsewhere it is proved in any case.
    func assumesClosed(_ store: FilePath, _ group: FilePath) -> Bool {
        assumeClosed
            && [store.removingLastComponent(), group].contains { directory in
                switch (try? Directory(directory).fileSystem())?.reach {
                case .userSpace, .overlay: true
                case .local, .network, nil: false
                }
            }
    }
}
