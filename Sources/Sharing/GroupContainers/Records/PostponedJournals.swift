import LinuxSystem
import SystemPackage

/// Journals of interrupted transfers that can't be completed at present, because a disk is missing or a name is taken.
/// They wait in a directory of their own and don't block moves of the group's other stores.
///
/// A journal is moved there and back by one rename. It is in exactly one of the two places at every instant, and keeps
/// its owner, on which trust in the journal depends.
extension GroupContainer {
    /// The interrupted transfers: that of the current journal, then the postponed ones.
    package func journals() throws -> [TransferJournal] {
        try [journal()].compactMap { $0 } + postponedJournals()
    }

    package func postponedJournals() throws -> [TransferJournal] {
        guard let directory = try postponed() else { return [] }
        let names = try directory.names().filter { $0.bytes.suffix(5).elementsEqual(".json".utf8) }
        return try names.sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }
            .compactMap { try Self.journal($0, in: directory) }
    }

    /// Postpones the transfer of the current journal. The caller must hold the group's lock.
    package func postponeJournal() throws {
        guard let id = try journal()?.transfer.id, let name = id.component.appending(".json") else { return }
        let bookkeeping = try bookkeeping()
        let directory = try Self.child(Self.postponedName, of: bookkeeping)
        try bookkeeping.rename(Self.journalName, to: name, in: directory, .refuse)
        try directory.synchronize()
        try bookkeeping.synchronize()
    }

    /// Makes a postponed transfer the current one. The caller must hold the group's lock, and there must be no current
    /// journal.
    package func resumeJournal(_ id: TransferIdentifier) throws {
        guard let directory = try postponed(), let name = id.component.appending(".json") else { return }
        let bookkeeping = try bookkeeping()
        try directory.rename(name, to: Self.journalName, in: bookkeeping, .refuse)
        try bookkeeping.synchronize()
        try directory.synchronize()
    }

    private func postponed() throws(SystemError) -> Directory? {
        guard let bookkeeping = try existingBookkeeping(), try bookkeeping.status(Self.postponedName) != nil else {
            return nil
        }
        return try bookkeeping.directory(Self.postponedName)
    }
}

extension TransferJournal {
    /// Returns the directory and database name of each store that the transfer touches.
    private func affectedNames(in container: GroupContainer) -> [(directory: FilePath, name: FilePath)] {
        let group = container.directory.path
        var found = [(transfer.directory.path, transfer.name.path)]
        switch transfer.purpose {
        case .publish(let name): found.append((group, name.path))
        case .restore(let directory, let name, _): found.append((directory.path, name.path))
        case .archive, .discard: break
        }
        if let successor = transfer.successor { found.append((group, successor.path)) }
        return found
    }

    /// Returns true if the transfer touches a store of this name in that directory, or one with the same `stem`: both
    /// use the same folder of external data.
    package func affects(
        _ name: FilePath.Component, in directory: Directory, of container: GroupContainer
    ) -> Bool {
        affectedNames(in: container).contains { affected in
            guard let other = affected.name.lastComponent, other == name || other.stem == name.stem else {
                return false
            }
            return affected.directory == directory.path
                || (try? Directory(affected.directory))?.identity == directory.identity
        }
    }
}
