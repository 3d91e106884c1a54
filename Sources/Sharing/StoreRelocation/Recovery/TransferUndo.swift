import FoundationEssentials
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

extension TransferCompletion {
    /// Restores the state before the transfer. If `keepsCopies` is false, removes copies even if their store doesn't
    /// have its name back. Returns notes for the user.
    func undo(_ state: TransferState, keepsCopies: Bool = true) throws -> [String] {
        var notes: [String] = []
        if case .committing(_, let support, _) = state {
            // Do this while the journal still names the folder. Without the database it has not arrived, so a crash
            // repeats it.
            try returnSupport(arrived: support)
            // From here on a crash finds "not committed", even if some copies are gone by then.
            try container.write(TransferJournal(transfer: transfer, state: .withdrawn))
        }
        try returnOldSupport()
        try closeFolder(source.name.support, in: directory)
        try returnDatabase(keepsCopies: keepsCopies)
        notes += try returnSideFiles()
        try directory.synchronize()
        if try keepsCopies && (!hasOldName() || lacksExternalData(since: state)) {
            notes += try archiveCopies()
        } else {
            try container.removeArchive(transfer.id)
        }
        try paths.removeStaging()
        if transfer.hadWAL, try !enableWriteAheadLogging(at: source) {
            notes.append(
                "write-ahead logging is off at \(PrintablePath(source.path)) until the next run: a program has it open")
        }
        try container.removeJournal()
        return notes
    }

    /// Returns true if the store has its old name. A newer file that reuses its inode doesn't count, nor does a file
    /// that was a store when it was copied, and was emptied or overwritten since.
    private func hasOldName() throws -> Bool {
        guard try directory.identity(oldName) == transfer.database, try !isEmptied() else { return false }
        return transfer.databaseBirth.map { $0 == directory.birth(oldName) } ?? true
    }

    private func isEmptied() throws -> Bool {
        guard try StoreSnapshot(source).header == nil else { return false }
        let staged = try paths.existingStaging().flatMap { directory in
            (paths.destination?.name).map { StoreLocation(directory: directory, name: $0) }
        }
        let archived = try container.existingArchive(transfer.id).map {
            StoreLocation(directory: $0, name: source.name)
        }
        return try [staged, archived].compactMap(\.self).contains { try StoreSnapshot($0).header != nil }
    }

    /// Returns true if files of external data were copied that the store no longer has as they were copied. A process
    /// may have been killed while it removed the old set, and its copy may have lost its name since. Copies in the
    /// archive count too: this may have been interrupted after they got there.
    ///
    /// Before the commit, the last file may have been copied in part: then only files that the store has no more count.
    private func lacksExternalData(since state: TransferState) throws -> Bool {
        let isWhole = if case .committing = state { true } else { false }
        guard transfer.copies, !paths.isInPlace else { return false }
        let staged = try paths.existingStaging().flatMap { directory in
            (paths.destination?.name.support).map { (directory, $0) }
        }
        let archived = try container.existingArchive(transfer.id).map { ($0, source.name.support) }
        return try [staged, archived].compactMap(\.self).contains { directory, name in
            let found = try directory.compareExternalData(name, with: source, excluding: [])
            return isWhole ? !found.isComplete : !found.missing.isEmpty
        }
    }

    private func returnSupport(arrived: FileIdentity?) throws {
        guard let arrived, let destination = paths.destination,
            try isFolder(arrived, destination.directory.status(destination.name.support))
        else { return }
        let target = transfer.copies ? try paths.staging() : directory
        let name = transfer.copies ? destination.name.support : source.name.support
        try moveFolder(destination.name.support, in: destination.directory, to: name, in: target)
        try destination.directory.synchronize()
        try target.synchronize()
    }

    /// Moves back the external data that had made room for that of other content.
    private func returnOldSupport() throws {
        let name = Self.oldSupportName(transfer.id)
        guard let support = transfer.support, let staging = try paths.existingStaging(),
            try isFolder(support, staging.status(name))
        else { return }
        try moveFolder(name, in: staging, to: source.name.support, in: directory)
        try directory.synchronize()
        try staging.synchronize()
    }

    /// Returns true if the folder at the destination is the support folder with this number. In a copy of the
    /// directory, every folder of the name counts: nothing else had the name.
    private func isFolder(_ known: FileIdentity, _ status: FileStatus?) -> Bool {
        guard let status else { return false }
        return paths.isDestinationKnown(to: transfer) ? status.identity == known : status.kind == .directory
    }

    static func oldSupportName(_ id: TransferIdentifier) -> FilePath.Component { id.hiddenName("-support") }

    /// Gives the database its old name back.
    func returnDatabase(keepsCopies: Bool) throws {
        let atOldName = try directory.status(oldName)
        let hidden = try directory.status(paths.hidden)
        if isDatabase(hidden) {
            switch atOldName?.kind {
            case nil: try directory.rename(paths.hidden, to: oldName, in: directory, .refuse)
            case .directory:
                try directory.rename(paths.hidden, to: oldName, in: directory, .exchange)
                try directory.removeDirectory(paths.hidden)
            default:
                throw OldNameTaken(path: source.path, hidden: directory.path.appending(paths.hidden))
            }
        } else {
            if hidden?.kind == .directory { try directory.removeDirectory(paths.hidden) }
            if keepsCopies, atOldName?.kind != .regular, let copies = try copiesLeft() {
                throw StoreLost(path: source.path, copies: copies)
            }
        }
    }

    /// Returns the directory of a whole copy of the store that may be the only one left, or nil if there is none.
    private func copiesLeft() throws -> FilePath? {
        guard transfer.copies, let destination = paths.destination, let staging = try paths.existingStaging(),
            try staging.status(destination.name.database) != nil
        else { return nil }
        return staging.path
    }

    /// Archives the copies of a store that has lost its name or some of its external data, for example because one of
    /// the two places was restored from a backup. Whole or not, they may be all that is left of it.
    private func archiveCopies() throws -> [String] {
        let archive = try container.existingArchive(transfer.id)
        let holdsStore = try archive?.status(source.name.database) != nil
        let isThere = try hasOldName()
        if !holdsStore, !isThere, try copiesLeft() == nil {
            try container.removeArchive(transfer.id)
            return []
        }
        try container.write(
            ArchiveNote(
                id: transfer.id, name: source.name.database, from: source.path, at: Date(),
                reason: "what an interrupted relocation had copied of a store that has lost "
                    + (isThere ? "external data since" : "its name since")))
        let kept = try container.archive(transfer.id)
        if !holdsStore { try moveCopies(to: kept) }
        try closeFolder(source.name.support, in: kept)
        try kept.synchronize()
        let lost = isThere ? "lacks external data that was copied from it" : "has lost its name"
        return ["\(PrintablePath(source.path)) \(lost): the copy is kept in \(PrintablePath(kept.path))"]
    }

    /// Moves the database last: while it is missing there, this is repeated.
    private func moveCopies(to archive: Directory) throws {
        guard let staging = try paths.existingStaging(), let staged = paths.destination?.name else { return }
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

    /// Moves a side file that was moved aside, and turns out to have content, back beside the store.
    func returnSideFiles() throws -> [String] {
        var notes: [String] = []
        try directory.removeFile(SideFile.rollbackAside(transfer.id))
        for (suffix, name) in SideFile.movedAside(for: source.name) {
            let aside = transfer.id.hiddenName(suffix)
            // Only a regular file is one of the store's. Leave anything else that was put there.
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
                        "kept \(PrintablePath(directory.path.appending(aside))): \(PrintablePath(name)) exists already")
                }
            }
        }
        return notes
    }
}
