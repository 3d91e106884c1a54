import FoundationEssentials
import GroupContainers
import LinuxSystem
import SystemPackage

extension TransferCompletion {
    /// Brings back what was there before. Without `keepsCopies`, copies go even where the store that they were made of
    /// has not got its name again. Returns what a person should know.
    func undo(_ state: TransferState, keepsCopies: Bool = true) throws -> [String] {
        var notes: [String] = []
        if case .committing(_, let support, _) = state {
            // While the journal still tells of it: without the database it has not arrived, so this is done again.
            try returnSupport(arrived: support)
            // From now on a crash finds "not committed", whatever of the copies is gone by then.
            try container.write(TransferJournal(transfer: transfer, state: .withdrawn))
        }
        try returnOldSupport()
        try closeFolder(source.name.support, in: directory)
        try returnDatabase(keepsCopies: keepsCopies)
        notes += try returnSideFiles()
        try directory.synchronize()
        if try keepsCopies && !isBack() {
            notes += try archiveCopies()
        } else {
            try container.removeArchive(transfer.id)
        }
        try places.removeStaging()
        if transfer.hadWAL, try !turnWriteAheadOn(at: source) {
            notes.append(
                "write-ahead logging is off at \(PrintablePath(source.path)): somebody has it open")
        }
        try container.removeJournal()
        return notes
    }

    /// Whether the store has its old name, and not a newer file that was given its inode.
    private func isBack() throws -> Bool {
        guard try directory.identity(oldName) == transfer.database else { return false }
        return transfer.databaseBirth.map { $0 == directory.birth(oldName) } ?? true
    }

    private func returnSupport(arrived: FileIdentity?) throws {
        guard let arrived, let destination = places.destination,
            try isFolder(arrived, destination.directory.status(destination.name.support))
        else { return }
        let target = transfer.copies ? try places.staging() : directory
        let name = transfer.copies ? destination.name.support : source.name.support
        try moveFolder(destination.name.support, in: destination.directory, to: name, in: target)
        try destination.directory.synchronize()
        try target.synchronize()
    }

    /// What had made room for the external data of another content.
    private func returnOldSupport() throws {
        let name = Self.oldSupportName(transfer.id)
        guard let support = transfer.support, let staging = try places.existingStaging(),
            try isFolder(support, staging.status(name))
        else { return }
        try moveFolder(name, in: staging, to: source.name.support, in: directory)
        try directory.synchronize()
        try staging.synchronize()
    }

    /// Whether that, where the set was going, is the support folder with this number; in a copy of the directory, each
    /// folder of the name is taken for it, as nothing else had the name.
    private func isFolder(_ known: FileIdentity, _ status: FileStatus?) -> Bool {
        guard let status else { return false }
        return places.isDestinationKnown(to: transfer) ? status.identity == known : status.kind == .directory
    }

    static func oldSupportName(_ id: TransferIdentifier) -> FilePath.Component { id.hiddenName("-support") }

    private func returnDatabase(keepsCopies: Bool) throws {
        let atOldName = try directory.status(oldName)
        let hidden = try directory.status(places.hidden)
        if isDatabase(hidden) {
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
            if keepsCopies, atOldName?.kind != .regular, let copies = try copiesLeft() {
                throw StoreLost(path: source.path, copies: copies)
            }
        }
    }

    /// Where a whole copy of a store is that exists nowhere else; nil when there is none.
    private func copiesLeft() throws -> FilePath? {
        guard transfer.copies, let destination = places.destination, let staging = try places.existingStaging(),
            try staging.status(destination.name.database) != nil
        else { return nil }
        return staging.path
    }

    /// The store has lost its name, to another file perhaps, as when one of the two places came out of a backup: what was
    /// copied of it, whole or not, may be nowhere else.
    private func archiveCopies() throws -> [String] {
        let archive = try container.existingArchive(transfer.id)
        let holdsStore = try archive?.status(source.name.database) != nil
        if !holdsStore, try copiesLeft() == nil {
            try container.removeArchive(transfer.id)
            return []
        }
        try container.write(
            ArchiveNote(
                id: transfer.id, name: source.name.database, from: source.path, at: Date(),
                reason: "what an interrupted relocation had copied of a store that has lost its name since"))
        let kept = try container.archive(transfer.id)
        if !holdsStore { try moveCopies(to: kept) }
        try closeFolder(source.name.support, in: kept)
        try kept.synchronize()
        return [
            "the store is no longer at \(PrintablePath(source.path)): its copy is kept in \(PrintablePath(kept.path))"
        ]
    }

    /// The database last: while it is not there, this is done again.
    private func moveCopies(to archive: Directory) throws {
        guard let staging = try places.existingStaging(), let staged = places.destination?.name else { return }
        for (name, kept) in [(staged.support, source.name.support), (staged.database, source.name.database)]
        where try staging.status(name) != nil {
            do {
                try staging.move(name, to: kept, in: archive)
            } catch {
                guard error.errno == .improperLink else { throw error }
                throw StoreLost(path: source.path, copies: staging.path)
            }
        }
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
}
