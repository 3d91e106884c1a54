import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// A look at both places, and the plan that follows from it.
struct RelocationDecision {
    let places: RelocationEndpoints
    let request: RelocationRequest
    let legacy: StoreSnapshot
    let group: StoreSnapshot
    let plan: RelocationPlan
    /// Of two stores that both hold something.
    let comparison: RelocationEvidence.Comparison?
    /// What the change of its content that is asked for removes from the store that moves, or that is there already.
    let losses: RemovedContent

    init(_ places: RelocationEndpoints, _ request: RelocationRequest) throws {
        self.places = places
        self.request = request
        legacy = try StoreSnapshot(places.legacy)
        group = try StoreSnapshot(places.group)
        var evidence = RelocationEvidence(
            legacy: .nothing, group: .nothing, relation: places.relation(legacy, group), comparison: nil)
        if evidence.relation == .separate {
            let both = legacy.status != nil && group.status != nil
            evidence.legacy = try Self.side(legacy, request, lookInside: both)
            evidence.group = try Self.side(group, request, lookInside: both)
            if case .store(let content) = evidence.legacy, evidence.group == .store(content) {
                evidence.comparison = try Self.compare(content, legacy, group, places)
            }
        }
        comparison = evidence.comparison
        plan = RelocationPlan(evidence, onConflict: request.onConflict)
        losses = Self.losses(plan, places, request)
        if plan.movesFiles {
            try places.checkIsNoOther(of: legacy)
            try RelocationPreconditions(self).check()
        }
    }

    /// None where that can't be told: whoever changes the store looks again.
    private static func losses(
        _ plan: RelocationPlan, _ places: RelocationEndpoints, _ request: RelocationRequest
    ) -> RemovedContent {
        guard let transform = request.transform, plan.isOfTheChangedStore else { return .none }
        return (try? transform.losses(from: plan.movesLegacyStore ? places.legacy : places.group)) ?? .none
    }

    private static func side(
        _ seen: StoreSnapshot, _ request: RelocationRequest, lookInside: Bool
    ) throws -> RelocationEvidence.Side {
        // Without a database they are remains, and set aside unopened.
        if seen.status != nil, let name = seen.unusualPart { return .unusable(.unusualPart(name)) }
        switch seen.database {
        case .absent: return seen.walHasContent || seen.journalIsHot ? .orphans : remains(seen)
        case .empty:
            guard seen.walHasContent || seen.journalIsHot else { return .zeroBytes }
            // It may just be made: its journal is on the disk before its first page.
            try seen.location.checkNotWriting()
            return .unusable(.halfAStore)
        case .unusual:
            try seen.checkNotWithdrawn()
            return .unusable(.notARegularFile)
        case .foreign(let format):
            guard request.opaque, format.mayBeOpaque else { return .unusable(.foreign(format.description)) }
            return seen.wal != nil || seen.journal != nil ? .unusable(.opaqueWithSideFiles) : .store(.opaque)
        case .sqlite:
            if let status = seen.status, status.links > 1 { return .unusable(.hardLinked) }
            if seen.journalIsHot { try SuperJournal.check(of: seen.location) }
            do {
                try seen.checkWhole()
                // Reading past a hot journal costs a copy; where nothing depends on it, SQLite rolls it back first.
                if seen.journalIsHot, !lookInside { return .store(.unknown) }
                let schemaOnly = try StoreContents.isSchemaOnly(seen, lookingForRows: lookInside)
                return .store(schemaOnly.map { $0 ? .schemaOnly : .rows } ?? .unknown)
            } catch let error as StoreContents.Unreadable {
                return .unusable(.corrupt(error.description))
            }
        }
    }

    /// Cold side files without a database hold nothing, but must not meet a store that is published beside them.
    private static func remains(_ seen: StoreSnapshot) -> RelocationEvidence.Side {
        seen.wal == nil && seen.journal == nil && seen.sharedMemory == nil && seen.support == nil
            ? .nothing : .zeroBytes
    }

    /// Nil where what they hold is not looked at.
    private static func compare(
        _ content: RelocationEvidence.Content, _ legacy: StoreSnapshot, _ group: StoreSnapshot,
        _ places: RelocationEndpoints
    ) throws -> RelocationEvidence.Comparison? {
        let isSame: Bool
        switch content {
        case .rows: isSame = try StoreContents.areEqual(legacy, group)
        case .opaque: isSame = try places.legacy.hasBytes(of: places.group)
        case .schemaOnly, .unknown: return nil
        }
        if isSame { return try places.legacy.hasExternalDataWithin(places.group) ? .same : .sameRows }
        // Of this very file: one that was put in its place since knows nothing of what was relocated.
        let hashes = try places.container.receipts(of: places.group.name.database)
            .filter { receipt in group.status.map { receipt.published?.isOf($0) == true } ?? false }
            .compactMap(\.hash)
        if !hashes.isEmpty, !legacy.needsQuiescing, hashes.contains(try StoreContents.publishedHash(legacy)) {
            return try places.legacy.hasExternalDataWithin(places.group) ? .published : .publishedRows
        }
        return .different
    }

    /// Whether the reason to take this set away is still one, now that the set is quiet.
    func stillHolds(for purpose: Transfer.Purpose, _ store: StoreLocation) throws -> Bool {
        if case .publish = purpose { return true }
        guard try RelocationDecision(places, request).plan == plan else { return false }
        // What is about to be the only copy may be one that somebody has just made.
        if case .discard = purpose { try places.group.synchronize(whatIsIn: places.legacy) }
        return true
    }

    /// Whether the store for whose sake this set goes still has its name, asked when this set has lost its own: of two
    /// processes that each take one of two stores away and keep the other, one finds the other one's gone.
    func keepsOther(_ purpose: Transfer.Purpose, _ store: StoreLocation) throws -> Bool {
        switch purpose {
        case .publish, .restore: return true
        case .archive, .discard: break
        }
        let (other, seen) = store.path == places.legacy.path ? (places.group, group) : (places.legacy, legacy)
        return try other.directory.identity(other.name.database) == seen.status?.identity
    }

    var needsCopy: Bool { places.legacy.directory.identity.device != places.group.directory.identity.device }

    var bytesToCopy: Int64 {
        if let transform = request.transform {
            // A copy, and what is made anew in it.
            let store = plan.movesLegacyStore ? places.legacy : places.group
            let archived = losses.isEmpty ? 0 : (try? store.bytesToArchive()) ?? 0
            if plan == .alreadyRelocated { return 2 * group.bytes + archived + (request.replacement?.bytes ?? 0) }
            if plan.movesLegacyStore, (try? transform.isNeeded(places.legacy)) ?? (request.replacement != nil) {
                return 2 * legacy.bytes + archived + (request.replacement?.bytes ?? 0)
            }
        }
        guard plan.movesLegacyStore, needsCopy || request.retirement == .archive else { return 0 }
        let support = try? places.legacy.directory.bytes(under: places.legacy.name.support)
        let once = legacy.bytes + (support ?? 0)
        return needsCopy && request.retirement == .archive ? 2 * once : once
    }
}

extension RelocationPlan {
    var movesFiles: Bool {
        switch self {
        case .relocate, .archiveLegacy, .retireLegacy: true
        case .nothingToDo, .alreadyRelocated, .conflict, .refuse: false
        }
    }

    /// Whether it tells of one store what its content becomes: the one that moves, or the one that is there.
    fileprivate var isOfTheChangedStore: Bool { movesLegacyStore || self == .alreadyRelocated }

    var movesLegacyStore: Bool {
        if case .relocate(.none) = self { true } else { false }
    }
}

extension StoreLocation {
    /// Of the store with its log and its external data.
    package func bytesToArchive() throws -> Int64 {
        let parts = try [name.database, name.wal].map { try directory.status($0)?.size ?? 0 }
        return try parts.reduce(0, +) + directory.bytes(under: name.support)
    }
}

/// What must hold of the places before anything is moved.
struct RelocationPreconditions {
    let decision: RelocationDecision

    init(_ decision: RelocationDecision) { self.decision = decision }

    func check() throws {
        let places = decision.places
        try places.legacy.checkExternalDataIsItsOwn()
        try places.legacy.checkNothingIsMounted()
        if case .relocate(.some) = decision.plan {
            try places.group.checkExternalDataIsItsOwn()
            try places.group.checkNothingIsMounted()
        }
        for directory in [places.legacy.directory, places.group.directory] {
            try checkWritable(directory)
            try checkReach(directory)
        }
        for seen in [decision.legacy, decision.group] {
            try checkOwner(seen)
            try checkFilesAreWritable(seen)
            try checkFolder(seen)
        }
        let available = try places.group.directory.fileSystem().available
        if UInt64(decision.bytesToCopy) > available {
            throw RelocationFailure(
                .unusablePlace, code: "no_space",
                "\(PrintablePath(places.group.directory.path)) has \(available) bytes free of \(decision.bytesToCopy)",
                remedy: "free that much there, then run this again")
        }
    }

    private func checkOwner(_ seen: StoreSnapshot) throws {
        guard let status = seen.status, geteuid() != 0, status.owner != geteuid() else { return }
        throw RelocationFailure(
            .notPermitted, code: "not_owner", "\(PrintablePath(seen.location.path)) belongs to user \(status.owner)",
            remedy: "run this as that user, or as root")
    }

    private func checkFilesAreWritable(_ seen: StoreSnapshot) throws {
        guard let file = try seen.unwritableFile() else { return }
        throw RelocationFailure(
            .notPermitted, code: "not_writable",
            "\(PrintablePath(seen.location.directory.path.appending(file))) can't be written to",
            remedy: "allow it: chmod u+rw, as its owner")
    }

    /// Of external data: it is given another parent, or copied and emptied.
    private func checkFolder(_ seen: StoreSnapshot) throws {
        let name = seen.location.name.support
        guard let status = seen.support, status.kind == .directory,
            let obstacle = try seen.location.directory.obstacle(toMoving: name, whatIsIn: decision.needsCopy)
        else { return }
        throw RelocationFailure(
            .notPermitted, code: "not_writable", "\(PrintablePath(obstacle.path)) can't be \(obstacle.lack)",
            remedy: "allow it: chmod \(obstacle.remedy), as its owner")
    }

    private func checkWritable(_ directory: Directory) throws {
        if try directory.fileSystem().isReadOnly {
            throw RelocationFailure(
                .unusablePlace, code: "read_only", "\(PrintablePath(directory.path)) is on a read-only file system",
                remedy: "mount it writable, then run this again")
        }
        guard faccessat(directory.raw, ".", W_OK | X_OK, AT_EACCESS) == 0 else {
            throw RelocationFailure(
                .notPermitted, code: "not_writable", "\(PrintablePath(directory.path)) can't be written to",
                remedy: "grant write permission on this directory, or run this as its owner")
        }
    }

    private func checkReach(_ directory: Directory) throws {
        let fileSystem = try directory.fileSystem()
        let place = "\(PrintablePath(directory.path)) is on \(fileSystem.name)"
        switch fileSystem.reach {
        case .local: return
        case .network:
            throw RelocationFailure(
                .unusablePlace, code: "network_file_system", "\(place), which other machines may use too",
                remedy: "relocate to and from file systems of this machine only")
        case .userSpace, .overlay:
            guard !decision.request.assumeClosed else { return }
            throw RelocationFailure(
                .unusablePlace, code: "no_proof",
                "\(place), where it can't be proved that nobody has the store open",
                remedy: "close every program that uses it, then run: groupstore relocate --assume-closed")
        }
    }
}
