import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

extension TransferCompletion {
    /// The store that was copied no longer holds what the original holds, so that the original can't be removed.
    struct OriginalNeeded: ActionableError {
        let path: FilePath
        let hidden: FilePath
        let reason: String

        var errorCode: String { "original_needed" }
        var message: String {
            "since an interrupted relocation, \(PrintablePath(path)) \(reason); the original store is "
                + "\(PrintablePath(hidden))"
        }
        var remedy: String { "move the original to where you need it, then run this again" }
        var errorPath: FilePath? { path }
    }

    /// Proves that a copy that another process has published still holds what the original holds, which is about to be
    /// removed. The journal only says that it did. Throws `OriginalNeeded`, and has changed nothing then.
    func proveArrival(_ receipt: RelocationReceipt?) throws {
        guard transfer.copies, transfer.keepsSource != true, let destination = paths.destination,
            paths.isDestinationKnown(to: transfer), try isDatabase(directory.status(paths.hidden)),
            let hidden = StoreName.existing(paths.hidden)
        else { return }
        let original = StoreLocation(directory: directory, name: hidden)
        let isOther = paths.isInPlace || [.migrate, .replace, .merge].contains(receipt?.method)
        let archive = isOther ? try container.existingArchive(transfer.id) : nil
        guard isOther, try archive?.status(source.name.database) == nil else {
            let holder = archive.map { StoreLocation(directory: $0, name: source.name) } ?? destination
            let counterpart = ArchiveCounterpart(
                place: .init(path: holder.path, basis: .descendant), archived: original, excluded: [],
                support: transfer.support == nil || paths.isInPlace ? nil : source.name.support, comparesOnly: true)
            switch try counterpart.compare(whileProven: { _ in }) {
            case .elsewhere: return
            case .absent: throw needed("is gone", hidden)
            case .contradicted(let reason): throw needed(reason, hidden)
            }
        }
        // A migrated store differs, as its audit has accepted. It must be whole, and not emptied.
        let snapshot = try StoreSnapshot(destination)
        guard snapshot.header != nil else { throw needed("is no database any more", hidden) }
        if let finding = try StoreIntegrity(destination).findings.first {
            throw needed("is damaged: \(finding)", hidden)
        }
        guard try StoreContents.isSchemaOnly(snapshot, countingRows: true) == true,
            try StoreContents.isSchemaOnly(StoreSnapshot(original), countingRows: true) != true
        else { return }
        throw needed("has no rows", hidden)
    }

    private func needed(_ reason: String, _ hidden: StoreName) -> OriginalNeeded {
        OriginalNeeded(
            path: (paths.destination ?? source).path, hidden: directory.path.appending(hidden.database), reason: reason)
    }
}
