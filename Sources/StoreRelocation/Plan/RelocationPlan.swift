/// What the plan is made from: facts about both places, gathered before. No file is looked at here.
struct RelocationEvidence {
    /// One of the two places.
    enum Side: Equatable {
        case nothing
        /// The name is there with zero bytes, and no side file has content.
        case zeroBytes
        /// Side files without their database.
        case orphans
        case store(Content)
        case unusable(RelocationRefusal)
    }

    enum Content: Equatable {
        /// No table of the user's has a row.
        case schemaOnly
        case rows
        /// Not looked at: nothing depends on it.
        case unknown
        /// Moved byte by byte, unread.
        case opaque
    }

    enum Relation: Equatable {
        case separate
        /// One directory entry, reached by two paths.
        case sameEntry
        /// One file under two names, by a hard link or a mount.
        case twoNames
    }

    /// How two stores with rows compare; nil when not asked.
    enum Comparison: Equatable {
        /// All that is in the legacy store is in the group's.
        case same
        /// The rows are; external data of the legacy store isn't.
        case sameRows
        case different
        /// The legacy store is byte for byte what a receipt says was published as the file that the group has, and the
        /// group has moved on.
        case published
        /// The same, and some of its external data isn't in the group.
        case publishedRows
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
    /// A side file or the support folder is not what belongs there, or a second name of another file: its name.
    case unusualPart(String)
    case opaqueWithSideFiles
}

/// What is to be done, a pure function of what was seen.
enum RelocationPlan: Equatable {
    /// What stands at the destination and goes to the archive first.
    enum Obstacle: Equatable {
        /// Side files without a database, or a file of zero bytes.
        case remains
        /// A whole store: empty, or given up for the legacy one.
        case store(reason: String)
    }

    case nothingToDo(adopted: Bool)
    case alreadyRelocated
    case relocate(archivingFirst: Obstacle?)
    /// The legacy store is put aside; the group's stays.
    case archiveLegacy(reason: String)
    /// The legacy store is the group's, once more: it is retired.
    case retireLegacy
    case conflict
    case refuse(RelocationRefusal, atGroup: Bool)

    init(_ seen: RelocationEvidence, onConflict: RelocationRequest.ConflictPolicy) {
        switch seen.relation {
        case .sameEntry: self = .alreadyRelocated
        case .twoNames: self = .refuse(.twoNames, atGroup: false)
        case .separate: self = Self.separate(seen, onConflict)
        }
    }

    private static func separate(
        _ seen: RelocationEvidence, _ onConflict: RelocationRequest.ConflictPolicy
    ) -> RelocationPlan {
        switch (seen.legacy, seen.group) {
        case (.unusable(let reason), _): .refuse(reason, atGroup: false)
        case (.orphans, _): .refuse(.halfAStore, atGroup: false)
        case (.nothing, .store), (.zeroBytes, .store): .nothingToDo(adopted: true)
        case (.nothing, _), (.zeroBytes, _): .nothingToDo(adopted: false)
        case (_, .unusable(let reason)): .refuse(reason, atGroup: true)
        case (.store, .nothing): .relocate(archivingFirst: nil)
        case (.store, .zeroBytes), (.store, .orphans): .relocate(archivingFirst: .remains)
        case (.store(let legacy), .store(let group)): both(legacy, group, seen.comparison, onConflict)
        }
    }

    private static func both(
        _ legacy: RelocationEvidence.Content, _ group: RelocationEvidence.Content,
        _ comparison: RelocationEvidence.Comparison?, _ onConflict: RelocationRequest.ConflictPolicy
    ) -> RelocationPlan {
        // An empty legacy store comes first: an old program that was started once more makes one.
        if legacy == .schemaOnly {
            return .archiveLegacy(reason: "it held no row; the group's store is the one in use")
        }
        if group == .schemaOnly {
            return .relocate(archivingFirst: .store(reason: "it held no row when the legacy store was relocated"))
        }
        switch comparison {
        case .same: return .retireLegacy
        // What it holds may not be in the group any more, and then it is nowhere else: it isn't deleted.
        case .published:
            return .archiveLegacy(reason: "its rows were relocated before; the group's store has moved on since")
        case .publishedRows:
            return .archiveLegacy(
                reason: "its rows were relocated before; some of its external data isn't in the group")
        case .sameRows, .different, nil: break
        }
        switch onConflict {
        case .refuse: return .conflict
        case .keepGroup: return .archiveLegacy(reason: "both places held a store; the group's was kept")
        case .keepLegacy:
            return .relocate(archivingFirst: .store(reason: "both places held a store; the legacy one was kept"))
        }
    }
}
