import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// What the rounds of a merge have done. There is a second round only if a program wrote the legacy store during the
/// first.
final class MergeProgress {
    private var outcome: StoreTransfer.Outcome?
    private var rounds = 0
    /// The group's store; nil before the first round.
    private var path: FilePath?
    /// The highest number of rounds. A store that is written that often is in use.
    private static let limit = 3

    /// Records a round. Returns its notes. Throws `StoreTransfer.RetryReason` after too many rounds.
    func add(_ round: StoreTransfer.Outcome, at path: FilePath) throws -> [String] {
        rounds += 1
        self.path = path
        guard rounds < Self.limit else { throw StoreTransfer.RetryReason.changed }
        // The first round has the sum of all: the next one finds most objects equal.
        if outcome == nil { outcome = round }
        return round.notes + (round.merge?.notes ?? [])
    }

    /// Returns the error of a run that failed after the rows were merged: the next run archives the legacy store.
    func unfinished(after error: any Error) -> any Error {
        guard let path, !(error is StoreTransfer.Unfinished) else { return error }
        return StoreTransfer.Unfinished(path: path, reason: error)
    }

    /// Returns the summary of the whole run, once the legacy store is archived.
    func completing(_ summary: RelocationSummary, legacyArchive: FilePath) -> RelocationSummary {
        var summary = summary
        summary.outcome = .merged
        summary.method = .merge
        summary.bytes = outcome?.bytes ?? 0
        // Nil if an earlier run did it, and was killed before it had archived the legacy store.
        summary.merge = outcome?.merge
        summary.mergeArchives = MergeArchives(group: outcome?.mergeArchive, legacy: legacyArchive)
        return summary
    }
}

/// The merge of two stores: the group's store is changed in place, and its original archived. The receipt has the hash
/// of the legacy store, which the next plan archives for that reason, in this run or, after a crash, in any other.
extension Relocation {
    func merge(_ decision: RelocationDecision) throws -> StoreTransfer.Outcome {
        guard let combination = request.combination else { throw try decision.failure() }
        let endpoints = decision.endpoints
        let logNotes = try close(endpoints.legacy, decision.legacy, in: endpoints.container)
        let legacy = try StoreSnapshot(endpoints.legacy)
        guard legacy.status?.identity == decision.legacy.status?.identity, !legacy.needsQuiescing else {
            throw StoreTransfer.RetryReason.changed
        }
        let hash = try StoreContents.publishedHash(legacy)
        let groupDecision = try decisionInPlace(endpoints)
        let content = PublishedContent.merged(combination, legacy: endpoints.legacy, hash: hash)
        var outcome = try publish(.init(publishing: content, of: decision.group, groupDecision, inPlace: true))
        outcome.notes.insert(contentsOf: logNotes, at: 0)
        return outcome
    }

    /// Moves all content of the legacy store into its database, and proves that no program has it open at this moment.
    /// Returns notes for the user. Throws `StoreTransfer.RetryReason.held`.
    private func close(
        _ store: StoreLocation, _ snapshot: StoreSnapshot, in container: GroupContainer
    ) throws -> [String] {
        guard let identity = try store.directory.identity(store.name.database) else {
            throw StoreTransfer.RetryReason.changed
        }
        if !request.assumeClosed { try store.checkClosed(identity) }
        let current = try StoreSnapshot(store)
        guard current.needsQuiescing else { return [] }
        if !current.journalIsHot, let log = try store.foreignLog() {
            return [
                try ForeignLogArchive(container: container, store: store, assumeClosed: request.assumeClosed)
                    .setAside(log)
            ]
        }
        // The journal of a transfer that never begins: after a crash, undoing it removes what quiescing leaves behind.
        var transfer = Transfer(
            id: TransferIdentifier(), purpose: .archive(reason: "merge"), directory: store.directory.path,
            name: store.name.database, database: identity, support: nil, copies: false, retirement: .delete,
            hadWAL: try hadWAL(snapshot, container))
        transfer.sourceDirectory = store.directory.identity
        try container.write(TransferJournal(transfer: transfer, state: .intended))
        do {
            try Quiescence.perform(store, for: transfer)
            try container.removeJournal()
            return []
        } catch {
            try store.directory.removeFile(SideFile.rollbackAside(transfer.id))
            try container.removeJournal()
            throw error
        }
    }
}
