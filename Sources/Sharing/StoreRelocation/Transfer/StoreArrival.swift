import FoundationEssentials
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The database and the support folder of a set whose old name is withdrawn, once it is proved closed.
struct WithdrawnSet {
    let database: DatabaseFingerprint
    let support: FileIdentity?
}

/// The parts of the commit, and what is said of it.
extension StoreTransfer {
    /// Returns true if nobody has opened or changed the database since it lost its name.
    func isStillWithdrawn(_ set: WithdrawnSet, _ raw: CInt) throws -> Bool {
        try DatabaseFingerprint(raw, path: source.path) == set.database
            && source.directory.status(source.name.wal) == nil && source.directory.status(source.name.journal) == nil
            && source.directory.identity(paths.hidden) == transfer.database
    }

    /// Returns the files that arrive: those of the copy, or the set's own.
    func arriving(_ set: WithdrawnSet) -> (database: FileIdentity, support: FileIdentity?) {
        staged?.copy.map { ($0.database, $0.support) } ?? (transfer.database, set.support)
    }

    /// Tells that the set has arrived, and may be opened.
    func announce() {
        report(.published)
        guard case .publish = transfer.purpose else { return }
        if transfer.copies, completion.arrivesInWAL, let destination = paths.destination {
            _ = try? JournalMode.enableWriteAhead(at: destination)
        }
        options.didPublish()
    }

    func outcome(_ set: WithdrawnSet, _ receipt: RelocationReceipt?, notes: [String]) -> Outcome {
        Outcome(
            method: method, bytes: receipt?.bytes ?? set.database.size,
            notes: logNotes + (staged?.transformed?.notes ?? []) + notes, transformed: staged?.transformed,
            setAside: setAside,
            merge: staged?.merge, mergeArchive: staged?.merge.map { _ in container.archivePath(transfer.id) },
            archive: archive)
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
    func arrive() throws {
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

    /// Returns true if the destination is the link that a relocation of this store left there. The same rename replaces
    /// it.
    private func replacesLink(_ destination: StoreLocation) throws -> Bool {
        guard try destination.directory.status(destination.name.database)?.kind == .symbolicLink else { return false }
        switch transfer.purpose {
        // A place that an archived store is restored to was free.
        case .restore: return source.directory.identity == container.directory.identity
        // The decision has proved the rest. By now the empty directory has the store's name.
        case .publish:
            return try FileStatus(following: destination.path)?.identity
                == source.directory.identity(source.name.database)
        case .archive, .discard: return false
        }
    }

    func receipt(_ set: WithdrawnSet) throws -> RelocationReceipt? {
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
            bytes: set.database.size + supportBytes, hash: staged?.copy?.hash,
            changeCounter: set.database.changeCounter ?? 0,
            storeUUID: options.content.reason == nil ? storeUUID : nil,
            retirement: archive != nil && transfer.retirement == .delete ? .archive : transfer.retirement,
            assumedClosed: options.assumeClosed)
        if try replacesLink(destination) { receipt.replacedLink = true }
        if transfer.arrivesInWAL != nil { receipt.hadWAL = transfer.hadWAL }
        receipt.modelBefore = staged?.transformed?.before
        receipt.modelAfter = staged?.transformed?.after
        return receipt
    }
}
