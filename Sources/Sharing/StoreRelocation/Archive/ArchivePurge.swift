import FoundationEssentials
import GroupContainers
import LinuxSystem
import SystemPackage

/// Which archived sets to remove.
package struct ArchivePurge: Sendable {
    /// The named sets; nil for all.
    package var ids: [TransferIdentifier]?
    /// Only sets that were archived longer ago than this; nil for any age.
    package var age: Duration?
    /// True to remove also what nothing else holds, and what undoing a relocation needs.
    package var force = false
    /// True to keep, though forced, a set that a program has open.
    package var sparesOpen = false

    package init(ids: [TransferIdentifier]?, age: Duration?, force: Bool) {
        self.ids = ids
        self.age = age
        self.force = force
    }

    func selects(_ set: ArchivedStore, now: Date) -> Bool {
        guard ids?.contains(set.id) ?? true else { return false }
        guard let age else { return true }
        // Without a note, the identifier has the time.
        let seconds = set.id.rawValue.split(separator: "-").first.flatMap { Double($0) } ?? 0
        let at = set.entry.note?.at ?? Date(timeIntervalSince1970: seconds)
        return now.timeIntervalSince(at) > age.seconds
    }
}

/// An archived set that a purge selected, and what becomes of it.
package struct PurgedArchive: Sendable {
    package let set: ArchivedStore
    package let assessment: ArchiveAssessment
    /// True if it is removed.
    package let isPurged: Bool

    package var value: ArchiveValue { assessment.value }
}

extension Relocation {
    /// Removes archived sets for good, or says what would be removed. Keeps sets that hold the only copy of something,
    /// unless forced. Throws `RelocationFailure`, before anything is removed, if a named set must be kept.
    ///
    /// A set is removed while the proof that its content is elsewhere holds: what has that content is read in a
    /// transaction or under a lease, and the archived database is under a lease (`ArchiveRemoval`).
    package func purge(_ purge: ArchivePurge, dryRun: Bool) throws(RelocationFailure) -> [PurgedArchive] {
        do {
            let container = try RelocationEndpoints.container(request.group, request.identifier)
            guard !dryRun else { return try assess(selected(by: purge, in: container), purge, in: container) }
            // Without records there is nothing to remove, and none are made.
            guard try container.existingBookkeeping() != nil else { return try assess([], purge, in: container) }
            FileLease.ignoreBreakSignal()
            return try withGroupLock(container) {
                let sets = try selected(by: purge, in: container)
                // One that must be kept keeps all that are named.
                if purge.ids != nil, sets.count > 1 { _ = try assess(sets, purge, in: container) }
                let archived = try ArchivedFiles.identities(in: container)
                return try sets.map { try remove($0, purge, archived: archived, in: container) }
            }
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    /// Gives archives that a killed purge has withdrawn their names back, so that they are listed again.
    package func returnWithdrawnArchives() throws(RelocationFailure) {
        do {
            let container = try RelocationEndpoints.container(request.group, request.identifier)
            guard try container.hasWithdrawnArchives() else { return }
            try withGroupLock(container) {}
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    private func selected(by purge: ArchivePurge, in container: GroupContainer) throws -> [ArchivedStore] {
        let all = try ArchivedStore.all(in: container)
        for id in purge.ids ?? [] where !all.contains(where: { $0.id == id }) {
            throw RelocationFailure.noArchive(id.rawValue, in: container)
        }
        let now = Date()
        return all.filter { purge.selects($0, now: now) }
    }

    private func assess(
        _ sets: [ArchivedStore], _ purge: ArchivePurge, in container: GroupContainer
    ) throws -> [PurgedArchive] {
        let archived = try ArchivedFiles.identities(in: container)
        return try sets.map { set in
            let removal = ArchiveRemoval(of: set, in: container, gracePeriod: request.gracePeriod)
            let assessment = try ArchiveProof(
                of: set, in: container, archived: archived, isCancelled: retries.isCancelled
            ).assess(whileProven: removal.rehearse)
            return try purged(
                set, assessment, isPurged: assessment.value.mayBePurged(force: purge.force), purge, container)
        }
    }

    private func remove(
        _ set: ArchivedStore, _ purge: ArchivePurge, archived: Set<FileIdentity>, in container: GroupContainer
    ) throws -> PurgedArchive {
        try retries.checkCancelled(set.path)
        let removal = ArchiveRemoval(of: set, in: container, gracePeriod: request.gracePeriod)
        let assessment = try ArchiveProof(
            of: set, in: container, archived: archived, isCancelled: retries.isCancelled
        ).assess(whileProven: removal.run)
        if case .redundant = assessment.value { return try purged(set, assessment, isPurged: true, purge, container) }
        let isForced = assessment.value.mayBePurged(force: purge.force)
        if isForced {
            if purge.sparesOpen {
                do { try removal.rehearse(ArchivedFiles(in: set.entry.directory)) { true } } catch let error
                    as ArchiveRemoval.InUse
                { return try purged(set, ArchiveAssessment(.inUse(error.reason)), isPurged: false, purge, container) }
            }
            try container.withdrawArchive(set.id)
            try container.removeWithdrawnArchive(set.id, includingContents: true)
        }
        return try purged(set, assessment, isPurged: isForced, purge, container)
    }

    /// Throws `RelocationFailure` if a named set is kept.
    private func purged(
        _ set: ArchivedStore, _ assessment: ArchiveAssessment, isPurged: Bool, _ purge: ArchivePurge,
        _ container: GroupContainer
    ) throws -> PurgedArchive {
        if !isPurged, purge.ids != nil, let failure = assessment.value.failure(set, in: container) { throw failure }
        return PurgedArchive(set: set, assessment: assessment, isPurged: isPurged)
    }
}
