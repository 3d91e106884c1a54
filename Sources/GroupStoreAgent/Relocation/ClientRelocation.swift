import AgentProtocol
import GroupContainer
import StorePreparation
import StoreRelocation
import SystemPackage

/// Relocations that clients ask for.
extension RelocationScheduler {
    func relocate(
        _ operation: RelocateOperation, _ configuration: Configuration,
        _ isAbandoned: @escaping @Sendable () -> Bool,
        _ events: @escaping @Sendable (RelocateAnswer) -> Void
    ) {
        do throws(WireError) {
            var request = try RelocationRequest(operation)
            let store = configuration.address(of: request)
            request.identifier = store.flatMap { GroupIdentifier($0.group) }
            let configured = store.flatMap { store in
                FilePath.Component(bytes: store.name).flatMap { configuration.group(store.group)?.store(named: $0) }
            }
            if let store, !operation.dryRun { announcements.relocating(store, waitingFor: []) }
            let started = ContinuousClock.now
            let opener = FeedOpener(feed: feed, store: store, source: configuration.address(of: request.source))
            let asked = try operation.migration ?? configured?.migration
            var announced: StoreEvent?
            var migrated: StoreEvent?
            do throws(RelocationFailure) {
                if let migration = asked {
                    try request.migrate(migration, isCancelled: { [isStopping] in isStopping.isSet || isAbandoned() })
                }
                request.journalMode = request.journalMode ?? configured?.journalMode
                let engine = engine(request, opener, isAbandoned: isAbandoned) { event in
                    if let line = event.line { events(.progress(type: line.type, line.members)) }
                }
                let summary = operation.dryRun ? try engine.dryRun() : try engine.run()
                announced = summary.event
                migrated = summary.migration
                events(
                    .summary(
                        summary.members(seconds: started.duration(to: .now).seconds, dryRun: operation.dryRun)))
            } catch {
                announced = error.event
                events(.summary(error.members(source: request.source, seconds: started.duration(to: .now).seconds)))
            }
            if let store, !operation.dryRun { announcements.ended(store) }
            opener.resume(announcing: operation.dryRun ? nil : announced)
            if let store, let migrated { feed.announce(migrated, of: store) }
        } catch {
            events(.refused(error))
        }
    }
}
