import FileCoordination
import Glibc
import GroupContainer
import LinuxSystem
import PersistentStore
import SystemPackage

/// Relocates one store: claims it, so that its presenters let go; takes the group's lock; finishes or undoes what an
/// earlier run left; looks, decides, and does it.
package struct RelocationEngine {
    private let request: RelocationRequest
    private let registry: any PresenterRegistry
    private let opener: (any StoreOpener)?
    private let isCancelled: @Sendable () -> Bool
    private let report: (RelocationEvent) -> Void

    /// `registry` knows the presenters that can be asked; `opener` is asked to let go of stores that this process has
    /// open itself. `isCancelled` ends the waiting for presenters and claims.
    package init(
        _ request: RelocationRequest, registry: any PresenterRegistry = MemoryRegistry(),
        opener: (any StoreOpener)? = nil, isCancelled: @escaping @Sendable () -> Bool = { false },
        report: @escaping (RelocationEvent) -> Void = { _ in }
    ) {
        self.request = request
        self.registry = registry
        self.opener = opener
        self.isCancelled = isCancelled
        self.report = report
    }

    /// Does it. Throws `RelocationFailure` and nothing else; both places are then as they were.
    package func run() throws(RelocationFailure) -> RelocationSummary {
        do {
            let places = try RelocationPlaces(request)
            guard try places.isThereAnything() else { return summary(.nothingToDo, places) }
            guard try !places.isRelocatedByLink() else { return summary(.alreadyRelocated, places) }
            return try claimed(places) { deadline, claim in
                // Resolved anew: what recovery just finished may have put a symbolic link at the old name.
                try locked(places.container, deadline) { try relocate(RelocationPlaces(request), deadline, claim) }
            }
        } catch is RelocationPlaces.NoLegacyDirectory {
            return noLegacyDirectory
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    /// What `run` would do, in a sentence; nothing is written, and no lock is taken.
    package func dryRun() throws(RelocationFailure) -> RelocationSummary {
        do {
            let places = try RelocationPlaces(request)
            if let journal = try places.container.journal() {
                report(.note("an interrupted relocation of \(PrintablePath(journal.transfer.name.path)) comes first"))
            }
            relinquish(places)
            defer { reacquire(places) }
            let decision = try RelocationDecision(places, request)
            report(.plan(decision.sentence, bytesToCopy: decision.bytesToCopy))
            switch decision.plan {
            case .conflict, .refuse: throw try decision.failure()
            case .alreadyRelocated, .archiveLegacy, .retireLegacy: return summary(.alreadyRelocated, places)
            case .nothingToDo: return summary(.nothingToDo, places)
            case .relocate: return summary(.relocated, places, method: decision.needsCopy ? .copy : .rename)
            }
        } catch is RelocationPlaces.NoLegacyDirectory {
            return noLegacyDirectory
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    private func relinquish(_ places: RelocationPlaces) {
        for store in [places.group, places.legacy] { opener?.relinquish(store.path) }
    }

    private func reacquire(_ places: RelocationPlaces) {
        for store in [places.group, places.legacy] { opener?.reacquire(store.path) }
    }

    private var noLegacyDirectory: RelocationSummary {
        let name = request.name ?? request.source.lastComponent ?? .currentDirectory
        return RelocationSummary(.nothingToDo, from: request.source, to: request.group.appending(name))
    }

    private func summary(
        _ outcome: RelocationSummary.Outcome, _ places: RelocationPlaces, method: Transfer.Method? = nil
    ) -> RelocationSummary {
        var summary = RelocationSummary(outcome, from: request.source, to: places.group.path)
        summary.method = method
        return summary
    }

    /// Runs `body` under a claim of the store for moving: before the journal is even looked at, everybody who knows of
    /// claims has let go of it.
    private func claimed(
        _ places: RelocationPlaces, _ body: (Deadline, RelocationClaim) throws -> RelocationSummary
    ) throws -> RelocationSummary {
        let whole = Deadline(after: request.claimDeadline ?? request.deadline)
        let claim = try RelocationClaim(
            places.container.item(places.group.name.database), in: places.container, registry,
            ClaimWait(whole, isCancelled: isCancelled))
        defer { claim.end(published: false) }
        return try body(request.claimDeadline == nil ? whole : Deadline(after: request.deadline), claim)
    }

    /// Runs `body` as the only one who moves stores of this group.
    private func locked<Result>(
        _ container: GroupContainer, _ deadline: Deadline, _ body: () throws -> Result
    ) throws -> Result {
        var wait = Duration.milliseconds(1)
        while true {
            if let lock = try container.lock() {
                try lock.write(note: Array("\(getpid()) \(FileHolder.program(of: getpid()))".utf8))
                return try withExtendedLifetime(lock) { _ in
                    try Recovery(container: container, report: report).run()
                    return try body()
                }
            }
            guard !deadline.hasPassed else { throw RelocationFailure.lockHeld(by: container.lockHolder(), container) }
            pause(wait)
            wait = min(wait * 2, .milliseconds(20))
        }
    }

    private func relocate(
        _ places: RelocationPlaces, _ deadline: Deadline, _ claim: RelocationClaim
    ) throws -> RelocationSummary {
        relinquish(places)
        defer { reacquire(places) }
        var notes: [String] = []
        // Each round looks anew: archiving what is in the way is a transfer of its own.
        while true {
            let decision = try RelocationDecision(places, request)
            report(.plan(decision.sentence, bytesToCopy: decision.bytesToCopy))
            switch decision.plan {
            case .nothingToDo(let adopted):
                var summary = summary(.nothingToDo, places)
                summary.notes = notes + (adopted ? ["no legacy store; the group's own is used"] : [])
                return summary
            case .alreadyRelocated:
                return summary(.alreadyRelocated, places)
            case .archiveLegacy(let reason):
                notes += try archive(places.legacy, decision.legacy, reason, decision, places, deadline)
                return finished(.alreadyRelocated, places, notes, nil)
            case .retireLegacy:
                let done = try transfer(.discard, places.legacy, decision.legacy, decision, deadline)
                return finished(.alreadyRelocated, places, notes + done.notes, nil)
            case .relocate(.none):
                let done = try transfer(
                    .publish(as: StoredPath(FilePath(root: nil, [places.group.name.database]))), places.legacy,
                    decision.legacy, decision, deadline, published: { claim.end(published: true) })
                return finished(.relocated, places, notes + done.notes, done)
            case .relocate(.remains):
                notes += try Remains(container: places.container, store: places.group).setAside()
            case .relocate(.store(let reason)):
                notes += try archive(places.group, decision.group, reason, decision, places, deadline)
            case .conflict, .refuse:
                throw try decision.failure()
            }
        }
    }

    private func finished(
        _ outcome: RelocationSummary.Outcome, _ places: RelocationPlaces, _ notes: [String], _ done: StoreTransfer.Done?
    ) -> RelocationSummary {
        var summary = summary(outcome, places, method: done?.method)
        summary.bytes = done?.bytes ?? 0
        summary.notes = notes
        return summary
    }

    private func archive(
        _ store: StoreLocation, _ sighting: StoreSighting, _ reason: String, _ decision: RelocationDecision,
        _ places: RelocationPlaces, _ deadline: Deadline
    ) throws -> [String] {
        let id = TransferIdentifier()
        let done = try transfer(.archive(reason: reason), store, sighting, decision, deadline, id: id)
        let archive = try places.container.archive(id).path
        return ["\(PrintablePath(store.path)) is archived in \(PrintablePath(archive)): \(reason)"] + done.notes
    }

    private func transfer(
        _ purpose: Transfer.Purpose, _ store: StoreLocation, _ sighting: StoreSighting,
        _ decision: RelocationDecision, _ deadline: Deadline, id: TransferIdentifier = TransferIdentifier(),
        published: @escaping () -> Void = {}
    ) throws -> StoreTransfer.Done {
        guard let database = sighting.status?.identity else { throw StoreTransfer.Setback.changed }
        let transfer = Transfer(
            id: id, purpose: purpose, directory: store.directory.path, name: store.name.database,
            database: database, support: sighting.support?.identity, copies: false, retirement: request.retirement,
            hadWAL: sighting.header?.journalMode == .writeAhead)
        let options = StoreTransfer.Options(
            deadline: deadline, drain: request.drain, assumeClosed: request.assumeClosed,
            opaque: sighting.header == nil, published: published)
        return try StoreTransfer(
            transfer, source: store, container: decision.places.container, options: options,
            isStillWanted: { try decision.stillHolds(for: purpose, store) }, report: report
        ).run()
    }
}
