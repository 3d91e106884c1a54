import GroupContainers
import LinuxSystem
import SQLiteStore
import SystemPackage

/// What would be lost with an archived set.
package enum ArchiveValue: Sendable, Equatable {
    /// Nothing: its content is elsewhere, for this reason.
    case redundant(String)
    /// A relocation that uses it is under way or was interrupted.
    case unfinished
    /// Undoing the last relocation of a store takes it, for this reason.
    case neededByUndo(String)
    /// It is the only copy, as far as can be seen, for this reason.
    case onlyCopy(String)
    /// A program may have it open or be writing to it, for this reason.
    case inUse(String)

    package var word: String {
        switch self {
        case .redundant: "redundant"
        case .unfinished: "unfinished"
        case .neededByUndo: "needed_by_undo"
        case .onlyCopy: "only_copy"
        case .inUse: "in_use"
        }
    }

    package var reason: String {
        switch self {
        case .redundant(let reason), .neededByUndo(let reason), .onlyCopy(let reason), .inUse(let reason): reason
        case .unfinished: "a relocation that uses it is under way or was interrupted"
        }
    }

    func mayBePurged(force: Bool) -> Bool {
        switch self {
        case .redundant: true
        case .neededByUndo, .onlyCopy, .inUse: force
        case .unfinished: false
        }
    }

    /// Returns the failure of a purge that names a set of this value; nil if there is no objection.
    func failure(_ set: ArchivedStore, in container: GroupContainer) -> RelocationFailure? {
        switch self {
        case .redundant: return nil
        case .unfinished:
            return RelocationFailure(
                .busy, code: "interrupted", "archive \(set.id) is in use: \(reason)",
                remedy: "run: groupstore recover \(container.directory.path.shellWord)")
        case .inUse:
            return RelocationFailure(
                .busy, code: "in_use", "archive \(set.id) is kept: \(reason)",
                remedy: "close the program that uses it, then try again")
        case .neededByUndo, .onlyCopy:
            let group = container.directory.path.shellWord
            return RelocationFailure(
                .conflict, code: word, "archive \(set.id) is kept: \(reason)",
                remedy: "remove it for good with --force, or restore it: groupstore archive restore \(group) \(set.id)")
        }
    }
}

/// The value of an archived set, with what it was compared with.
package struct ArchiveAssessment: Sendable, Equatable {
    package var value: ArchiveValue
    /// The store that has its content; nil if none has.
    package var counterpart: FilePath?
    /// The tables of which that store has less than the archive, because it has gone on since.
    package var fewer: [ContentRetention.Table] = []
    /// The number of external files that the store no longer has, nor refers to.
    package var fewerFiles = 0

    init(_ value: ArchiveValue) { self.value = value }
}

extension ArchiveValue {
    /// Returns what would be lost with the set at this moment. Removes nothing.
    init(of set: ArchivedStore, in container: GroupContainer) throws {
        let archived = try ArchivedFiles.identities(in: container)
        self = try ArchiveProof(of: set, in: container, archived: archived, isCancelled: { false }).assess().value
    }
}
