import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// What a relocation has put into the archive to make room, until it is done itself.
enum ArchivedSet {
    case store(TransferIdentifier, hadWAL: Bool)
    case remains(TransferIdentifier)
}

extension Relocation {
    /// What was put aside for a relocation that then failed has its place in the group container again: refusing
    /// changes nothing. When that fails too, it is said; the archive says what it is.
    func restore(_ givenUp: [ArchivedSet], _ places: RelocationEndpoints, after error: any Error) {
        guard !(error is StoreTransfer.Unfinished) else { return }
        do {
            for set in givenUp.reversed() {
                // A journal that stayed is the next run's: it undoes that first, and goes on from there.
                guard try places.container.journal() == nil else { return }
                switch set {
                case .store(let id, let hadWAL): try restore(id, hadWAL: hadWAL, places)
                case .remains(let id):
                    try LeftoverFiles(container: places.container, store: places.group, id: id).putBack()
                }
            }
        } catch {
            report(.note("what stood at \(PrintablePath(places.group.path)) stays in the archive: \(error)"))
        }
    }

    private func restore(_ archived: TransferIdentifier, hadWAL: Bool, _ places: RelocationEndpoints) throws {
        let archive = try places.container.archive(archived)
        guard try archive.status(places.group.name.database) != nil, try StoreSnapshot(places.group).status == nil
        else { return try places.container.removeEmptiedArchive(archived) }
        let source = StoreLocation(directory: archive, name: places.group.name)
        _ = try restoration(
            of: source, to: places.group, taken: archived, hadWAL: hadWAL, yields: false, places.container
        ).run()
    }

    /// The transfer that gives a set its former place again.
    func restoration(
        of source: StoreLocation, to destination: StoreLocation, taken: TransferIdentifier, hadWAL: Bool,
        arrivesInWAL: Bool? = nil, yields: Bool = true, _ container: GroupContainer,
        isStillWanted: @escaping () throws -> Bool = { true }
    ) throws -> StoreTransfer {
        let seen = try StoreSnapshot(source)
        guard let database = seen.status?.identity else { throw StoreTransfer.RetryReason.changed }
        try source.checkExternalDataIsItsOwn()
        var transfer = Transfer(
            id: TransferIdentifier(),
            purpose: .restore(
                to: StoredPath(destination.directory.path),
                as: StoredPath(FilePath(root: nil, [destination.name.database])), taken: taken),
            directory: source.directory.path, name: source.name.database, database: database,
            support: seen.support?.identity, copies: false, retirement: .delete, hadWAL: hadWAL)
        transfer.arrivesInWAL = arrivesInWAL
        var options = options(opaque: seen.header == nil)
        options.yields = yields
        // What stood there before gets its place back, whoever has ended the rest.
        if !yields { options.isCancelled = { false } }
        return try StoreTransfer(
            transfer, source: source, container: container, options: options,
            isStillWanted: isStillWanted, report: report)
    }
}
