import LinuxSystem
import SystemPackage

/// Journals of interrupted transfers that can't be brought to their end now, because a disk isn't there or a name is
/// taken: they wait in a directory of their own, and don't keep the group's other stores from being moved.
///
/// A journal is moved there and back by one rename: it is in one of the two places at every instant, and its owner, who is
/// asked for where it is believed, stays the same.
extension GroupContainer {
    /// The transfers that were interrupted: the one of the journal, then those that are postponed.
    package func journals() throws -> [TransferJournal] {
        try [journal()].compactMap { $0 } + postponedJournals()
    }

    package func postponedJournals() throws -> [TransferJournal] {
        guard let directory = try postponed() else { return [] }
        let names = try directory.names().filter { $0.bytes.suffix(5).elementsEqual(".json".utf8) }
        return try names.sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }
            .compactMap { try Self.journal($0, in: directory) }
    }

    /// Postpones the transfer that the journal tells of. Run only under the group's lock.
    package func postponeJournal() throws {
        guard let id = try journal()?.transfer.id, let name = id.component.appending(".json") else { return }
        let bookkeeping = try bookkeeping()
        let directory = try Self.child(Self.postponedName, of: bookkeeping)
        try bookkeeping.rename(Self.journalName, to: name, in: directory, .refuse)
        try directory.synchronize()
        try bookkeeping.synchronize()
    }

    /// Makes a postponed transfer the one that the journal tells of. Run only under the group's lock, while there is none.
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
    /// The store's names that the transfer touches: directory and database.
    private func places(in container: GroupContainer) -> [(directory: FilePath, name: FilePath)] {
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

    /// Whether the transfer touches what goes by the name, or by one with the same `stem` and so the same folder of
    /// external data, in that directory.
    package func concerns(
        _ name: FilePath.Component, in directory: Directory, of container: GroupContainer
    ) -> Bool {
        places(in: container).contains { place in
            guard let known = place.name.lastComponent, known == name || known.stem == name.stem else { return false }
            return place.directory == directory.path
                || (try? Directory(place.directory))?.identity == directory.identity
        }
    }
}
