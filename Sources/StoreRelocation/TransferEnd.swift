import GroupContainer
import LinuxSystem
import PersistentStore
import SystemPackage

/// Finishes or undoes a transfer, from its journal and from what is on the disk: in the process that began it, or in
/// another one after a crash. Each step may have been done before.
struct TransferEnd {
    let container: GroupContainer
    let transfer: Transfer
    let places: TransferPlaces

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

    private var source: StoreLocation { places.source }
    private var directory: Directory { places.source.directory }
    private var oldName: FilePath.Component { places.source.name.database }

    /// Whether the commit point was passed: what was to arrive has left the place it left from.
    func hasArrived(_ state: TransferState) throws -> Bool {
        guard case .committing(let arriving, _, _) = state else { return false }
        if transfer.copies, let destination = places.destination {
            return try places.existingStaging()?.identity(destination.name.database) != arriving
        }
        return try directory.identity(oldName) != transfer.database
            && directory.identity(places.hidden) != transfer.database
    }

    /// SQLite unlinks its rollback journal and doesn't sync the directory: a journal that came back after a power
    /// failure would be rolled back into what was committed since.
    private func turnWriteAheadOn(at store: StoreLocation) throws -> Bool {
        let isOn = try JournalMode.writeAhead(at: store)
        try store.directory.synchronize()
        return isOn
    }

    // MARK: Undo

    /// Brings back what was there before. Returns what a person should know.
    func undo(_ state: TransferState) throws -> [String] {
        var notes: [String] = []
        if case .committing(_, let support, _) = state {
            // While the journal still tells of it: without the database it has not arrived, so this is done again.
            try returnSupport(arrived: support)
            // From now on a crash finds "not committed", whatever of the copies is gone by then.
            try container.write(TransferJournal(transfer: transfer, state: .withdrawn))
        }
        try returnOldSupport()
        try returnDatabase()
        notes += try returnSideFiles()
        try directory.synchronize()
        try places.removeStaging()
        try container.removeArchive(transfer.id)
        if transfer.hadWAL, try !turnWriteAheadOn(at: source) {
            notes.append(
                "write-ahead logging is off at \(PrintablePath(source.path)): somebody has it open")
        }
        try container.removeJournal()
        return notes
    }

    private func returnSupport(arrived: FileIdentity?) throws {
        guard let arrived, let destination = places.destination,
            try destination.directory.identity(destination.name.support) == arrived
        else { return }
        let target = transfer.copies ? try places.staging() : directory
        let name = transfer.copies ? destination.name.support : source.name.support
        try destination.directory.rename(destination.name.support, to: name, in: target, .refuse)
        try destination.directory.synchronize()
        try target.synchronize()
    }

    /// What had made room for the external data of another content.
    private func returnOldSupport() throws {
        let name = Self.oldSupportName(transfer.id)
        guard let support = transfer.support, let staging = try places.existingStaging(),
            try staging.identity(name) == support
        else { return }
        try staging.rename(name, to: source.name.support, in: directory, .refuse)
        try directory.synchronize()
        try staging.synchronize()
    }

    static func oldSupportName(_ id: TransferIdentifier) -> FilePath.Component { id.hiddenName("-support") }

    private func returnDatabase() throws {
        let atOldName = try directory.status(oldName)
        let hidden = try directory.status(places.hidden)
        if hidden?.identity == transfer.database {
            switch atOldName?.kind {
            case nil: try directory.rename(places.hidden, to: oldName, in: directory, .refuse)
            case .directory:
                try directory.rename(places.hidden, to: oldName, in: directory, .exchange)
                try directory.removeDirectory(places.hidden)
            default:
                throw OldNameTaken(path: source.path, hidden: directory.path.appending(places.hidden))
            }
        } else {
            if hidden?.kind == .directory { try directory.removeDirectory(places.hidden) }
            if atOldName?.kind != .regular, let copies = try copiesLeft() {
                throw StoreLost(path: source.path, copies: copies)
            }
        }
    }

    /// Where a whole copy of a store is that exists nowhere else; nil when there is none.
    private func copiesLeft() throws -> FilePath? {
        guard transfer.copies, let destination = places.destination else { return nil }
        let staging = try places.staging()
        return try staging.status(destination.name.database) == nil ? nil : staging.path
    }

    /// A side file that was moved aside and has content after all goes back beside the store.
    func returnSideFiles() throws -> [String] {
        var notes: [String] = []
        try directory.removeFile(SideFile.rollbackAside(transfer.id))
        for (suffix, name) in SideFile.kept(source.name) {
            let aside = transfer.id.hiddenName(suffix)
            // Only a file is one of the store's: what else somebody has put there stays where it is.
            guard let status = try directory.status(aside), status.kind == .regular else { continue }
            if status.size == 0 || suffix == SideFile.sharedMemorySuffix {
                try directory.removeFile(aside)
            } else {
                do {
                    try directory.rename(aside, to: name, in: directory, .refuse)
                    notes.append("a late \(PrintablePath(name)) was kept at \(PrintablePath(directory.path))")
                } catch {
                    guard error.errno == .fileExists else { throw error }
                    notes.append(
                        "kept \(PrintablePath(directory.path.appending(aside))): \(PrintablePath(name)) is new")
                }
            }
        }
        return notes
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
        try removeOldSet()
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
    private func removeOldSet() throws {
        if try directory.identity(places.hidden) == transfer.database { try directory.removeFile(places.hidden) }
        if let support = transfer.support, try directory.identity(source.name.support) == support {
            try directory.removeTree(source.name.support)
        }
    }

    /// The empty directory at the old name goes, or a symbolic link takes its place.
    private func retireOldName() throws -> [String] {
        guard try directory.status(oldName)?.kind == .directory else {
            // The link may be in place already, with the directory under the hidden name.
            if try directory.status(places.hidden)?.kind == .directory {
                try directory.removeDirectory(places.hidden)
            }
            return []
        }
        // The link that a restored store has swapped places with.
        if transfer.retirement != .symlink, try directory.status(places.hidden)?.kind == .symbolicLink {
            try directory.removeFile(places.hidden)
        }
        guard transfer.retirement == .symlink, case .publish = transfer.purpose, let destination = places.destination
        else {
            do {
                try directory.removeDirectory(oldName)
                return []
            } catch {
                guard error.errno == .directoryNotEmpty else { throw error }
                return ["\(PrintablePath(source.path)) is left: somebody put something into it"]
            }
        }
        if try directory.status(places.hidden) == nil {
            try directory.makeSymbolicLink(places.hidden, to: destination.path)
        }
        try directory.rename(places.hidden, to: oldName, in: directory, .exchange)
        try directory.removeDirectory(places.hidden)
        return []
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
