import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// A copy in the archive that this process has open, which keeps it from being purged.
package final class HeldArchive: Sendable {
    package let copy: ArchivedStore
    private let descriptor: Descriptor

    init(_ copy: ArchivedStore) throws {
        self.copy = copy
        guard let location = copy.location else { throw SystemError("open", .noSuchFileOrDirectory, path: copy.path) }
        descriptor = try location.directory.open(location.name.database, flags: O_RDONLY)
    }

    /// True if another process has the copy open, such as a program that was started since.
    package var isHeldByOthers: Bool {
        get throws {
            let identity = try descriptor.status(path: copy.path).identity
            return FileHolder.of(identity).contains { $0.pid != getpid() }
        }
    }

    /// Lets the programs inherit it that this process starts from now on: they keep the copy too, as long as they run.
    package func shareWithChildren() throws(SystemError) {
        guard fcntl(descriptor.raw, F_SETFD, 0) == 0 else { throw SystemError.last("fcntl", path: copy.path) }
    }
}

extension Relocation {
    /// Puts a copy of a store into the archive of its directory, and returns it, held open. Programs may have the store
    /// open and write to it meanwhile: the copy is of one moment, and is compared with the store by its rows. External
    /// data is copied after the rows.
    ///
    /// - Parameter reason: A sentence for the user on why the copy is there.
    ///
    /// Throws `RelocationFailure`; the archive is then unchanged.
    package func archiveCopy(
        of store: StoreLocation, reason: String
    ) throws(RelocationFailure) -> HeldArchive {
        do {
            let container = try RelocationEndpoints.container(store.directory.path, request.identifier)
            return try withGroupLock(container, afterRecovering: [store]) {
                let id = TransferIdentifier()
                do {
                    try archive(store, as: id, in: container, reason)
                } catch {
                    try? container.removeArchive(id)
                    throw error
                }
                guard let entry = try container.archivedSet(id) else {
                    throw RelocationFailure.noArchive(id.rawValue, in: container)
                }
                return try HeldArchive(ArchivedStore(entry, in: container))
            }
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    /// Records in a copy's note whether the command before which it was made has lost something of the store, or may
    /// have.
    package func noteLoss(_ hasLoss: Bool, after copy: ArchivedStore) throws(RelocationFailure) {
        do {
            let container = try RelocationEndpoints.container(request.group, request.identifier)
            try withGroupLock(container) {
                guard var note = try container.archivedSet(copy.id)?.note else { return }
                note.hasLoss = hasLoss
                try container.write(note)
            }
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    private func archive(
        _ store: StoreLocation, as id: TransferIdentifier, in container: GroupContainer, _ reason: String
    ) throws {
        let directory = try container.archive(id)
        let copy = StoreLocation(directory: directory, name: store.name)
        let header = try StoreSnapshot(store).header
        try copyRows(of: store, to: copy)
        let hasSupport = try store.directory.status(store.name.support)?.kind == .directory
        if hasSupport {
            let identity = try directory.status(copy.name.database)?.identity ?? directory.identity
            try SetCopy(
                source: store, identity: identity, inRollbackMode: true, hasSupport: true,
                isCancelled: retries.isCancelled, report: report
            ).runSupport(to: copy)
        }
        try directory.synchronize()
        var note = ArchiveNote(
            id: id, name: store.name.database, from: store.path, at: Date(), reason: reason)
        note.hasSupport = hasSupport
        note.hadWAL = header?.journalMode == .writeAhead
        note.isGuard = true
        note.archived = try directory.status(store.name.database).map { .init($0) }
        try container.write(note)
    }

    private func copyRows(of store: StoreLocation, to copy: StoreLocation) throws {
        _ = try copy.directory.open(copy.name.database, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
        try StoreReader.read(store) { reader in
            reader.interrupt(when: retries.isCancelled)
            try reader.copy(to: copy.pathForSQLite)
            // The copy is in rollback mode: it has no log.
            let file = try copy.directory.open(copy.name.database, flags: O_RDWR)
            try file.write([1, 1], at: 18, path: copy.path)
            let content = try StoreContent(reader)
            let isSame = try StoreReader.read(copy) { try content.difference(from: StoreContent($0)) == nil }
            guard isSame else { throw VerifiedCopy.Mismatch(path: copy.path) }
        }
        // Nothing is connected to the store any more, so its file may be opened and closed.
        let original = try store.directory.open(store.name.database, flags: O_RDONLY)
        let status = try original.status(path: store.path)
        let file = try copy.directory.open(copy.name.database, flags: O_RDWR)
        try keepOwner(status, of: file.raw, path: copy.path)
        try ExtendedAttributes.removeInheritedLists(of: file.raw, path: copy.path)
        try ExtendedAttributes.copy(from: original.raw, to: file.raw, mode: status.permissions, path: copy.path)
        try file.synchronize(path: copy.path)
    }
}
