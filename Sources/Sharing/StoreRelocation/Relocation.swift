import FileCoordination
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Relocates one store into a group container: request → plan → run.
///
/// The `RelocationRequest` names the store and the group. A run claims the store, so that its presenters relinquish it,
/// acquires the group's lock, finishes or undoes an interrupted run, then plans and performs the plan's transfers
/// (`performPlans`), each with the steps of `StoreTransfer.attempt`. A `RelocationDecision` inspects both places and
/// makes the `RelocationPlan`, a pure function of what was found.
package struct Relocation {
    var request: RelocationRequest
    let registry: any PresenterRegistry
    let opener: (any StoreOpener)?
    let report: (RelocationEvent) -> Void
    /// Its deadline is restarted once presenters have relinquished, if they have a deadline of their own.
    private(set) var retries: RetryPolicy
    /// Survives the attempts of one run.
    private let mergeProgress = MergeProgress()
    /// Held while `relocate` runs.
    private(set) var claim: RelocationClaim?

    /// Creates a relocation that does nothing yet.
    ///
    /// - Parameters:
    ///   - registry: The presenters that can be asked to relinquish the store.
    ///   - opener: Closes stores that this process has open itself.
    ///   - isCancelled: Polled while waiting. Cancels a transfer until its store begins to leave its place.
    ///   - report: Receives the progress, on the calling thread.
    package init(
        _ request: RelocationRequest, registry: any PresenterRegistry = InProcessRegistry(),
        opener: (any StoreOpener)? = nil, isCancelled: @escaping @Sendable () -> Bool = { false },
        report: @escaping (RelocationEvent) -> Void = { _ in }
    ) {
        self.request = request
        self.registry = registry
        self.opener = opener
        self.report = report
        retries = RetryPolicy(Deadline(after: request.deadline), isCancelled: isCancelled)
    }

    /// True if there is nothing to relocate and nothing was interrupted.
    package var hasNothingToDo: Bool {
        do {
            return try !RelocationEndpoints(request).hasWork()
        } catch {
            return error is RelocationEndpoints.NoLegacyDirectory
        }
    }

    /// True if a relocation of this store was interrupted.
    package var isUnfinished: Bool {
        if let endpoints = try? RelocationEndpoints(request) { return (try? endpoints.isUnfinished()) ?? false }
        // Without the legacy directory, check the group's store alone.
        guard let container = try? RelocationEndpoints.container(request.group),
            let name = request.name ?? request.source.lastComponent
        else { return false }
        return (try? WithdrawnDatabase.isUnfinished(name, in: container)) ?? false
    }

    // MARK: - Run

    /// Runs the relocation. Throws only `RelocationFailure`; both places are then unchanged.
    package func run() throws(RelocationFailure) -> RelocationSummary {
        do {
            let endpoints = try RelocationEndpoints(request)
            if request.transform != nil { relinquish(endpoints) }
            var relocation = planned(for: endpoints.group)
            let isOutdated = try relocation.content(of: endpoints.group) != nil
            guard try isOutdated || inspecting({ try endpoints.hasWork() }) else {
                return summary(.nothingToDo, endpoints)
            }
            guard try isOutdated || !endpoints.isRelocatedByLink() else { return summary(.alreadyRelocated, endpoints) }
            if !isOutdated { try relocation.checkPresentersBeforeClaim(endpoints) }
            return try relocation.claiming(
                endpoints.group.name.database, in: endpoints.container, from: endpoints.legacy
            ).run(endpoints)
        } catch is RelocationEndpoints.NoLegacyDirectory {
            guard let relocation = forGroupStoreOnly else { return noLegacyDirectory }
            var summary = try relocation.transform()
            summary.from = request.source
            return summary
        } catch {
            throw RelocationFailure(mergeProgress.unfinished(after: error), request)
        }
    }

    /// Returns this relocation with a claim of the store for moving. The claim precedes even the first look at the
    /// journal: by then every process that uses claims has relinquished the store.
    ///
    /// - Parameter source: The store's old location. If that is in another group container, the store is claimed there
    ///   too: programs present it under that group's name.
    func claiming(
        _ name: FilePath.Component, in container: GroupContainer, from source: StoreLocation? = nil
    ) throws -> Relocation {
        var claiming = self
        let claimDeadline = request.claimDeadline.map { Deadline(after: $0) } ?? retries.deadline
        let destination = RelocationClaim.Place(
            item: container.item(name), container: container, registry: registry, isDestination: true)
        let former = try source.flatMap { try placeLeft($0, for: container) }
        claiming.claim = try RelocationClaim(
            [destination] + (former.map { [$0] } ?? []), deadline: claimDeadline, isCancelled: retries.isCancelled,
            report: { [report] in report(.waiting(for: $0)) })
        if request.claimDeadline != nil {
            claiming.retries = RetryPolicy(Deadline(after: request.deadline), isCancelled: retries.isCancelled)
        }
        return claiming
    }

    /// Returns the store's place in the group container that it leaves; nil if it is in none, or isn't there.
    private func placeLeft(
        _ source: StoreLocation, for destination: GroupContainer
    ) throws -> RelocationClaim.Place? {
        let identifier = request.knownGroups[source.directory.identity]
        let container = GroupContainer(directory: source.directory, identifier: identifier)
        guard source.directory.identity != destination.directory.identity,
            try source.directory.status(source.name.database) != nil,
            try identifier != nil || container.existingBookkeeping() != nil
        else { return nil }
        // Without its group's name, nobody can be asked: only the locks are waited for.
        let registry: any PresenterRegistry = identifier == nil ? InProcessRegistry() : registry
        return RelocationClaim.Place(
            item: container.item(source.name.database), container: container, registry: registry,
            isDestination: false)
    }

    private func run(_ endpoints: RelocationEndpoints) throws -> RelocationSummary {
        defer { claim?.end(published: false) }
        return try withGroupLock(endpoints.container, afterRecovering: [endpoints.legacy, endpoints.group]) {
            // Resolve the paths again: recovery may have put a symbolic link at the old name.
            let endpoints = try RelocationEndpoints(request)
            try endpoints.check(request.expected)
            var summary = try relocate(endpoints)
            summary.notes += notesOnBranches(endpoints)
            // A store that was relocated earlier, or was already there, may be of an older model.
            if summary.outcome != .relocated, summary.outcome != .setAside {
                relinquish(endpoints)
                defer { reacquire(endpoints) }
                try transformInPlace(endpoints, &summary)
            }
            return summary
        }
    }

    /// Returns this relocation with what becomes of the old place, if the request leaves that open: a link, so that a
    /// program that can't be changed goes on in the group's store and doesn't begin another one. There is none where
    /// those who open the store know the new place: its presenters, and the programs of the group that it leaves. A
    /// link that leads there must lead on, however.
    func choosingRetirement(_ endpoints: RelocationEndpoints) throws -> Relocation {
        guard request.retirement == nil else { return self }
        let isPresented = !registry.presenters(of: endpoints.container.item(endpoints.group.name.database)).isEmpty
        var relocation = self
        relocation.request.retirement = try isPresented || leavesGroup(endpoints) ? .delete : .symlink
        return relocation
    }

    /// True for a store in a group's directory to which no link leads, or which takes the place of that link.
    private func leavesGroup(_ endpoints: RelocationEndpoints) throws -> Bool {
        let store = endpoints.legacy
        let container = GroupContainer(directory: store.directory)
        guard let receipt = try container.receipts(of: store.name.database).last else {
            return request.knownGroups[store.directory.identity] != nil
        }
        if try endpoints.isGroupNameLeftLink() { return true }
        // A store that came back over a link is where a program without changes opens it.
        return receipt.retirement != .symlink && receipt.replacedLink != true
    }

    /// Performs plans until one is final. On failure, restores what was archived to make room.
    private func relocate(_ endpoints: RelocationEndpoints) throws -> RelocationSummary {
        relinquish(endpoints)
        defer { reacquire(endpoints) }
        let relocation = try planned(for: endpoints.legacy).choosingRetirement(endpoints)
        var archivedSets: [ArchivedSet] = []
        do {
            return try retries.run(.plan, of: request.source) { try relocation.performPlans(endpoints, &archivedSets) }
        } catch {
            restore(archivedSets, endpoints, after: error)
            throw error
        }
    }

    private func performPlans(
        _ endpoints: RelocationEndpoints, _ archivedSets: inout [ArchivedSet]
    ) throws -> RelocationSummary {
        var notes: [String] = []
        // Plan again after each round: archiving an obstacle is a transfer of its own.
        while true {
            let decision = try inspecting { try RelocationDecision(endpoints, request) }
            let content = decision.plan.movesLegacyStore ? try content(of: endpoints.legacy) ?? .same : .same
            report(.plan(sentence(decision, content), bytesToCopy: decision.bytesToCopy))
            switch decision.plan {
            case .nothingToDo(let adopted):
                // The legacy store went elsewhere in the meantime: restore what made room for it.
                guard archivedSets.isEmpty else { throw StoreTransfer.RetryReason.changed }
                if adopted { notes.append("no legacy store; the group's own is used") }
                return summary(.nothingToDo, endpoints, notes: notes)
            case .alreadyRelocated:
                return summary(.alreadyRelocated, endpoints)
            case .archiveLegacy(let reason):
                let id = TransferIdentifier()
                notes += try archive(decision.legacy, decision, reason: reason, id: id)
                let summary = summary(.alreadyRelocated, endpoints, notes: notes)
                guard decision.comparison == .merged else { return summary }
                return mergeProgress.completing(summary, legacyArchive: endpoints.container.archivePath(id))
            case .merge:
                notes += try mergeProgress.add(merge(decision), at: endpoints.group.path)
            case .retireLegacy where request.retirement == .archive:
                let reason = "the group container has its rows already"
                notes += try archive(decision.legacy, decision, reason: reason)
                return summary(.alreadyRelocated, endpoints, notes: notes)
            case .retireLegacy:
                notes += try transfer(.init(snapshot: decision.legacy, purpose: .discard, decision: decision)).notes
                return summary(.alreadyRelocated, endpoints, notes: notes)
            case .relocate(.none):
                var summary = summary(.relocated, endpoints, notes: notes)
                summary.add(try publish(.init(publishing: content, of: decision.legacy, decision)))
                return summary
            case .relocate(.leftovers):
                let id = TransferIdentifier()
                archivedSets.append(.leftovers(id))
                notes += try LeftoverFiles(
                    container: endpoints.container, store: endpoints.group, id: id, gracePeriod: request.gracePeriod,
                    assumeClosed: request.assumeClosed
                ).setAside()
            case .relocate(.store(let reason)):
                let id = TransferIdentifier()
                archivedSets.append(.store(id, hadWAL: try hadWAL(decision.group, endpoints.container)))
                notes += try archive(decision.group, decision, reason: reason, id: id)
            case .conflict, .refuse:
                throw try decision.failure()
            }
        }
    }

    private func archive(
        _ store: StoreSnapshot, _ decision: RelocationDecision, reason: String,
        id: TransferIdentifier = TransferIdentifier()
    ) throws -> [String] {
        let result = try transfer(
            PlannedTransfer(snapshot: store, purpose: .archive(reason: reason), decision: decision, id: id))
        let (path, archive) = (store.location.path, decision.endpoints.container.archivePath(id))
        return ["\(PrintablePath(path)) is archived in \(PrintablePath(archive)): \(reason)"] + result.notes
    }

    /// Publishes a store. If its content turns out to be impossible, publishes the replacement instead.
    func publish(_ planned: PlannedTransfer) throws -> StoreTransfer.Outcome {
        do {
            return try addingNotes(to: transfer(planned), of: planned.store)
        } catch let failure as RelocationFailure {
            // The obstacle became known only when each row was read.
            var second = planned
            second.content = try replacement(after: failure)
            second.id = TransferIdentifier()
            return try addingNotes(to: transfer(second), of: planned.store)
        }
    }

    /// Transfers one store. A store that keeps its name keeps its external data too, unless another store replaces it.
    private func transfer(_ planned: PlannedTransfer) throws -> StoreTransfer.Outcome {
        let (store, snapshot, decision) = (planned.store, planned.snapshot, planned.decision)
        let endpoints = decision.endpoints
        guard let database = snapshot.status?.identity else { throw StoreTransfer.RetryReason.changed }
        let keepsSupport = planned.isInPlace && planned.content.archiveReason == nil
        if !keepsSupport { try store.checkExternalDataIsUnshared() }
        var transfer = Transfer(
            id: planned.id, purpose: planned.purpose, directory: store.directory.path, name: store.name.database,
            database: database, support: keepsSupport ? nil : snapshot.support?.identity,
            copies: planned.content.isNew, retirement: planned.isInPlace ? .delete : request.retirement ?? .delete,
            hadWAL: try hadWAL(snapshot, endpoints.container))
        switch planned.purpose {
        case .publish where snapshot.header != nil:
            transfer.arrivesInWAL = request.journalMode.map { $0 == .writeAhead }
        case .archive, .discard:
            if store.path == endpoints.legacy.path {
                transfer.successor = StoredPath(FilePath(root: nil, [endpoints.group.name.database]))
            }
        case .publish, .restore: break
        }
        var options = options(opaque: snapshot.header == nil)
        options.content = planned.content
        return try StoreTransfer(
            transfer, source: store, container: endpoints.container, options: options,
            isStillValid: { try decision.isStillValid(for: planned.purpose) },
            counterpartExists: { try decision.counterpartExists(planned.purpose, store) }, report: report
        ).run()
    }

    /// Decides on a change of the group's store under its own name.
    func decisionInPlace(_ endpoints: RelocationEndpoints) throws -> RelocationDecision {
        var request = request
        request.source = endpoints.group.path
        request.name = nil
        request.retirement = .delete
        let decision = try RelocationDecision(RelocationEndpoints(request), request)
        try RelocationPreconditions(decision).check()
        return decision
    }

    /// Returns true if the store used write-ahead logging before any transfer turned it off.
    func hadWAL(_ snapshot: StoreSnapshot, _ container: GroupContainer) throws -> Bool {
        try PendingWriteAhead(container: container).wasOn(snapshot)
    }

    func options(opaque: Bool) -> StoreTransfer.Options {
        StoreTransfer.Options(
            retries: retries, gracePeriod: request.gracePeriod, assumeClosed: request.assumeClosed, opaque: opaque,
            didPublish: { claim?.end(published: true) })
    }

    /// Calls `body` until the store can be read: a program may be writing it, or another relocation may hold a lease
    /// that it gives up at once.
    private func inspecting<Result>(_ body: () throws -> Result) throws -> Result {
        try retries.run(.inspection, of: request.source, body)
    }

    func relinquish(_ endpoints: RelocationEndpoints) {
        for store in [endpoints.group, endpoints.legacy] { opener?.relinquish(store.path) }
    }

    func reacquire(_ endpoints: RelocationEndpoints) {
        for store in [endpoints.group, endpoints.legacy] { opener?.reacquire(store.path) }
    }

    // MARK: - Summaries

    /// Returns what rescues have kept in the directory that the store leaves. It stays there.
    private func notesOnBranches(_ endpoints: RelocationEndpoints) -> [String] {
        let (store, container) = (endpoints.legacy, GroupContainer(directory: endpoints.legacy.directory))
        guard container.directory.identity != endpoints.container.directory.identity else { return [] }
        // What this user can't read was another's rescue.
        return (try? SavedBranches(container).notes(of: store.name.database)) ?? []
    }

    var noLegacyDirectory: RelocationSummary {
        let name = request.name ?? request.source.lastComponent ?? .currentDirectory
        return RelocationSummary(.nothingToDo, from: request.source, to: request.group.appending(name))
    }

    private func summary(
        _ outcome: RelocationSummary.Outcome, _ endpoints: RelocationEndpoints, notes: [String] = []
    ) -> RelocationSummary {
        var summary = RelocationSummary(outcome, from: request.source, to: endpoints.group.path)
        summary.notes = notes
        return summary
    }
}

extension RelocationSummary {
    /// Adds what a transfer has done. A store that was set aside decides the outcome.
    mutating func add(_ transfer: StoreTransfer.Outcome) {
        if transfer.setAside != nil { outcome = .setAside }
        setAside = transfer.setAside
        method = transfer.method
        bytes = transfer.bytes
        transformed = transfer.transformed
        losses = transfer.transformed?.losses ?? .none
        archive = transfer.archive
        notes += transfer.notes
    }
}
