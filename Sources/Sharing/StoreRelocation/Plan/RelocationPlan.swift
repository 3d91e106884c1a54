/// The facts about both places from which the plan is made. They are gathered before; this code touches no file.
struct RelocationEvidence {
    /// The state of one of the two places.
    enum Side: Equatable {
        case nothing
        /// The file exists with zero bytes, and no side file has content.
        case zeroBytes
        /// Side files without their database.
        case orphans
        case store(Content)
        case unusable(RelocationRefusal)
    }

    enum Content: Equatable {
        /// No user table has a row.
        case schemaOnly
        case rows
        /// Not inspected, because nothing depends on it.
        case unknown
        /// Moved byte by byte without being read.
        case opaque
    }

    enum Relation: Equatable {
        case separate
        /// One directory entry, reached by two paths.
        case sameEntry
        /// One file with two names, by a hard link or a mount.
        case twoNames
    }

    /// The comparison of two stores with rows.
    enum Comparison: Equatable {
        /// The group's store contains everything that the legacy store does.
        case same
        /// The group's store contains the legacy store's rows, but not all of its external data.
        case sameRows
        case different
        /// A receipt says that the group's file was published with exactly the bytes of the legacy store, and the
        /// group's store has changed since.
        case published
        /// As `published`, but the group lacks some of the legacy store's external data.
        case publishedRows
        /// A receipt says that the legacy store, as it is, was merged into the group's file.
        case merged
    }

    var legacy: Side
    var group: Side
    var relation: Relation
    var comparison: Comparison?
}

/// A reason to change nothing.
enum RelocationRefusal: Equatable {
    case halfAStore
    case foreign(String)
    case corrupt(String)
    case hardLinked
    case twoNames
    case notARegularFile
    /// A side file or the support folder is of the wrong kind, or a second name of another file. Contains its name.
    case unusualPart(String)
    case opaqueWithSideFiles
}

/// The action to take, a pure function of the evidence.
enum RelocationPlan: Equatable {
    /// An obstacle at the destination that is archived first.
    enum Obstacle: Equatable {
        /// Side files without a database, or a file of zero bytes.
        case leftovers
        /// A whole store that is empty, or that gives way to the legacy one.
        case store(reason: String)
    }

    case nothingToDo(adopted: Bool)
    case alreadyRelocated
    case relocate(archivingFirst: Obstacle?)
    /// Archive the legacy store; keep the group's.
    case archiveLegacy(reason: String)
    /// Retire the legacy store: the group has the same content.
    case retireLegacy
    /// Merge the legacy store's rows into the group's store; then plan again.
    case merge
    case conflict
    case refuse(RelocationRefusal, atGroup: Bool)

    init(_ evidence: RelocationEvidence, onConflict: RelocationRequest.ConflictPolicy) {
        switch evidence.relation {
        case .sameEntry: self = .alreadyRelocated
        case .twoNames: self = .refuse(.twoNames, atGroup: false)
        case .separate: self = Self.separate(evidence, onConflict: onConflict)
        }
    }

    private static func separate(
        _ evidence: RelocationEvidence, onConflict: RelocationRequest.ConflictPolicy
    ) -> RelocationPlan {
        switch (evidence.legacy, evidence.group) {
        case (.unusable(let reason), _): .refuse(reason, atGroup: false)
        case (.orphans, _): .refuse(.halfAStore, atGroup: false)
        case (.nothing, .store), (.zeroBytes, .store): .nothingToDo(adopted: true)
        case (.nothing, _), (.zeroBytes, _): .nothingToDo(adopted: false)
        case (_, .unusable(let reason)): .refuse(reason, atGroup: true)
        case (.store, .nothing): .relocate(archivingFirst: nil)
        case (.store, .zeroBytes), (.store, .orphans): .relocate(archivingFirst: .leftovers)
        case (.store(let legacy), .store(let group)):
            both(legacy, group, comparison: evidence.comparison, onConflict: onConflict)
        }
    }

    private static func both(
        _ legacy: RelocationEvidence.Content, _ group: RelocationEvidence.Content,
        comparison: RelocationEvidence.Comparison?, onConflict: RelocationRequest.ConflictPolicy
    ) -> RelocationPlan {
        // Check for an empty legacy store first: an old program that is started once more creates one.
        if legacy == .schemaOnly {
            return .archiveLegacy(reason: "it had no rows; the group's store is the one in use")
        }
        if group == .schemaOnly {
            return .relocate(archivingFirst: .store(reason: "it had no rows when the legacy store was relocated"))
        }
        switch comparison {
        case .same: return .retireLegacy
        // The group may no longer contain its rows, and nothing else does: archive it, don't delete it.
        case .published:
            return .archiveLegacy(reason: "its rows were relocated before; the group's store has changed since")
        case .publishedRows:
            return .archiveLegacy(
                reason: "its rows were relocated before; some of its external data isn't in the group")
        case .merged: return .archiveLegacy(reason: "its rows were merged into the group's store")
        case .sameRows, .different, nil: break
        }
        switch onConflict {
        case .refuse: return .conflict
        case .keepGroup: return .archiveLegacy(reason: "both places held a store; the group's was kept")
        case .keepLegacy:
            return .relocate(archivingFirst: .store(reason: "both places held a store; the legacy one was kept"))
        case .merge: return .merge
        }
    }
}
