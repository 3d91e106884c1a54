import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The dry run: what `run` would return, found without writing anything.
extension Relocation {
    /// Plans the relocation and returns the summary that `run` would. Writes nothing and acquires no lock.
    package func dryRun() throws(RelocationFailure) -> RelocationSummary {
        do {
            let endpoints = try RelocationEndpoints(request)
            try endpoints.check(request.expected)
            for journal in try endpoints.container.journals() where try endpoints.isUnfinished(journal) {
                report(.note("an interrupted relocation of \(PrintablePath(journal.transfer.name.path)) comes first"))
            }
            relinquish(endpoints)
            defer { reacquire(endpoints) }
            let relocation = try planned(for: endpoints.group).planned(for: endpoints.legacy)
                .choosingRetirement(endpoints)
            return try relocation.preview(RelocationDecision(endpoints, relocation.request))
        } catch is RelocationEndpoints.NoLegacyDirectory {
            guard let relocation = forGroupStoreOnly else { return noLegacyDirectory }
            do {
                var summary = try relocation.previewInPlace()
                summary.from = request.source
                return summary
            } catch {
                throw RelocationFailure(error, relocation.request)
            }
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    /// Throws the failure with which `run` would end, if the group's directory has no records yet: so a refusal leaves
    /// nothing there. Waits until the deadline for programs that have the stores open. Other things that may pass are
    /// left to the run.
    ///
    /// For a process that has neither store open, because it reads both.
    package func refuseBeforeFirstRecord() throws(RelocationFailure) {
        guard let decision = try firstDecision() else { return }
        for store in movedStores(decision) where !request.assumeClosed {
            try awaitClosed(store, decision)
        }
    }

    /// Returns the decision, if the group's directory has no records yet and files are to be moved.
    private func firstDecision() throws(RelocationFailure) -> RelocationDecision? {
        do {
            let endpoints = try RelocationEndpoints(request)
            guard try endpoints.container.existingBookkeeping() == nil else { return nil }
            let decision = try RelocationDecision(endpoints, choosingRetirement(endpoints).request)
            switch decision.plan {
            case .conflict, .refuse:
                report(.plan(decision.sentence, bytesToCopy: 0))
                throw try decision.failure()
            case .nothingToDo, .alreadyRelocated, .relocate, .archiveLegacy, .retireLegacy, .merge:
                try decision.checkInodes()
                return decision
            }
        } catch let failure as RelocationFailure {
            if failure.kind != .busy { throw failure }
        } catch {}
        return nil
    }

    private func awaitClosed(_ store: StoreSnapshot, _ decision: RelocationDecision) throws(RelocationFailure) {
        guard var held = store.status?.identity, store.status?.kind == .regular else { return }
        var observations = HolderObservations()
        do {
            try retries.run(
                .release, of: request.source,
                willWait: { _, delay in
                    guard delay >= .milliseconds(20) else { return }
                    let holders = FileHolder.of(held)
                    if observations.shouldReport(holders) { report(.waiting(for: holders)) }
                }
            ) {
                do {
                    try store.location.checkClosed(held)
                } catch StoreTransfer.RetryReason.held(let file) {
                    held = file
                    throw RetryPolicy.StoreOpen()
                }
            }
        } catch is RetryPolicy.StoreOpen {
            report(.plan(decision.sentence, bytesToCopy: decision.bytesToCopy))
            var named = request
            named.source = store.location.path
            throw RelocationFailure(StoreTransfer.RetryReason.held(held), named)
        } catch let failure as RelocationFailure {
            throw failure
        } catch {}
    }

    /// Returns the outcome of a plan, for a dry run. Throws the failure that the run would end with.
    private func preview(_ decision: RelocationDecision) throws -> RelocationSummary {
        let endpoints = decision.endpoints
        var summary = RelocationSummary(.alreadyRelocated, from: request.source, to: endpoints.group.path)
        var store = endpoints.group
        switch decision.plan {
        case .conflict, .refuse:
            report(.plan(decision.sentence, bytesToCopy: 0))
            throw try decision.failure()
        case .alreadyRelocated, .archiveLegacy, .retireLegacy: break
        case .nothingToDo: summary.outcome = .nothingToDo
        case .merge:
            report(.plan(decision.sentence, bytesToCopy: decision.bytesToCopy))
            return try previewMerge(decision)
        case .relocate:
            try decision.checkInodes()
            summary.outcome = .relocated
            summary.method = decision.needsCopy ? .copy : .rename
            store = endpoints.legacy
        }
        if decision.plan.movesFiles { summary.notes += try logNotes(endpoints) }
        summary.notes += holderNotes(decision)
        let content = try content(of: store) ?? .same
        let isInPlace = summary.outcome != .relocated
        report(.plan(sentence(decision, isInPlace ? .same : content), bytesToCopy: decision.bytesToCopy))
        try rehearse(content, of: store, decision: decision, isInPlace: isInPlace, &summary)
        return summary
    }

    /// Returns the outcome for the group's store if there is no other.
    private func previewInPlace() throws -> RelocationSummary {
        let endpoints = try RelocationEndpoints(request)
        relinquish(endpoints)
        defer { reacquire(endpoints) }
        var summary = RelocationSummary(.nothingToDo, from: endpoints.group.path, to: endpoints.group.path)
        let relocation = planned(for: endpoints.group)
        guard let content = try relocation.content(of: endpoints.group) else { return summary }
        let decision = try RelocationDecision(endpoints, relocation.request)
        try relocation.rehearse(content, of: endpoints.group, decision: decision, isInPlace: true, &summary)
        return summary
    }

    private func rehearse(
        _ content: PublishedContent, of store: StoreLocation, decision: RelocationDecision, isInPlace: Bool,
        _ summary: inout RelocationSummary
    ) throws {
        let endpoints = decision.endpoints
        guard content.isNew else { return }
        if case .transformed(let transform) = content {
            let result = try transform.rehearse(store, isMoved: !isInPlace)
            summary.losses = result?.losses ?? .none
            summary.notes += result?.notes ?? []
            if !summary.losses.isEmpty {
                let bytes = try store.bytesToArchive()
                summary.notes.append(
                    "\(PrintablePath(store.path)) would be kept in \(PrintablePath(endpoints.container.archivePath)) as it is, "
                        + "since the migration changes or removes some of it; that takes \(ByteCount(bytes))")
            }
        }
        if isInPlace {
            report(.plan(content.sentence(inPlace: store.path), bytesToCopy: decision.bytesToCopy))
            if summary.outcome == .nothingToDo || endpoints.isSameStore { summary.outcome = .migrated }
            if !decision.plan.movesFiles { summary.notes += try logNotes(endpoints) }
        }
        summary.method = .migrate
        if content.reason != nil { (summary.outcome, summary.method) = (.setAside, .replace) }
    }

    /// Returns the summary that a merge would have.
    private func previewMerge(_ decision: RelocationDecision) throws -> RelocationSummary {
        guard let combination = request.combination else { throw try decision.failure() }
        let endpoints = decision.endpoints
        let result = try combination.rehearse(endpoints.group, merging: endpoints.legacy, report: report)
        var summary = RelocationSummary(.merged, from: request.source, to: endpoints.group.path)
        summary.method = .merge
        summary.bytes = decision.group.bytes
        summary.merge = result
        summary.notes = try logNotes(endpoints) + holderNotes(decision) + result.notes
        return summary
    }

    /// Returns who has the stores open that a run would move, and so would wait for.
    private func holderNotes(_ decision: RelocationDecision) -> [String] {
        movedStores(decision).compactMap { store in
            let holders = store.status.map { FileHolder.of($0.identity) } ?? []
            guard !holders.isEmpty else { return nil }
            let path = PrintablePath(store.location.path)
            return "\(path) is open in \(holders.names): a relocation waits until it is closed"
        }
    }

    private func movedStores(_ decision: RelocationDecision) -> [StoreSnapshot] {
        switch decision.plan {
        case .relocate(.some), .merge: [decision.legacy, decision.group]
        case .relocate(.none), .archiveLegacy, .retireLegacy: [decision.legacy]
        case .nothingToDo, .alreadyRelocated, .conflict, .refuse: []
        }
    }

    /// Returns what a run would say of other databases' logs. Throws `RelocationFailure` if it would refuse.
    private func logNotes(_ endpoints: RelocationEndpoints) throws -> [String] {
        let stores = endpoints.isSameStore ? [endpoints.group] : [endpoints.legacy, endpoints.group]
        return try stores.compactMap { store in
            guard try StoreSnapshot(store).header != nil, let log = try store.foreignLog() else { return nil }
            _ = try ForeignLogArchive(container: endpoints.container, store: store, assumeClosed: true)
                .isIntactWithout(log)
            return "\(log.description); it would be kept in \(PrintablePath(endpoints.container.archivePath))"
        }
    }
}
