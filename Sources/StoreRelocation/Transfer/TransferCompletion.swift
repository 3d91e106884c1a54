import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Finishes or undoes a transfer, from its journal and from what is on the disk: in the process that began it, or in
/// another one after a crash. Each step may have been done before.
struct TransferCompletion {
    let container: GroupContainer
    let transfer: Transfer
    let places: TransferPaths

    /// The store is at neither of its names, and nothing of ours holds it: somebody else took it away.
    struct StoreLost: Error {
        let path: FilePath
        let copies: FilePath
    }

    /// Something stands at the old name that isn't ours.
    struct OldNameTaken: Error {
        let path: FilePath
        let hidden: FilePath
    }

    var source: StoreLocation { places.source }
    var directory: Directory { places.source.directory }
    var oldName: FilePath.Component { places.source.name.database }

    /// Of a transfer that another process began. Throws `UntrustedJournal`.
    static func interrupted(
        _ journal: TransferJournal, _ container: GroupContainer
    ) throws -> (end: TransferCompletion, state: TransferState) {
        let places = try TransferPaths(journal, container: container)
        var journal = journal
        journal.renumberDevices(
            source: places.source.directory.identity, destination: places.destination?.directory.identity)
        return (TransferCompletion(container: container, transfer: journal.transfer, places: places), journal.state)
    }

    /// Whether the commit point was passed: what was to arrive has left the place it left from.
    func hasArrived(_ state: TransferState) throws -> Bool {
        guard case .committing(let arriving, _, _) = state else { return false }
        let isOld = try isDatabase(directory.status(places.hidden))
        guard transfer.copies, let destination = places.destination else {
            return try !isOld && !isDatabase(directory.status(oldName))
        }
        let staged = try places.existingStaging()?.status(destination.name.database)
        let isStaged = places.isDestinationKnown(to: transfer) ? staged?.identity == arriving : staged != nil
        // Where neither place has it any more, the old one is what is left.
        return try !isStaged && (!isOld || destination.directory.status(destination.name.database) != nil)
    }

    /// Whether that, at the old name or the hidden one, is the database that was to go. In a copy of its directory it
    /// has another number: there, each file of that name is taken for it.
    func isDatabase(_ status: FileStatus?) -> Bool {
        guard let status else { return false }
        return places.isSourceKnown(to: transfer)
            ? status.identity == transfer.database : status.kind == .regular
    }

    /// SQLite unlinks its rollback journal and doesn't sync the directory: a journal that came back after a power
    /// failure would be rolled back into what was committed since.
    func turnWriteAheadOn(at store: StoreLocation) throws -> Bool {
        let isOn = try JournalMode.writeAhead(at: store)
        try store.directory.synchronize()
        return isOn
    }

    // MARK: Finish

    /// Puts the arrival on the disk: whoever was to do so may have died before, and the old set goes next.
    func synchronizeArrival() throws {
        try places.destination?.directory.synchronize()
        try (transfer.copies ? places.staging() : directory).synchronize()
    }

    /// Completes what the commit point decided. Returns what a person should know.
    func finish(receipt: RelocationReceipt?) throws -> [String] {
        var notes: [String] = []
        if let receipt { try container.write(receipt) }
        if let destination = places.destination {
            try closeFolder(destination.name.support, in: destination.directory)
        }
        notes += try removeOldSet()
        notes += try retireOldName()
        notes += try returnSideFiles()
        try directory.synchronize()
        if arrivesInWAL, let destination = places.destination,
            try !turnWriteAheadOn(at: destination)
        {
            notes.append("write-ahead logging stays off until the next program turns it on: somebody has it open")
        }
        try places.removeStaging()
        try settleRecords(receipt)
        try container.removeJournal()
        return notes
    }

    /// Whether the set is to be a store that programs open, and not an archive.
    var isForUse: Bool {
        switch transfer.purpose {
        case .publish, .restore: true
        case .archive, .discard: false
        }
    }

    /// Whether write-ahead logging is to be on where the set arrives.
    var arrivesInWAL: Bool { isForUse && (transfer.arrivesInWAL ?? transfer.hadWAL) }

    /// The receipt gets what the store is now, so that a later write shows; what a restored set came out of goes.
    private func settleRecords(_ receipt: RelocationReceipt?) throws {
        if var receipt, let destination = places.destination {
            receipt.published = try destination.directory.status(destination.name.database).map { .init($0) }
            try container.write(receipt)
        }
        if case .restore(_, _, let taken) = transfer.purpose {
            try container.removeEmptiedArchive(taken)
            try container.removeReceipt(taken)
        }
    }

    /// After a copy the old database is still there under its hidden name; after a rename nothing is.
    private func removeOldSet() throws -> [String] {
        let isOld = try isDatabase(directory.status(places.hidden))
        // In a copy of the directory it may be another store that has the published one's name.
        guard places.isDestinationKnown(to: transfer) else {
            return isOld
                ? ["\(PrintablePath(directory.path.appending(places.hidden))), the store as it was, is left"] : []
        }
        if let support = transfer.support, let found = try directory.status(source.name.support),
            try found.identity == support || (isOld && isSupportOfWithdrawn(found))
        {
            try directory.removeTree(source.name.support)
        }
        if isOld { try directory.removeFile(places.hidden) }
        return []
    }

    /// In a copy of its directory, beside the withdrawn database, while no other store can have the old name.
    private func isSupportOfWithdrawn(_ found: FileStatus) throws -> Bool {
        try !places.isSourceKnown(to: transfer) && found.kind == .directory
            && directory.status(oldName)?.kind == .directory
    }

    /// The empty directory at the old name goes, or a symbolic link takes its place.
    private func retireOldName() throws -> [String] {
        // The hidden name, unless the store as it was keeps that.
        let link = try isDatabase(directory.status(places.hidden)) ? transfer.id.hiddenName("-link") : places.hidden
        guard try directory.status(oldName)?.kind == .directory else {
            // The link may be in place already, with the directory under the hidden name.
            if try directory.status(link)?.kind == .directory {
                try directory.removeDirectory(link)
            }
            return []
        }
        // The link that a restored store has swapped places with.
        if transfer.retirement != .symlink, try directory.status(link)?.kind == .symbolicLink {
            try directory.removeFile(link)
        }
        guard let target = linkTarget else {
            do {
                try directory.removeDirectory(oldName)
                return []
            } catch {
                guard error.errno == .directoryNotEmpty else { throw error }
                return ["\(PrintablePath(source.path)) is left: somebody put something into it"]
            }
        }
        if try directory.status(link) == nil {
            try directory.makeSymbolicLink(link, to: target)
        }
        try directory.rename(link, to: oldName, in: directory, .exchange)
        try directory.removeDirectory(link)
        return []
    }
}

extension TransferCompletion {
    /// Where a symbolic link at the old name is to lead; nil where there is to be none.
    private var linkTarget: FilePath? {
        guard transfer.retirement == .symlink else { return nil }
        return switch transfer.purpose {
        case .publish: places.destination?.path
        case .archive, .discard: transfer.successor?.path.lastComponent.map(container.directory.path.appending)
        case .restore: nil
        }
    }
}

/// The side files that a transfer moves aside before it removes them.
enum SideFile {
    static let sharedMemorySuffix = "-shm"

    /// A second name for the hot journal, while SQLite rolls it back and unlinks the first one.
    static func rollbackAside(_ id: TransferIdentifier) -> FilePath.Component { id.hiddenName("-rollback") }

    static func kept(_ name: StoreName) -> [(suffix: String, name: FilePath.Component)] {
        [("-wal", name.wal), ("-journal", name.journal), (sharedMemorySuffix, name.sharedMemory)]
    }
}
