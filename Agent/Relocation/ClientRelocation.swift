import AgentProtocol
import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage

/// Relocations that clients request.
extension RelocationScheduler {
    /// Returns what a client's relocation touches, and the wire address of the store that it makes.
    func keysAndAddress(
        of operation: RelocateOperation, _ configuration: Configuration
    ) -> (Set<RelocationKey>, StoreAddress?) {
        guard let request = try? RelocationRequest(operation),
            let name = request.name ?? request.source.lastComponent
        else { return ([], nil) }
        let keys = RelocationKey.of(request.source).union(RelocationKey.of(request.group.appending(name)))
        return (keys, configuration.address(of: request))
    }

    func relocate(
        _ operation: RelocateOperation, configuration: Configuration,
        isAbandoned: @escaping @Sendable () -> Bool,
        events: @escaping @Sendable (RelocateAnswer) -> Void
    ) {
        do throws(WireError) {
            var request = try RelocationRequest(operation)
            if operation.undo { request = Relocation.namingStore(of: request) }
            let store = configuration.address(of: request)
            request.identifier = store.flatMap { GroupIdentifier($0.group) }
            request.knownGroups = configuration.groupsByDirectory
            let configured = store.flatMap { store in
                FilePath.Component(bytes: store.name).flatMap { configuration.group(store.group)?.store(named: $0) }
            }
            if configured?.assumesClosed(request.source, request.group) == true { request.assumeClosed = true }
            if let store, !operation.dryRun { announcements.relocating(store, waitingFor: []) }
            let started = ContinuousClock.now
            let opener = FeedOpener(feed: feed, store: store, source: configuration.address(of: request.source))
            let migrationRequest = try operation.migration ?? configured?.migration
            var announced: StoreEvent?
            var migrated: StoreEvent?
            do throws(RelocationFailure) {
                if let migration = migrationRequest {
                    try request.migrate(
                        migration, isCancelled: { [isStopping] in isStopping.isSet || isAbandoned() },
                        faultHandler: { fault in
                            for members in fault.members { events(.progress(type: "fault", members)) }
                        })
                }
                do throws(WireError) {
                    try request.merge(operation) { [isStopping] in isStopping.isSet || isAbandoned() }
                } catch {
                    throw RelocationFailure(.badData, code: error.code, error.message, remedy: error.hint ?? "")
                }
                request.journalMode = request.journalMode ?? configured?.journalMode
                let engine = engine(request, opener, isAbandoned: isAbandoned) { [announcements] event in
                    if let line = event.line { events(.progress(type: line.type, line.members)) }
                    if let store, !operation.dryRun, let progress = StoreProgress(event) {
                        announcements.progress(progress, of: store)
                    }
                }
                let places =
                    operation.undo
                    ? [request.source] + Relocation.undoPlaces(of: request.source)
                    : [request.group.appending(request.name ?? request.source.lastComponent ?? ".")]
                try configuration.checkNotConfiguredAsLegacy(places)
                let summary =
                    operation.undo ? try engine.undo() : operation.dryRun ? try engine.dryRun() : try engine.run()
                // The store is no longer in the group.
                announced = operation.undo ? .reset(.vanished) : summary.event
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

extension Configuration {
    /// Throws `RelocationFailure` if the agent would at once relocate a store again that is moved to one of the places.
    fileprivate func checkNotConfiguredAsLegacy(_ places: [FilePath]) throws(RelocationFailure) {
        let keys = places.map(RelocationKey.of)
        for group in groups {
            for store in group.stores {
                guard
                    let path = store.legacy.first(where: { places.contains($0) || keys.contains(RelocationKey.of($0)) })
                else { continue }
                throw RelocationFailure(
                    .busy, code: "agent_serves",
                    "the agent's configuration names \(PrintablePath(path)) as a legacy path of "
                        + "\(group.identifier.rawValue)/\(PrintablePath(store.name.database)): it would relocate the store "
                        + "again at once",
                    remedy: "\(reconfiguration(without: path)), or stop the agent; then run this again")
            }
        }
    }

    /// Returns what removes a legacy path from the configuration.
    private func reconfiguration(without path: FilePath) -> String {
        guard !files.isEmpty else { return "start the agent without --legacy \(path.shellWord)" }
        let names = files.map { PrintablePath($0).description }
        return "remove it from \(names.joined(separator: " or ")) and run: kill -HUP \(getpid())"
    }
}
