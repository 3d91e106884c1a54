import FoundationEssentials
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The commit: the set gets its new names.
extension StoreTransfer {
    func commit(_ descriptor: borrowing Descriptor, _ withdrawn: Withdrawn) throws -> Done {
        let receipt = self.receipt(withdrawn)
        let raw = descriptor.raw
        do {
            try withLease(descriptor) { isIntact in
                guard try DatabaseFingerprint(raw, path: source.path) == withdrawn.fingerprint,
                    try source.directory.status(source.name.wal) == nil,
                    try source.directory.status(source.name.journal) == nil,
                    try source.directory.identity(places.hidden) == transfer.database, isIntact()
                else { throw RetryReason.changed }
                try decide(withdrawn, receipt)
                // Nobody has it open yet. Where this fails, `finish` tries.
                if end.arrivesInWAL, !transfer.copies { try? setVersion(raw, writeAhead: true) }
            }
        } catch let setback as RetryReason {
            // Somebody had looked the old name up before it was withdrawn, and uses the database: it has it again.
            try takeBack(raw, isClosed: false)
            throw setback
        }
        hasCommitted = true
        report(.published)
        if case .publish = transfer.purpose {
            if transfer.copies, end.arrivesInWAL, let destination = places.destination {
                _ = try? JournalMode.writeAhead(at: destination)
            }
            options.published()
        }
        let notes = try end.finish(receipt: receipt)
        return Done(
            method: method, bytes: receipt?.bytes ?? withdrawn.fingerprint.size,
            notes: (staged?.transformed?.notes ?? []) + notes, transformed: staged?.transformed, setAside: setAside,
            archive: archive)
    }

    private func decide(_ withdrawn: Withdrawn, _ receipt: RelocationReceipt?) throws {
        let database = staged?.copy?.database ?? transfer.database
        let support = staged?.copy != nil ? staged?.copy?.support : withdrawn.support
        try writeJournal(.committing(database: database, support: support, receipt: receipt))
        try arrive()
    }

    private var setAside: SetAsideStore? {
        options.content.reason.map {
            SetAsideStore(store: source.path, archive: container.archivePath(transfer.id), reason: $0)
        }
    }

    private var archive: FilePath? {
        guard let staged, staged.isArchived, staged.transformed?.losses.isEmpty == false else { return nil }
        return container.archivePath(transfer.id)
    }

    private var method: Transfer.Method { staged?.copy?.method ?? .rename }

    /// The set gets its new names, the database last: its arrival is the commit point.
    private func arrive() throws {
        guard let destination = places.destination else {
            try source.directory.removeFile(places.hidden)
            return try source.directory.synchronize()
        }
        let origin = transfer.copies ? try places.staging() : source.directory
        let supportName = transfer.copies ? destination.name.support : source.name.support
        let databaseName = transfer.copies ? destination.name.database : places.hidden
        try moveOldSupportAside(of: destination)
        if try origin.status(supportName) != nil {
            try end.moveFolder(supportName, in: origin, to: destination.name.support, in: destination.directory)
            try destination.directory.synchronize()
        }
        if places.isInPlace {
            // What stands for the old name goes into another directory, which takes the right to write to it.
            try source.directory.directory(source.name.database).setPermissions(0o700)
        }
        try origin.rename(
            databaseName, to: destination.name.database, in: destination.directory,
            replacesLink(destination) || places.isInPlace ? .exchange : .refuse)
        try destination.directory.synchronize()
        try origin.synchronize()
    }

    /// Where the set gets its own name again with other content, its external data makes room first, into what is staged:
    /// undoing gives it back, finishing removes it with the rest.
    private func moveOldSupportAside(of destination: StoreLocation) throws {
        guard places.isInPlace, let support = transfer.support,
            try destination.directory.identity(destination.name.support) == support
        else { return }
        let staging = try places.staging()
        try end.moveFolder(
            destination.name.support, in: destination.directory, to: TransferCompletion.oldSupportName(transfer.id),
            in: staging)
        try staging.synchronize()
        try destination.directory.synchronize()
    }

    /// Where a store is restored to, the link that its relocation left may stand; it gives way in the same step.
    private func replacesLink(_ destination: StoreLocation) throws -> Bool {
        guard case .restore = transfer.purpose else { return false }
        return try destination.directory.status(destination.name.database)?.kind == .symbolicLink
    }

    private func receipt(_ withdrawn: Withdrawn) -> RelocationReceipt? {
        // A store that stays at its place came from nowhere.
        guard case .publish = transfer.purpose, let destination = places.destination, !places.isInPlace else {
            return nil
        }
        var receipt = RelocationReceipt(
            id: transfer.id, name: destination.name.database, from: source.path, at: Date(), method: method,
            bytes: withdrawn.fingerprint.size + supportBytes, hash: staged?.copy?.hash,
            changeCounter: withdrawn.fingerprint.changeCounter ?? 0,
            storeUUID: options.content.reason == nil ? storeUUID : nil,
            retirement: transfer.retirement, assumedClosed: options.assumeClosed)
        if transfer.arrivesInWAL != nil { receipt.hadWAL = transfer.hadWAL }
        receipt.modelBefore = staged?.transformed?.before
        receipt.modelAfter = staged?.transformed?.after
        return receipt
    }
}
