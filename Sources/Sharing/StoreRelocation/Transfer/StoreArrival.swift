import FoundationEssentials
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The commit: the set gets its new names.
extension StoreTransfer {
    func commit(_ descriptor: borrowing Descriptor, _ withdrawn: Withdrawn) throws -> Outcome {
        let receipt = self.receipt(withdrawn)
        let raw = descriptor.raw
        do {
            try withLease(descriptor) { isIntact in
                guard try DatabaseFingerprint(raw, path: source.path) == withdrawn.fingerprint,
                    try source.directory.status(source.name.wal) == nil,
                    try source.directory.status(source.name.journal) == nil,
                    try source.directory.identity(paths.hidden) == transfer.database, try counterpartExists(),
                    isIntact()
                else { throw RetryReason.changed }
                try recordAndArrive(withdrawn, receipt)
                // No program has it open yet. If this fails, `finish` tries again.
                if completion.arrivesInWAL, !transfer.copies { try? setFormatVersion(raw, writeAhead: true) }
            }
        } catch let reason as RetryReason {
            // A program had looked the old name up before it was withdrawn and uses the database: give the name back.
            try revertWithdrawal(raw, isClosed: false)
            throw reason
        }
        hasCommitted = true
        report(.published)
        if case .publish = transfer.purpose {
            if transfer.copies, completion.arrivesInWAL, let destination = paths.destination {
                _ = try? JournalMode.enableWriteAhead(at: destination)
            }
            options.didPublish()
        }
        let notes = try completion.finish(receipt: receipt)
        return Outcome(
            method: method, bytes: receipt?.bytes ?? withdrawn.fingerprint.size,
            notes: logNotes + (staged?.transformed?.notes ?? []) + notes, transformed: staged?.transformed,
            setAside: setAside,
            merge: staged?.merge, mergeArchive: staged?.merge.map { _ in container.archivePath(transfer.id) },
            archive: archive)
    }

    private func recordAndArrive(_ withdrawn: Withdrawn, _ receipt: RelocationReceipt?) throws {
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

    /// Gives the set its new names, the database last: its arrival is the commit point.
    private func arrive() throws {
        guard let destination = paths.destination else {
            try source.directory.removeFile(paths.hidden)
            return try source.directory.synchronize()
        }
        let origin = transfer.copies ? try paths.staging() : source.directory
        let supportName = transfer.copies ? destination.name.support : source.name.support
        let databaseName = transfer.copies ? destination.name.database : paths.hidden
        try moveOldSupportAside(of: destination)
        if try origin.status(supportName) != nil {
            try completion.moveFolder(supportName, in: origin, to: destination.name.support, in: destination.directory)
            try destination.directory.synchronize()
        }
        if paths.isInPlace {
            // The placeholder moves to another directory, which requires the right to write to it.
            try source.directory.directory(source.name.database).setPermissions(0o700)
        }
        try origin.rename(
            databaseName, to: destination.name.database, in: destination.directory,
            replacesLink(destination) || paths.isInPlace ? .exchange : .refuse)
        try destination.directory.synchronize()
        try origin.synchronize()
    }

    /// Moves the external data of a set that keeps its name and gets other content into the staging directory. Undoing
    /// moves it back; finishing removes it with the rest.
    private func moveOldSupportAside(of destination: StoreLocation) throws {
        guard paths.isInPlace, let support = transfer.support,
            try destination.directory.identity(destination.name.support) == support
        else { return }
        let staging = try paths.staging()
        try completion.moveFolder(
            destination.name.support, in: destination.directory, to: TransferCompletion.oldSupportName(transfer.id),
            in: staging)
        try staging.synchronize()
        try destination.directory.synchronize()
    }

    /// Returns true if the destination of a restore is the link that the relocation left. The same rename replaces it.
    private func replacesLink(_ destination: StoreLocation) throws -> Bool {
        // A place that an archived store is restored to was free.
        guard case .restore = transfer.purpose, source.directory.identity == container.directory.identity else {
            return false
        }
        return try destination.directory.status(destination.name.database)?.kind == .symbolicLink
    }

    private func receipt(_ withdrawn: Withdrawn) -> RelocationReceipt? {
        guard case .publish = transfer.purpose, let destination = paths.destination else { return nil }
        var origin = source.path
        if case .merged(_, let legacy, _) = options.content {
            origin = legacy.path
        } else if paths.isInPlace {
            // A store that stays in place has no origin to record.
            return nil
        }
        var receipt = RelocationReceipt(
            id: transfer.id, name: destination.name.database, from: origin, at: Date(), method: method,
            bytes: withdrawn.fingerprint.size + supportBytes, hash: staged?.copy?.hash,
            changeCounter: withdrawn.fingerprint.changeCounter ?? 0,
            storeUUID: options.content.reason == nil ? storeUUID : nil,
            retirement: archive != nil && transfer.retirement == .delete ? .archive : transfer.retirement,
            assumedClosed: options.assumeClosed)
        if transfer.arrivesInWAL != nil { receipt.hadWAL = transfer.hadWAL }
        receipt.modelBefore = staged?.transformed?.before
        receipt.modelAfter = staged?.transformed?.after
        return receipt
    }
}
