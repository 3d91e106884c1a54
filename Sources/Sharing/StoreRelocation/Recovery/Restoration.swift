import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A set that a relocation has archived to make room, until the relocation itself is complete.
enum ArchivedSet {
    case store(TransferIdentifier, hadWAL: Bool)
    case leftovers(TransferIdentifier)
}

extension Relocation {
    /// Moves what was archived for a failed relocation back to its place in the group container: a refusal must change
    /// nothing. If that fails too, reports it; the archive's note says what it holds.
    func restore(_ archivedSets: [ArchivedSet], _ endpoints: RelocationEndpoints, after error: any Error) {
        guard !(error is StoreTransfer.Unfinished) else { return }
        do {
            for set in archivedSets.reversed() {
                // The next run undoes a remaining journal first and continues from there.
                guard try endpoints.container.journal() == nil else { return }
                switch set {
                case .store(let id, let hadWAL): try restore(id, hadWAL: hadWAL, endpoints)
                case .leftovers(let id):
                    try LeftoverFiles(container: endpoints.container, store: endpoints.group, id: id).putBack()
                }
            }
        } catch {
            report(.note("what stood at \(PrintablePath(endpoints.group.path)) stays in the archive: \(error)"))
        }
    }

    private func restore(_ archived: TransferIdentifier, hadWAL: Bool, _ endpoints: RelocationEndpoints) throws {
        let archive = try endpoints.container.archive(archived)
        guard try archive.status(endpoints.group.name.database) != nil, try StoreSnapshot(endpoints.group).status == nil
        else { return try endpoints.container.removeEmptiedArchive(archived) }
        let source = StoreLocation(directory: archive, name: endpoints.group.name)
        _ = try restoration(
            of: source, to: endpoints.group, taken: archived, hadWAL: hadWAL, yields: false, in: endpoints.container
        ).run()
    }

    /// Returns the transfer that moves a set back to its former place.
    ///
    /// - Parameters:
    ///   - keepsSource: True to copy the set and to leave it where it is too.
    ///   - retirement: What to leave at the set's old place: nothing, or a link.
    ///   - isUnread: True if the database is not read through SQLite; nil if that depends on its format alone.
    ///   - verify: Checks a staged copy, if one is made, in another way than it was copied.
    func restoration(
        of source: StoreLocation, to destination: StoreLocation, taken: TransferIdentifier, hadWAL: Bool,
        arrivesInWAL: Bool? = nil, yields: Bool = true, keepsSource: Bool = false,
        retirement: Transfer.Retirement = .delete, isUnread: Bool? = nil, in container: GroupContainer,
        isStillValid: @escaping () throws -> Bool = { true },
        verify: @escaping (StoreLocation) throws -> Void = { _ in }
    ) throws -> StoreTransfer {
        let snapshot = try StoreSnapshot(source)
        guard let database = snapshot.status?.identity else { throw StoreTransfer.RetryReason.changed }
        try source.checkExternalDataIsUnshared()
        var transfer = Transfer(
            id: TransferIdentifier(),
            purpose: .restore(
                to: StoredPath(destination.directory.path),
                as: StoredPath(FilePath(root: nil, [destination.name.database])), taken: taken),
            directory: source.directory.path, name: source.name.database, database: database,
            support: snapshot.support?.identity, copies: keepsSource, retirement: retirement, hadWAL: hadWAL)
        transfer.arrivesInWAL = arrivesInWAL
        if keepsSource { transfer.keepsSource = true }
        var options = options(opaque: isUnread ?? (snapshot.header == nil))
        options.yields = yields
        options.verify = verify
        // What stood there before is restored even if the relocation was cancelled.
        if !yields { options.retries = retries.ignoringCancellation }
        return try StoreTransfer(
            transfer, source: source, container: container, options: options,
            isStillValid: isStillValid, report: report)
    }
}
