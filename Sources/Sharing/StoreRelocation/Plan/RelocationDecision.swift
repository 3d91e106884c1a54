import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// The state of both places, and the plan that follows from it.
struct RelocationDecision {
    let endpoints: RelocationEndpoints
    let request: RelocationRequest
    let legacy: StoreSnapshot
    let group: StoreSnapshot
    let plan: RelocationPlan
    /// The comparison of two stores that both hold something.
    let comparison: RelocationEvidence.Comparison?
    /// True if the requested transform may remove content from the store that moves or from the one already in place.
    /// Room for its archive is planned then.
    let mayRemoveContent: Bool
    private let counterpart = Counterpart()

    init(_ endpoints: RelocationEndpoints, _ request: RelocationRequest) throws {
        self.endpoints = endpoints
        self.request = request
        legacy = try StoreSnapshot(endpoints.legacy)
        group = try StoreSnapshot(endpoints.group)
        var evidence = RelocationEvidence(
            legacy: .nothing, group: .nothing, relation: endpoints.relation(legacy, group), comparison: nil)
        if evidence.relation == .separate {
            let both = legacy.status != nil && group.status != nil
            evidence.legacy = try Self.side(legacy, request, readsContent: both)
            evidence.group =
                try endpoints.isGroupNameLeftLink()
                ? Self.leftovers(group) : Self.side(group, request, readsContent: both)
            if case .store(let content) = evidence.legacy, evidence.group == .store(content) {
                evidence.comparison = try Self.compare(content, legacy, with: group, at: endpoints)
            }
        }
        comparison = evidence.comparison
        plan = RelocationPlan(evidence, onConflict: request.onConflict)
        mayRemoveContent = Self.mayRemoveContent(plan, between: endpoints, request)
        if plan.movesFiles {
            try endpoints.checkIsNotAGroupFile(legacy)
            try RelocationPreconditions(self).check()
        }
    }

    /// Returns false if that can't be determined; the transform fails for the same reason.
    private static func mayRemoveContent(
        _ plan: RelocationPlan, between endpoints: RelocationEndpoints, _ request: RelocationRequest
    ) -> Bool {
        guard let transform = request.transform, plan.determinesContent else { return false }
        return (try? transform.mayRemoveContent(of: plan.movesLegacyStore ? endpoints.legacy : endpoints.group))
            ?? false
    }

    private static func side(
        _ snapshot: StoreSnapshot, _ request: RelocationRequest, readsContent: Bool
    ) throws -> RelocationEvidence.Side {
        // Without a database, side files are leftovers and are set aside unopened.
        if snapshot.status != nil, let name = snapshot.unusualPart { return .unusable(.unusualPart(name)) }
        switch snapshot.database {
        case .absent: return snapshot.walHasContent || snapshot.journalIsHot ? .orphans : leftovers(snapshot)
        case .empty:
            guard snapshot.walHasContent || snapshot.journalIsHot else { return .zeroBytes }
            // The store may be in creation: its journal is on disk before its first page.
            try snapshot.location.checkNotWriting()
            return .unusable(.halfAStore)
        case .unusual:
            try snapshot.checkNotWithdrawn()
            return .unusable(.notARegularFile)
        case .foreign(let format):
            guard request.opaque, format.mayBeOpaque else { return .unusable(.foreign(format.description)) }
            return snapshot.wal != nil || snapshot.journal != nil ? .unusable(.opaqueWithSideFiles) : .store(.opaque)
        case .sqlite:
            if let status = snapshot.status, status.links > 1 { return .unusable(.hardLinked) }
            if snapshot.journalIsHot { try SuperJournal.check(of: snapshot.location) }
            do {
                try snapshot.checkWhole()
                // Reading a store with a hot journal takes a copy. If nothing depends on the content, SQLite rolls it
                // back first.
                if snapshot.journalIsHot, !readsContent { return .store(.unknown) }
                let schemaOnly = try StoreContents.isSchemaOnly(snapshot, countingRows: readsContent)
                return .store(schemaOnly.map { $0 ? .schemaOnly : .rows } ?? .unknown)
            } catch let error as StoreContents.Unreadable {
                return .unusable(.corrupt(error.description))
            }
        }
    }

    /// Returns `zeroBytes` if there are cold side files or a support folder: they hold no store, but must not end up
    /// beside a published one. Returns `nothing` otherwise.
    private static func leftovers(_ snapshot: StoreSnapshot) -> RelocationEvidence.Side {
        snapshot.wal == nil && snapshot.journal == nil && snapshot.sharedMemory == nil && snapshot.support == nil
            ? .nothing : .zeroBytes
    }

    /// Returns nil if the content was not inspected.
    private static func compare(
        _ content: RelocationEvidence.Content, _ legacy: StoreSnapshot, with group: StoreSnapshot,
        at endpoints: RelocationEndpoints
    ) throws -> RelocationEvidence.Comparison? {
        if content == .rows, try wasMerged(legacy, into: group, at: endpoints) { return .merged }
        let isSame: Bool
        switch content {
        case .rows: isSame = try StoreContents.areEqual(legacy, group)
        case .opaque: isSame = try endpoints.legacy.hasBytes(of: endpoints.group)
        case .schemaOnly, .unknown: return nil
        }
        if isSame { return try endpoints.legacy.hasExternalDataWithin(endpoints.group) ? .same : .sameRows }
        // Receipts of this very file only: a file that replaced it doesn't contain what was relocated.
        let hashes = try endpoints.container.receipts(of: endpoints.group.name.database)
            .filter { receipt in group.status.map { receipt.published?.isSameFile(as: $0) == true } ?? false }
            .compactMap(\.hash)
        if !hashes.isEmpty, !legacy.needsQuiescing, hashes.contains(try StoreContents.publishedHash(legacy)) {
            return try endpoints.legacy.hasExternalDataWithin(endpoints.group) ? .published : .publishedRows
        }
        return .different
    }

    /// Returns true if a receipt says that the legacy store, byte for byte as it is, was merged into this very file.
    private static func wasMerged(
        _ legacy: StoreSnapshot, into group: StoreSnapshot, at endpoints: RelocationEndpoints
    ) throws -> Bool {
        guard !legacy.needsQuiescing, let status = group.status else { return false }
        let hashes = try endpoints.container.receipts(of: endpoints.group.name.database)
            .filter { $0.method == .merge && $0.published?.isSameFile(as: status) == true }
            .compactMap(\.hash)
        return try !hashes.isEmpty && hashes.contains(StoreContents.publishedHash(legacy))
    }

    /// Returns true if the plan still calls for this transfer, now that the set is quiescent.
    func isStillValid(for purpose: Transfer.Purpose) throws -> Bool {
        if case .publish = purpose { return true }
        counterpart.status = try endpoints.group.directory.status(endpoints.group.name.database)
        guard try RelocationDecision(endpoints, request).plan == plan else { return false }
        // The remaining copy may be unsynced: another process may have just created it.
        if case .discard = purpose { try endpoints.group.synchronize(sharedWith: endpoints.legacy) }
        return true
    }

    /// Returns true if the other store, in whose favour this set is removed, still has its name. Called once this set
    /// has lost its own: of two processes that each remove one of two stores in favour of the other, one finds its
    /// counterpart gone.
    func counterpartExists(_ purpose: Transfer.Purpose, _ store: StoreLocation) throws -> Bool {
        switch purpose {
        case .publish, .restore: return true
        case .archive, .discard: break
        }
        let (other, snapshot) =
            store.path == endpoints.legacy.path ? (endpoints.group, group) : (endpoints.legacy, legacy)
        let status = try other.directory.status(other.name.database)
        guard status?.identity == snapshot.status?.identity else { return false }
        // What is removed for good was compared with the other store as it was then.
        guard case .discard = purpose, let compared = counterpart.status else { return true }
        return status?.size == compared.size && status?.modified == compared.modified
    }

    /// The status of the store in whose favour another one is removed, when the two were last compared.
    private final class Counterpart {
        var status: FileStatus?
    }

    var needsCopy: Bool { endpoints.legacy.directory.identity.device != endpoints.group.directory.identity.device }

    var bytesToCopy: Int64 {
        if plan == .merge {
            // The archive's copy, the staged one and the one that the proof compares with; the legacy store's.
            let parts = [endpoints.group, endpoints.legacy].map { (try? $0.bytesToArchive()) ?? 0 }
            return 3 * parts[0] + 2 * parts[1]
        }
        if let transform = request.transform {
            // A copy, and what the transform recreates in it.
            let store = plan.movesLegacyStore ? endpoints.legacy : endpoints.group
            let archived = mayRemoveContent ? (try? store.bytesToArchive()) ?? 0 : 0
            if plan == .alreadyRelocated { return 2 * group.bytes + archived + (request.replacement?.bytes ?? 0) }
            if plan.movesLegacyStore, (try? transform.isNeeded(endpoints.legacy)) ?? (request.replacement != nil) {
                return 2 * legacy.bytes + archived + (request.replacement?.bytes ?? 0)
            }
        }
        guard plan.movesLegacyStore, needsCopy || request.retirement == .archive else { return 0 }
        let support = try? endpoints.legacy.directory.bytes(under: endpoints.legacy.name.support)
        let once = legacy.bytes + (support ?? 0)
        return needsCopy && request.retirement == .archive ? 2 * once : once
    }
}

extension RelocationPlan {
    var movesFiles: Bool {
        switch self {
        case .relocate, .archiveLegacy, .retireLegacy, .merge: true
        case .nothingToDo, .alreadyRelocated, .conflict, .refuse: false
        }
    }

    /// True if the plan determines the content of one store: the one that moves, or the one already in place.
    fileprivate var determinesContent: Bool { movesLegacyStore || self == .alreadyRelocated }

    var movesLegacyStore: Bool {
        if case .relocate(.none) = self { true } else { false }
    }
}

extension StoreLocation {
    /// Returns the size in bytes of the store with its log and its external data.
    package func bytesToArchive() throws -> Int64 {
        let parts = try [name.database, name.wal].map { try directory.status($0)?.size ?? 0 }
        return try parts.reduce(0, +) + directory.bytes(under: name.support)
    }
}
