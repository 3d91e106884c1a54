import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Finishes or undoes a transfer from its journal and the state of the disk: in the process that began it, or in
/// another one after a crash. Each step may have been done before.
struct TransferCompletion {
    let container: GroupContainer
    let transfer: Transfer
    let paths: TransferPaths

    /// The store is at neither of its names, and none of our files holds it: another program took it away.
    struct StoreLost: ActionableError {
        let path: FilePath
        let copies: FilePath

        var errorCode: String { "store_lost" }
        var message: String {
            "\(PrintablePath(path)) has been missing since an interrupted relocation; a copy is in "
                + "\(PrintablePath(copies))"
        }
        var remedy: String { "put the store back, or the copy in its place, then run this again" }
        var errorPath: FilePath? { path }
    }

    /// A file that isn't ours has the old name.
    struct OldNameTaken: ActionableError {
        let path: FilePath
        let hidden: FilePath

        var errorCode: String { "old_name_taken" }
        var message: String { "\(PrintablePath(path)) is a new file; the store is \(PrintablePath(hidden))" }
        var remedy: String { "move the new file away, then run this again" }
        var errorPath: FilePath? { path }
    }

    var source: StoreLocation { paths.source }
    var directory: Directory { paths.source.directory }
    var oldName: FilePath.Component { paths.source.name.database }

    /// Returns the completion of a transfer that another process began. Throws `UntrustedJournal`.
    static func interrupted(
        _ journal: TransferJournal, _ container: GroupContainer
    ) throws -> (completion: TransferCompletion, state: TransferState) {
        let paths = try TransferPaths(journal, container: container)
        var journal = journal
        journal.renumberDevices(
            source: paths.source.directory.identity, destination: paths.destination?.directory.identity)
        return (TransferCompletion(container: container, transfer: journal.transfer, paths: paths), journal.state)
    }

    /// Returns true if the commit point was passed: the arriving file has left its origin.
    func hasPassedCommitPoint(_ state: TransferState) throws -> Bool {
        guard case .committing(let arriving, _, _) = state else { return false }
        let isOld = try isDatabase(directory.status(paths.hidden))
        guard transfer.copies, let destination = paths.destination else {
            return try !isOld && !isDatabase(directory.status(oldName))
        }
        let staged = try paths.existingStaging()?.status(destination.name.database)
        let isStaged = paths.isDestinationKnown(to: transfer) ? staged?.identity == arriving : staged != nil
        // If neither place has it any more, only the old one is left.
        return try !isStaged && (!isOld || destination.directory.status(destination.name.database) != nil)
    }

    /// Returns true if the file, at the old or the hidden name, is the database of the transfer. In a copy of the
    /// directory it has another number, so every file of that name counts.
    func isDatabase(_ status: FileStatus?) -> Bool {
        guard let status else { return false }
        return paths.isSourceKnown(to: transfer)
            ? status.identity == transfer.database : status.kind == .regular
    }

    /// Turns write-ahead logging on and syncs the directory. If a program prevents it, records that: later runs try
    /// again, and know that the store had it. SQLite unlinks its rollback journal without a sync: a
    /// journal that came back after a power failure would roll back later commits.
    func enableWriteAheadLogging(at store: StoreLocation) throws -> Bool {
        let isOn = try JournalMode.enableWriteAhead(at: store)
        try store.directory.synchronize()
        if !isOn { try PendingWriteAhead(container: container).remember(store) }
        return isOn
    }

    // MARK: Finish

    /// Syncs the arrival. The process that should have done so may have died, and the old set is removed next.
    func synchronizeArrival() throws {
        try paths.destination?.directory.synchronize()
        try (transfer.copies ? paths.staging() : directory).synchronize()
    }

    /// Completes the transfer after the commit point. Returns notes for the user.
    func finish(receipt: RelocationReceipt?) throws -> [String] {
        var notes: [String] = []
        if let receipt { try container.write(receipt) }
        if let destination = paths.destination {
            try closeFolder(destination.name.support, in: destination.directory)
        }
        if transfer.keepsSource == true {
            try returnDatabase(keepsCopies: false)
        } else {
            notes += try removeOldSet()
            notes += try retireOldName()
        }
        notes += try returnSideFiles()
        try directory.synchronize()
        try PendingWriteAhead(container: container).forget(transfer.database)
        if arrivesInWAL, let destination = paths.destination,
            try !enableWriteAheadLogging(at: destination)
        {
            notes.append("write-ahead logging stays off until the group's next run: a program has the store open")
        }
        try paths.removeStaging()
        try updateRecords(receipt)
        try container.removeJournal()
        return notes
    }

    /// True if the destination is a store that programs open, and not an archive.
    var isUsableStore: Bool {
        switch transfer.purpose {
        case .publish, .restore: true
        case .archive, .discard: false
        }
    }

    /// True if write-ahead logging is to be on at the destination.
    var arrivesInWAL: Bool { isUsableStore && (transfer.arrivesInWAL ?? transfer.hadWAL) }

    /// Adds the store's current state to the receipt, so that a later write can be detected, and removes what a
    /// restored set came from.
    private func updateRecords(_ receipt: RelocationReceipt?) throws {
        if var receipt, let destination = paths.destination {
            receipt.published = try destination.directory.status(destination.name.database).map { .init($0) }
            try container.write(receipt)
        }
        if case .restore(_, _, let taken) = transfer.purpose {
            try container.removeEmptiedArchive(taken)
            // An archive may have the identifier of the relocation that made it, which isn't undone by restoring it.
            if directory.identity == container.directory.identity { try container.removeReceipt(taken) }
        }
    }

    /// Removes the old set. After a copy, the old database still has its hidden name; after a rename nothing is left.
    private func removeOldSet() throws -> [String] {
        let isOld = try isDatabase(directory.status(paths.hidden))
        // In a copy of the directory, another store may have the published one's name.
        guard paths.isDestinationKnown(to: transfer) else {
            return isOld
                ? ["the original store remains at \(PrintablePath(directory.path.appending(paths.hidden)))"] : []
        }
        if let support = transfer.support, let found = try directory.status(source.name.support),
            try found.identity == support || (isOld && isSupportOfWithdrawn(found))
        {
            try directory.removeTree(source.name.support)
        }
        if isOld { try directory.removeFile(paths.hidden) }
        return []
    }

    /// Returns true if this is the support folder of the withdrawn database in a copy of its directory, as long as no
    /// other store can have the old name.
    private func isSupportOfWithdrawn(_ found: FileStatus) throws -> Bool {
        try !paths.isSourceKnown(to: transfer) && found.kind == .directory
            && directory.status(oldName)?.kind == .directory
    }

    /// Removes the empty directory at the old name, or replaces it by a symbolic link.
    private func retireOldName() throws -> [String] {
        // Use the hidden name, unless the original store keeps it.
        let link = try isDatabase(directory.status(paths.hidden)) ? transfer.id.hiddenName("-link") : paths.hidden
        guard try directory.status(oldName)?.kind == .directory else {
            // The link may be in place already, with the directory at the hidden name.
            if try directory.status(link)?.kind == .directory {
                try directory.removeDirectory(link)
            }
            return []
        }
        // The store may have swapped places with the link that an earlier relocation left. One of this transfer, if it
        // was interrupted, is made again.
        if try directory.status(link)?.kind == .symbolicLink { try directory.removeFile(link) }
        guard let target = linkTarget else { return try removeOldName() }
        do { try directory.makeSymbolicLink(link, to: target) } catch {
            // vfat and exfat have no links.
            guard [.notPermitted, .notSupported].contains(error.errno) else { throw error }
            return try removeOldName()
                + ["no link is left at \(PrintablePath(source.path)): its file system can't have one"]
        }
        // The store's owner can't replace root's link everywhere.
        if let store = FileStatus(following: target) { directory.giveLink(link, to: store) }
        try directory.rename(link, to: oldName, in: directory, .exchange)
        try directory.removeDirectory(link)
        return []
    }

    private func removeOldName() throws -> [String] {
        do {
            try directory.removeDirectory(oldName)
            return []
        } catch {
            guard error.errno == .directoryNotEmpty else { throw error }
            return ["\(PrintablePath(source.path)) remains: another program has put something into it"]
        }
    }
}

extension TransferCompletion {
    /// The target of the symbolic link at the old name; nil if there is to be none.
    private var linkTarget: FilePath? {
        guard transfer.retirement == .symlink else { return nil }
        return switch transfer.purpose {
        // An undone relocation may have replaced a link to the place that the store returns to.
        case .publish, .restore: paths.destination?.path
        case .archive, .discard: transfer.successor?.path.lastComponent.map(container.directory.path.appending)
        }
    }
}

/// The side files that a transfer moves aside before it removes them.
enum SideFile {
    static let sharedMemorySuffix = "-shm"

    /// A second name for the hot journal, while SQLite rolls it back and unlinks the first one.
    static func rollbackAside(_ id: TransferIdentifier) -> FilePath.Component { id.hiddenName("-rollback") }

    static func movedAside(for name: StoreName) -> [(suffix: String, name: FilePath.Component)] {
        [("-wal", name.wal), ("-journal", name.journal), (sharedMemorySuffix, name.sharedMemory)]
    }
}

extension Directory {
    /// Gives a new link to the owner of what it leads to, as far as this process may.
    package func giveLink(_ name: FilePath.Component, to owner: FileStatus) {
        let raw = self.raw
        _ = name.withPlatformString { fchownat(raw, $0, owner.owner, owner.group, AT_SYMLINK_NOFOLLOW) }
    }
}
