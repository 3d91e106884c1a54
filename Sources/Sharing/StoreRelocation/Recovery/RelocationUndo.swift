import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Undoes the last relocation of a store, by its receipt, as long as nobody has written to the store since.
extension Relocation {
    /// Moves the store with its external files back to its legacy place and removes the receipt. Keeps what `--retire
    /// archive` archived. Throws `RelocationFailure`; both places are then unchanged.
    package func undo() throws(RelocationFailure) -> RelocationSummary {
        var named = self
        named.request = Self.namingStore(of: request)
        return try named.undoNamed()
    }

    private func undoNamed() throws(RelocationFailure) -> RelocationSummary {
        do {
            let container = try RelocationEndpoints.container(request.group, request.identifier)
            let paths = try UndoPaths(request, container)
            // Without records there is nothing to undo, and none are made for a refusal.
            guard try container.existingBookkeeping() != nil else {
                throw RelocationFailure.noReceipt(paths, nil, in: container)
            }
            let interrupted = try container.journals().first { $0.undoesRelocation(from: paths, in: container) }
            let relocation = try claiming(paths.group.name.database, in: container)
            defer { relocation.claim?.end(published: false) }
            return try relocation.withGroupLock(container, afterRecovering: [paths.group, paths.legacy]) {
                if let interrupted, let summary = try finished(interrupted, paths) { return summary }
                return try relocation.undo(UndoPaths(request, container), in: container)
            }
        } catch is RelocationEndpoints.NoLegacyDirectory {
            throw .noLegacyDirectory(request.source)
        } catch {
            // Name the store by its current place.
            var moved = request
            moved.source = request.group.appending(request.name ?? request.source.lastComponent ?? .currentDirectory)
            throw RelocationFailure(error, moved)
        }
    }

    /// Returns the places that the request's source may mean: its name, and those that symbolic links there lead to.
    /// Undoing a relocation returns the store to the one that its receipt names.
    package static func undoPlaces(of source: FilePath) -> [FilePath] {
        ((try? UndoPaths.places(of: source)) ?? []).map(\.path)
    }

    /// Returns the summary of an undo that recovery has just finished; nil if recovery has put the store back.
    private func finished(_ journal: TransferJournal, _ paths: UndoPaths) throws -> RelocationSummary? {
        guard case .committing(let database, _, _) = journal.state,
            try paths.legacy.directory.identity(paths.legacy.name.database)?.inode == database.inode
        else { return nil }
        var summary = RelocationSummary(.undone, from: paths.group.path, to: paths.legacy.path)
        summary.method = journal.transfer.copies ? .copy : .rename
        summary.bytes = try paths.legacy.bytesToArchive()
        return summary
    }

    /// Returns the request with the name that the store has in the group. A store may have come there under another
    /// name (`--name`), which its receipt tells; the last receipt counts if several stores came from the same place. An
    /// interrupted undo may have removed the receipt.
    package static func namingStore(of request: RelocationRequest) -> RelocationRequest {
        var named = request
        guard request.name == nil, let places = try? UndoPaths.places(of: request.source),
            let container = try? RelocationEndpoints.container(request.group, request.identifier),
            let receipts = try? container.receipts()
        else { return named }
        let last = receipts.enumerated().filter { index, receipt in
            !receipts.dropFirst(index + 1).contains { $0.name.path == receipt.name.path }
        }.map(\.element)
        let found = last.last { receipt in places.contains { $0.path == receipt.from.path } }
        named.name = found?.name.path.lastComponent
        if found == nil {
            let interrupted = try? container.journals().first { journal in
                places.contains { journal.undoesRelocation(from: $0, in: container) }
            }
            named.name = interrupted?.transfer.name.path.lastComponent
        }
        return named
    }

    private func undo(_ paths: UndoPaths, in container: GroupContainer) throws -> RelocationSummary {
        for store in [paths.group, paths.legacy] { opener?.relinquish(store.path) }
        defer { for store in [paths.group, paths.legacy] { opener?.reacquire(store.path) } }
        let last = try container.receipts(of: paths.group.name.database).last
        // A killed undo was complete: there is no record of it any more.
        if last == nil, try paths.isStoreBack {
            return RelocationSummary(.nothingToDo, from: paths.legacy.path, to: paths.legacy.path)
        }
        guard let receipt = last, receipt.from.path == paths.legacy.path else {
            throw RelocationFailure.noReceipt(paths, last, in: container)
        }
        guard receipt.method != .migrate else {
            throw try RelocationFailure.migratedOnTheWay(paths, receipt, in: container)
        }
        guard receipt.method != .merge else { throw try RelocationFailure.merged(paths, receipt, in: container) }
        guard receipt.method != .replace else { throw try RelocationFailure.setAside(paths, receipt, in: container) }
        try paths.checkStoreIsThere()
        try paths.checkLegacyPlaceIsFree()
        try paths.checkNothingWritten(since: receipt)
        let sentence = "move \(PrintablePath(paths.group.path)) back to \(PrintablePath(paths.legacy.path))"
        report(.plan(sentence, bytesToCopy: 0))
        let outcome = try restoration(
            of: paths.group, to: paths.legacy, taken: receipt.id,
            hadWAL: hadWAL(StoreSnapshot(paths.group), container), arrivesInWAL: receipt.hadWAL,
            retirement: receipt.replacedLink == true ? .symlink : .delete, in: container,
            isStillValid: {
                try paths.checkNothingWritten(since: receipt)
                return true
            }
        ).run()
        var summary = RelocationSummary(.undone, from: paths.group.path, to: paths.legacy.path)
        summary.add(outcome)
        return summary
    }
}

extension TransferJournal {
    /// Returns true if the transfer takes a store of this group back to that legacy place.
    fileprivate func undoesRelocation(from legacy: StoreLocation, in container: GroupContainer) -> Bool {
        guard case .restore = transfer.purpose, !isFromArchive(of: container),
            transfer.directory.path == container.directory.path, let place = try? restoredPlace
        else { return false }
        return place.directory.identity == legacy.directory.identity && place.name == legacy.name
    }

    fileprivate func undoesRelocation(from paths: UndoPaths, in container: GroupContainer) -> Bool {
        transfer.name.path.lastComponent == paths.group.name.database
            && undoesRelocation(from: paths.legacy, in: container)
    }
}
