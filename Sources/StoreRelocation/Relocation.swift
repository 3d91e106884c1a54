import FileCoordination
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Relocates one store: claims it, so that its presenters let go; takes the group's lock; finishes or undoes what an
/// earlier run left; looks, decides, and does it.
package struct Relocation {
    var request: RelocationRequest
    let registry: any PresenterRegistry
    let opener: (any StoreOpener)?
    let isCancelled: @Sendable () -> Bool
    let report: (RelocationEvent) -> Void
    /// Counted anew once presenters have let go, where they have a deadline of their own.
    private(set) var deadline: Deadline
    /// Held while `relocate` runs.
    private(set) var claim: RelocationClaim?

    /// `registry` knows the presenters that can be asked; `opener` is asked to let go of stores that this process has
    /// open itself. `isCancelled` ends all waiting, and what has not begun to leave its place.
    package init(
        _ request: RelocationRequest, registry: any PresenterRegistry = InProcessRegistry(),
        opener: (any StoreOpener)? = nil, isCancelled: @escaping @Sendable () -> Bool = { false },
        report: @escaping (RelocationEvent) -> Void = { _ in }
    ) {
        self.request = request
        self.registry = registry
        self.opener = opener
        self.isCancelled = isCancelled
        self.report = report
        deadline = Deadline(after: request.deadline)
    }

    /// Does it. Throws `RelocationFailure` and nothing else; both places are then as they were.
    package func run() throws(RelocationFailure) -> RelocationSummary {
        do {
            let places = try RelocationEndpoints(request)
            if request.transform != nil { relinquish(places) }
            let isOutdated = try content(of: places.group) != nil
            guard try isOutdated || patiently({ try places.isThereAnything() }) else {
                return summary(.nothingToDo, places)
            }
            guard try isOutdated || !places.isRelocatedByLink() else { return summary(.alreadyRelocated, places) }
            return try claimed(places.group.name.database, in: places.container).run(places)
        } catch is RelocationEndpoints.NoLegacyDirectory {
            guard let engine = forGroupsStore else { return noLegacyDirectory }
            var summary = try engine.transform()
            summary.from = request.source
            return summary
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    /// This engine under a claim of the store for moving: before the journal is even looked at, everybody who knows of
    /// claims has let go of it.
    func claimed(_ name: FilePath.Component, in container: GroupContainer) throws -> Relocation {
        var claimed = self
        let whole = request.claimDeadline.map { Deadline(after: $0) } ?? deadline
        claimed.claim = try RelocationClaim(
            container.item(name), in: container, registry, whole, isCancelled: isCancelled,
            report: { [report] in report(.waiting(for: $0)) })
        if request.claimDeadline != nil { claimed.deadline = Deadline(after: request.deadline) }
        return claimed
    }

    private func run(_ places: RelocationEndpoints) throws -> RelocationSummary {
        defer { claim?.end(published: false) }
        // Resolved anew: what recovery just finished may have put a symbolic link at the old name.
        return try locked(places.container, for: [places.legacy, places.group]) {
            let places = try RelocationEndpoints(request)
            try places.check(request.expected)
            var summary = try relocate(places)
            // What came before, or was there already, may be of an older model.
            if summary.outcome != .relocated, summary.outcome != .setAside {
                relinquish(places)
                defer { reacquire(places) }
                try transformInPlace(places, &summary)
            }
            return summary
        }
    }

    /// Whether nothing is there to be relocated, and nothing was interrupted.
    package var hasNothing: Bool {
        do {
            return try !RelocationEndpoints(request).isThereAnything()
        } catch {
            return error is RelocationEndpoints.NoLegacyDirectory
        }
    }

    /// Whether a relocation of this store was interrupted.
    package var isUnfinished: Bool {
        if let places = try? RelocationEndpoints(request) { return (try? places.isUnfinished()) ?? false }
        // Without the legacy directory, the group's store is what it concerned.
        guard let container = try? RelocationEndpoints.container(request.group),
            let name = request.name ?? request.source.lastComponent
        else { return false }
        return (try? WithdrawnDatabase.isUnfinished(name, in: container)) ?? false
    }

    /// What `run` would do, in a sentence; nothing is written, and no lock is taken.
    package func dryRun() throws(RelocationFailure) -> RelocationSummary {
        do {
            let places = try RelocationEndpoints(request)
            try places.check(request.expected)
            for journal in try places.container.journals() where try places.isUnfinished(journal) {
                report(.note("an interrupted relocation of \(PrintablePath(journal.transfer.name.path)) comes first"))
            }
            relinquish(places)
            defer { reacquire(places) }
            let decision = try RelocationDecision(places, request)
            return try prospect(decision)
        } catch is RelocationEndpoints.NoLegacyDirectory {
            guard let engine = forGroupsStore else { return noLegacyDirectory }
            do {
                var summary = try engine.prospectInPlace()
                summary.from = request.source
                return summary
            } catch {
                throw RelocationFailure(error, engine.request)
            }
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    func relinquish(_ places: RelocationEndpoints) {
        for store in [places.group, places.legacy] { opener?.relinquish(store.path) }
    }

    func reacquire(_ places: RelocationEndpoints) {
        for store in [places.group, places.legacy] { opener?.reacquire(store.path) }
    }

    private var noLegacyDirectory: RelocationSummary {
        let name = request.name ?? request.source.lastComponent ?? .currentDirectory
        return RelocationSummary(.nothingToDo, from: request.source, to: request.group.appending(name))
    }

    private func summary(
        _ outcome: RelocationSummary.Outcome, _ places: RelocationEndpoints, method: Transfer.Method? = nil
    ) -> RelocationSummary {
        var summary = RelocationSummary(outcome, from: request.source, to: places.group.path)
        summary.method = method
        return summary
    }

    /// Runs `body` as the only one who moves stores of this group, with nothing left of an interrupted run that touched one
    /// of `stores`. Where one of them stays open in some program, the group's others may be moved while this one waits;
    /// then `body` is run anew.
    func locked<Result>(
        _ container: GroupContainer, for stores: [StoreLocation], _ body: () throws -> Result
    ) throws -> Result {
        var sightings = HolderObservations()
        while true {
            do {
                return try exclusively(container) {
                    try Recovery(container: container, report: report).run(before: stores)
                    return try body()
                }
            } catch let setback as StoreTransfer.RetryReason where !deadline.hasPassed {
                try awaitRelease(of: stores, after: setback, &sightings)
            }
        }
    }

    /// Waits until nobody seems to have the store open that `setback` tells of. Throws `setback` at the deadline.
    private func awaitRelease(
        of stores: [StoreLocation], after setback: StoreTransfer.RetryReason, _ sightings: inout HolderObservations
    ) throws {
        // Longer than those wait between two tries who want the group's lock.
        pause(.milliseconds(30))
        guard case .held(let identity) = setback,
            let store = try stores.first(where: { try $0.directory.identity($0.name.database) == identity }),
            let descriptor = try? store.directory.open(store.name.database, flags: O_RDONLY)
        else { return }
        var wait = Duration.milliseconds(5)
        while true {
            guard !isCancelled() else { throw RelocationFailure.cancelled(request.source) }
            do {
                if let lease = try FileLease(descriptor) {
                    _ = consume lease
                    return
                }
            } catch {
                // Without leases: the transfer tells.
                return
            }
            guard !deadline.hasPassed else { throw setback }
            if wait >= .milliseconds(20) {
                let holders = FileHolder.of(identity)
                if sightings.isNews(holders) { report(.waiting(for: holders)) }
            }
            pause(wait)
            wait = min(wait * 2, .milliseconds(160))
        }
    }

    /// Runs `body` under the group's lock.
    func exclusively<Result>(_ container: GroupContainer, _ body: () throws -> Result) throws -> Result {
        var wait = Duration.milliseconds(1)
        let told = ContinuousClock.now.advanced(by: .milliseconds(300))
        var isTold = false
        while true {
            if let lock = try container.lock() {
                try lock.write(note: Array("\(getpid()) \(FileHolder.program(of: getpid()))".utf8))
                return try withExtendedLifetime(lock) { _ in try body() }
            }
            guard !isCancelled() else { throw RelocationFailure.cancelled(request.source) }
            guard !deadline.hasPassed else { throw RelocationFailure.lockHeld(by: container.lockHolder(), container) }
            if !isTold, told <= .now {
                isTold = true
                report(.note("waiting for another relocation in this group (process \(container.lockHolder()))"))
            }
            pause(wait)
            wait = min(wait * 2, .milliseconds(20))
        }
    }

    private func relocate(_ places: RelocationEndpoints) throws -> RelocationSummary {
        relinquish(places)
        defer { reacquire(places) }
        var givenUp: [ArchivedSet] = []
        do {
            while true {
                do {
                    return try relocate(places, &givenUp)
                } catch StoreTransfer.RetryReason.gone where !deadline.hasPassed {
                    // What is there now decides.
                }
            }
        } catch {
            restore(givenUp, places, after: error)
            throw error
        }
    }

    private func relocate(_ places: RelocationEndpoints, _ givenUp: inout [ArchivedSet]) throws -> RelocationSummary {
        var notes: [String] = []
        // Each round looks anew: archiving what is in the way is a transfer of its own.
        while true {
            let decision = try patiently { try RelocationDecision(places, request) }
            let content = decision.plan.movesLegacyStore ? try content(of: places.legacy) ?? .same : .same
            report(.plan(sentence(decision, content), bytesToCopy: decision.bytesToCopy))
            switch decision.plan {
            case .nothingToDo(let adopted):
                // What was to come has gone elsewhere meanwhile: what made room for it gets its place back.
                guard givenUp.isEmpty else { throw StoreTransfer.RetryReason.changed }
                var summary = summary(.nothingToDo, places)
                summary.notes = notes + (adopted ? ["no legacy store; the group's own is used"] : [])
                return summary
            case .alreadyRelocated:
                return summary(.alreadyRelocated, places)
            case .archiveLegacy(let reason):
                notes += try archive(places.legacy, decision.legacy, reason, decision, places)
                return finished(.alreadyRelocated, places, notes, nil)
            case .retireLegacy where request.retirement == .archive:
                let reason = "the group container has its rows already"
                notes += try archive(places.legacy, decision.legacy, reason, decision, places)
                return finished(.alreadyRelocated, places, notes, nil)
            case .retireLegacy:
                let done = try transfer(.discard, places.legacy, decision.legacy, decision)
                return finished(.alreadyRelocated, places, notes + done.notes, nil)
            case .relocate(.none):
                let done = try publish(content, places.legacy, decision.legacy, decision)
                return finished(.relocated, places, notes + done.notes, done)
            case .relocate(.remains):
                let id = TransferIdentifier()
                givenUp.append(.remains(id))
                notes += try LeftoverFiles(
                    container: places.container, store: places.group, id: id, drain: request.drain,
                    assumeClosed: request.assumeClosed
                ).setAside()
            case .relocate(.store(let reason)):
                let id = TransferIdentifier()
                givenUp.append(.store(id, hadWAL: decision.group.header?.journalMode == .writeAhead))
                notes += try archive(places.group, decision.group, reason, decision, places, id: id)
            case .conflict, .refuse:
                throw try decision.failure()
            }
        }
    }

    /// Looks until what is there can be read: somebody may write to it all the while, or another relocation has a lease
    /// of it and gives way at once.
    private func patiently<Result>(_ look: () throws -> Result) throws -> Result {
        while true {
            do {
                return try look()
            } catch {
                guard TransientObstacle.caused(error), !deadline.hasPassed else { throw error }
                guard !isCancelled() else { throw RelocationFailure.cancelled(request.source) }
                pause(.milliseconds(10))
            }
        }
    }

    private func finished(
        _ outcome: RelocationSummary.Outcome, _ places: RelocationEndpoints, _ notes: [String],
        _ done: StoreTransfer.Done?
    ) -> RelocationSummary {
        var summary = summary(done?.setAside == nil ? outcome : .setAside, places, method: done?.method)
        summary.setAside = done?.setAside
        summary.bytes = done?.bytes ?? 0
        summary.transformed = done?.transformed
        summary.losses = done?.transformed?.losses ?? .none
        summary.archive = done?.archive
        summary.notes = notes
        return summary
    }

    private func archive(
        _ store: StoreLocation, _ sighting: StoreSnapshot, _ reason: String, _ decision: RelocationDecision,
        _ places: RelocationEndpoints, id: TransferIdentifier = TransferIdentifier()
    ) throws -> [String] {
        let done = try transfer(.archive(reason: reason), store, sighting, decision, id: id)
        let archive = places.container.archivePath(id)
        return ["\(PrintablePath(store.path)) is archived in \(PrintablePath(archive)): \(reason)"] + done.notes
    }

    /// `content` is what is published in its place, for a transfer that publishes. A store that gets its own name again
    /// keeps its external data, unless it is another store that gets it.
    func transfer(
        _ purpose: Transfer.Purpose, _ store: StoreLocation, _ sighting: StoreSnapshot,
        _ decision: RelocationDecision, id: TransferIdentifier = TransferIdentifier(),
        content: PublishedContent = .same, inPlace: Bool = false
    ) throws -> StoreTransfer.Done {
        guard let database = sighting.status?.identity else { throw StoreTransfer.RetryReason.changed }
        let keepsSupport = inPlace && content.reason == nil
        let losses = content.isTransformed ? decision.losses : .none
        if !keepsSupport || !losses.isEmpty { try store.checkExternalDataIsItsOwn() }
        var transfer = Transfer(
            id: id, purpose: purpose, directory: store.directory.path, name: store.name.database,
            database: database, support: keepsSupport ? nil : sighting.support?.identity, copies: content.isNew,
            retirement: inPlace ? .delete : request.retirement(after: losses),
            hadWAL: sighting.header?.journalMode == .writeAhead)
        switch purpose {
        case .publish where sighting.header != nil:
            transfer.arrivesInWAL = request.journalMode.map { $0 == .writeAhead }
        case .archive, .discard:
            let places = decision.places
            if store.path == places.legacy.path {
                transfer.successor = StoredPath(FilePath(root: nil, [places.group.name.database]))
            }
        case .publish, .restore: break
        }
        var options = options(opaque: sighting.header == nil)
        options.content = content
        options.losses = losses
        return try StoreTransfer(
            transfer, source: store, container: decision.places.container, options: options,
            isStillWanted: { try decision.stillHolds(for: purpose, store) },
            keepsOther: { try decision.keepsOther(purpose, store) }, report: report
        ).run()
    }

    func options(opaque: Bool) -> StoreTransfer.Options {
        StoreTransfer.Options(
            deadline: deadline, drain: request.drain, assumeClosed: request.assumeClosed, opaque: opaque,
            isCancelled: isCancelled, published: { claim?.end(published: true) })
    }
}
