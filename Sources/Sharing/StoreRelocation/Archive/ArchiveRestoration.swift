import FoundationEssentials
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// A request to restore an archived store.
package struct ArchiveRestoration: Sendable {
    package var id: TransferIdentifier
    /// The database's new path; nil for where it was.
    package var destination: FilePath?
    /// True to take the store out of the archive. It is copied otherwise.
    package var moves: Bool

    package init(_ id: TransferIdentifier, to destination: FilePath? = nil, moves: Bool = false) {
        self.id = id
        self.destination = destination
        self.moves = moves
    }
}

extension Relocation {
    /// Opens a group container's directory. Throws `RelocationFailure` if there is none.
    package static func container(at path: FilePath) throws(RelocationFailure) -> GroupContainer {
        do {
            return try RelocationEndpoints.container(path)
        } catch {
            throw RelocationFailure(error, RelocationRequest(source: path, group: path))
        }
    }

    /// Restores an archived store by a transfer of its own. Throws `RelocationFailure`; the archive and the destination
    /// are then unchanged. A restoration that was interrupted is finished or undone first.
    package func restore(_ wanted: ArchiveRestoration) throws(RelocationFailure) -> RelocationSummary {
        do {
            let container = try RelocationEndpoints.container(request.group, request.identifier)
            let interrupted = try container.journals().first { $0.restores(wanted.id, in: container) }
            // Reading the whole store may take long: before anybody waits for this.
            let paths = try interrupted == nil ? RestorationPaths(wanted, container) : nil
            let checked = try paths?.check(request, moves: wanted.moves, isCancelled: retries.isCancelled)
            let destination =
                try interrupted?.restoredPlace ?? paths?.destination
                ?? RestorationPaths(wanted, container).destination
            // Programs of the group wait until the store is whole.
            let relocation =
                destination.directory.identity == container.directory.identity
                ? try claiming(destination.name.database, in: container) : self
            defer { relocation.claim?.end(published: false) }
            return try relocation.withGroupLock(container, afterRecovering: [destination]) {
                if let interrupted, let summary = try finished(interrupted, wanted, in: container) { return summary }
                return try relocation.restore(
                    wanted, RestorationPaths(wanted, container), checked, in: container)
            }
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    /// Returns the summary that `restore` would. Writes nothing and acquires no lock.
    package func restoreDryRun(_ wanted: ArchiveRestoration) throws(RelocationFailure) -> RelocationSummary {
        do {
            let container = try RelocationEndpoints.container(request.group, request.identifier)
            let paths = try RestorationPaths(wanted, container)
            let bytes = try paths.check(request, moves: wanted.moves, isCancelled: retries.isCancelled).bytesToCopy
            report(.plan(paths.sentence(moves: wanted.moves), bytesToCopy: bytes))
            var summary = RelocationSummary(.restored, from: paths.archived.path, to: paths.destination.path)
            summary.method = bytes > 0 ? .copy : .rename
            summary.bytes = try paths.archived.bytesToArchive()
            return summary
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    private func restore(
        _ wanted: ArchiveRestoration, _ paths: RestorationPaths, _ earlier: RestorationPaths.Checked?,
        in container: GroupContainer
    ) throws -> RelocationSummary {
        let bytes = try paths.check(
            request, moves: wanted.moves, earlier: earlier, isCancelled: retries.isCancelled
        ).bytesToCopy
        report(.plan(paths.sentence(moves: wanted.moves), bytesToCopy: bytes))
        let total = try paths.archived.bytesToArchive()
        let header = try StoreSnapshot(paths.archived).header
        let isUnread = header == nil || request.opaque
        // What SQLite can't read is left as it is.
        let hadWAL = paths.entry.note?.hadWAL == true && !isUnread
        let database = try paths.archived.directory.status(paths.archived.name.database)
        let outcome = try restoration(
            of: paths.archived, to: paths.destination, taken: wanted.id,
            hadWAL: !isUnread && header?.journalMode == .writeAhead,
            arrivesInWAL: hadWAL ? true : nil,
            keepsSource: !wanted.moves, isUnread: isUnread, in: container,
            isStillValid: {
                try paths.checkDestinationIsFree()
                return true
            },
            verify: { try paths.verify($0, isUnread: isUnread) }
        ).run()
        claim?.end(published: true)
        var summary = RelocationSummary(.restored, from: paths.archived.path, to: paths.destination.path)
        summary.method = outcome.method
        summary.bytes = total
        summary.notes = outcome.notes
        if !wanted.moves { note(paths, of: database, in: container) }
        return summary
    }

    /// Records the restoration in the archive's note, so that purging the archive can find the copy. The store is
    /// restored, so that an error changes nothing.
    private func note(_ paths: RestorationPaths, of database: FileStatus?, in container: GroupContainer) {
        guard var note = paths.entry.note, paths.entry.isTrusted,
            let file = try? paths.destination.directory.identity(paths.destination.name.database)
        else { return }
        let birth = paths.destination.directory.birth(paths.destination.name.database)
        var restoration = ArchiveNote.Restoration(to: paths.destination.path, at: Date(), file: file, birth: birth)
        // The archived database has been withdrawn meanwhile, which changes its time. Nobody could open it.
        if let now = try? paths.archived.directory.status(paths.archived.name.database),
            now.modified == database?.modified, now.size == database?.size
        {
            restoration.archived = .init(now)
        }
        note.add(restoration)
        try? container.write(note)
    }

    /// Returns the summary of a restoration that recovery has just finished; nil if it was undone.
    private func finished(
        _ journal: TransferJournal, _ wanted: ArchiveRestoration, in container: GroupContainer
    ) throws -> RelocationSummary? {
        guard case .committing(let database, _, _) = journal.state, let place = try journal.restoredPlace,
            let status = try place.directory.status(place.name.database), status.identity.inode == database.inode
        else { return nil }
        if let destination = wanted.destination {
            let asked = try RelocationEndpoints.unresolved(destination)
            guard asked.directory.identity == place.directory.identity, asked.name == place.name else { return nil }
        }
        let archived = container.archivePath(wanted.id).pushing(journal.transfer.name.path)
        var summary = RelocationSummary(.restored, from: archived, to: place.path)
        summary.method = journal.transfer.copies ? .copy : .rename
        summary.bytes = try place.bytesToArchive()
        return summary
    }
}

extension TransferJournal {
    fileprivate func restores(_ id: TransferIdentifier, in container: GroupContainer) -> Bool {
        guard case .restore(_, _, id) = transfer.purpose else { return false }
        return isFromArchive(of: container)
    }

    /// The place of a store that the transfer restores.
    var restoredPlace: StoreLocation? {
        get throws {
            guard case .restore(let directory, let name, _) = transfer.purpose,
                let name = name.path.lastComponent.flatMap(StoreName.existing)
            else { return nil }
            return StoreLocation(directory: try self.directory(directory.path), name: name)
        }
    }
}
