import GroupContainers
import LinuxSystem
import SQLiteFormat
import StoreRelocation
import SystemPackage

extension StoreRescue {
    /// A branch that an interrupted rescue has saved, whose rows the store hasn't got yet.
    package struct Interrupted: Sendable {
        package let store: FilePath
        /// The copy's directory.
        package let archive: FilePath
        /// The processes that had committed it, in one phrase.
        package let holders: String
    }

    /// Returns the saved branches of a directory's stores that no program has open any more.
    ///
    /// - Parameters:
    ///   - settling: True to move them into the archive first, and to remove copies of what a program still has open.
    ///   - request: The deadline for the group's lock.
    ///   - report: Called with a sentence for each copy that is moved, or that was not finished and stays.
    package static func interrupted(
        in group: FilePath, settling: Bool, _ request: RelocationRequest, report: (String) -> Void = { _ in }
    ) throws(RelocationFailure) -> [Interrupted] {
        do {
            let container = try Relocation.container(at: group)
            let saved = SavedBranches(container)
            let copies = try saved.copies()
            let archived = try saved.archived().filter { !$0.branch.isJoined }
            let unfinished = try saved.unfinished()
            let names = Set((copies + archived + unfinished.compactMap(\.self)).map(\.name))
            // Nothing is lost with a directory that has a record alone, and nothing is said of it.
            let hasEmptyPlaces = try saved.hasEmptyPlaces()
            guard !names.isEmpty || !unfinished.isEmpty || hasEmptyPlaces else { return [] }
            let branches = try open(names, in: container)
            let isOpen = branches.mapValues { $0.map(\.record) }
            if settling, !copies.isEmpty || !unfinished.isEmpty || hasEmptyPlaces {
                let notes = try Relocation(request).settleBranches { copy in
                    copy.isOpen(isOpen[copy.name] ?? [])
                } discard: { copy, run in
                    try (branches[copy.name] ?? []).discard(copy, in: run)
                }
                notes.forEach(report)
            }
            if !settling {
                for copy in unfinished where copy.map({ !$0.isOpen(isOpen[$0.name] ?? []) }) ?? true {
                    let place = group.appending(".groupstore/rescue")
                    report(
                        copy?.damageSentence ?? copy?.unfinishedSentence
                            ?? "a copy that was not finished, of what a program had committed, is in "
                            + "\(PrintablePath(place))")
                }
            }
            let left = settling ? [] : copies.filter { !$0.isOfName && !$0.isOpen(isOpen[$0.name] ?? []) }
            let unjoined = try names.sorted { $0.string < $1.string }.flatMap {
                try saved.unjoined($0, open: isOpen[$0] ?? [])
            }
            return (unjoined + left).map {
                Interrupted(
                    store: container.directory.path.appending($0.name), archive: $0.location.directory.path,
                    holders: $0.branch.holders)
            }
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    private static func open(
        _ names: Set<FilePath.Component>, in container: GroupContainer
    ) throws -> [FilePath.Component: [OrphanedBranch]] {
        var found: [FilePath.Component: [OrphanedBranch]] = [:]
        for name in names {
            guard let store = StoreName.existing(name) else { continue }
            found[name] = OrphanedBranch.find(StoreLocation(directory: container.directory, name: store))
        }
        return found
    }
}
