import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// An archived store, and the place that it is restored to.
struct RestorationPaths {
    let entry: ArchiveEntry
    let archived: StoreLocation
    let destination: StoreLocation
    private let container: GroupContainer

    /// Opens both places. Throws `RelocationFailure` if one of them can't be used.
    init(_ wanted: ArchiveRestoration, _ container: GroupContainer) throws {
        self.container = container
        guard let entry = try container.archivedSet(wanted.id) else {
            throw RelocationFailure.noArchive(wanted.id.rawValue, in: container)
        }
        self.entry = entry
        let set = try ArchivedStore(entry, in: container)
        guard let note = entry.note, let archived = set.location else {
            throw RelocationFailure(
                .badData, code: "unreadable_record", "\(PrintablePath(set.path)): \(set.problem ?? "no store")",
                remedy: "copy its files to where you need them")
        }
        self.archived = archived
        guard wanted.destination != nil || entry.isTrusted else {
            throw RelocationFailure(
                .notPermitted, code: "untrusted_note",
                "another user may have written \(PrintablePath(set.path.appending("about.json"))), which names the "
                    + "store's former place",
                remedy: "name the place yourself: --to PATH")
        }
        destination = try Self.destination(wanted.destination ?? note.from.path, archived.name, note.from.path)
        guard !GroupContainer.isBookkeeping(destination.directory.path) else {
            throw RelocationFailure.insideBookkeeping(destination.directory.path)
        }
    }

    /// Returns the location of `path`. A directory stands for the store's name in it.
    private static func destination(
        _ path: FilePath, _ name: StoreName, _ former: FilePath
    ) throws -> StoreLocation {
        let isDirectory = path != former && FileStatus(following: path)?.kind == .directory
        let path = isDirectory ? path.appending(name.database) : path
        do {
            let found = try RelocationEndpoints.unresolved(path)
            guard let valid = StoreName(found.name.database) else { throw RelocationFailure.badName(path) }
            return StoreLocation(directory: found.directory, name: valid)
        } catch is RelocationEndpoints.NoLegacyDirectory {
            let parent = path.removingLastComponent()
            throw RelocationFailure(
                .unusablePlace, code: "no_directory", "there is no directory \(PrintablePath(parent))",
                remedy: "create it first (mkdir -p \(parent.shellWord)), or name another place: --to PATH")
        }
    }

    func sentence(moves: Bool) -> String {
        "\(moves ? "move" : "copy") \(PrintablePath(archived.path)) to \(PrintablePath(destination.path))"
    }

    /// The result of a successful check.
    struct Checked {
        let bytesToCopy: Int64
        /// The database that was found intact.
        let intact: FileStatus?
    }

    /// Throws `RelocationFailure` if the store can't be restored there.
    ///
    /// - Parameter earlier: The result of an earlier check. A database that hasn't changed since is not read again.
    func check(
        _ request: RelocationRequest, moves: Bool, earlier: Checked? = nil, isCancelled: @escaping () -> Bool
    ) throws -> Checked {
        try checkStore(request)
        try checkDestinationIsFree()
        let needsCopy = !moves || archived.directory.identity.device != destination.directory.identity.device
        let bytes = needsCopy ? try archived.bytesToArchive() : 0
        try RelocationPreconditions(
            moved: archived, to: destination.directory, needsCopy: needsCopy, bytesToCopy: bytes,
            assumeClosed: request.assumeClosed
        ).check()
        var intact = earlier?.intact
        if intact == nil || intact != FileStatus(following: archived.path) {
            intact = try checkIntegrity(request, isCancelled)
        }
        return Checked(bytesToCopy: bytes, intact: intact)
    }

    private func checkStore(_ request: RelocationRequest) throws {
        let set = try ArchivedStore(entry, in: container)
        let asItIs = "restore its files as they are: --opaque"
        switch set.state {
        case .complete: break
        case .incomplete where request.opaque && FileStatus(following: archived.path)?.kind == .regular: break
        case .incomplete:
            throw RelocationFailure(
                .badData, code: "incomplete", "\(PrintablePath(set.path)) is incomplete: \(set.problem ?? "")",
                remedy: asItIs)
        case .leftovers, .unknown:
            throw RelocationFailure(
                .badData, code: "no_store", "\(PrintablePath(set.path)) holds no store, only other files",
                remedy: "copy its files to where you need them")
        case .unfinished:
            throw RelocationFailure(
                .busy, code: "interrupted", "\(PrintablePath(set.path)): \(set.problem ?? "")",
                remedy: "run: groupstore recover \(container.directory.path.shellWord)")
        }
        let snapshot = try StoreSnapshot(archived)
        guard snapshot.status?.links == 1 else { throw RelocationFailure.severalNames(archived.path) }
        guard !request.opaque else { return }
        guard snapshot.header != nil else {
            guard case .foreign(let format) = snapshot.database, snapshot.wal == nil, snapshot.journal == nil else {
                throw RelocationFailure(.badData, code: "damaged", "SQLite can't read it", remedy: asItIs)
            }
            throw RelocationFailure(
                .badData, code: "unreadable", "\(PrintablePath(archived.path)): \(format)", remedy: asItIs)
        }
    }

    /// Has SQLite check the whole store, unless it is to be restored as it is. Throws `RelocationFailure` if the store
    /// is damaged. Returns the status of the file that was checked.
    private func checkIntegrity(_ request: RelocationRequest, _ isCancelled: @escaping () -> Bool) throws -> FileStatus?
    {
        let status = FileStatus(following: archived.path)
        guard !request.opaque, try StoreSnapshot(archived).header != nil,
            let damage = try damage(isCancelled)
        else { return status }
        throw RelocationFailure(
            .badData, code: "damaged", "\(PrintablePath(archived.path)) is damaged: \(damage)",
            remedy: "restore its files as they are: --opaque")
    }

    /// Returns SQLite's first finding, or nil if the store is intact.
    private func damage(_ isCancelled: @escaping () -> Bool) throws -> String? {
        do {
            return try StoreIntegrity(archived, isCancelled: isCancelled).findings.first
        } catch StoreError.corrupt(_, let message, _) {
            return message
        } catch {
            if isCancelled() { throw RelocationFailure.cancelled(archived.path) }
            throw error
        }
    }

    /// Throws `RelocationFailure` if a file of a store stands there: nothing is ever overwritten.
    func checkDestinationIsFree() throws {
        let directory = destination.directory
        for name in [destination.name.database, destination.name.support] + destination.name.sideFiles
        where try directory.status(name) != nil {
            let path = directory.path.appending(name)
            throw RelocationFailure(
                .conflict, code: "destination_taken", "\(PrintablePath(path)) exists",
                remedy: "name another place with --to, or move it away: "
                    + "mv \(path.shellWord) \(path.appending(suffix: ".old").shellWord)")
        }
        // Both stores would use one folder of external data.
        guard try archived.directory.status(archived.name.support) != nil,
            let other = try destination.sharerOfExternalData()
        else { return }
        throw RelocationFailure(
            .conflict, code: "shared_support",
            "\(PrintablePath(directory.path.appending(destination.name.support))) would also be the external data of "
                + "\(PrintablePath(other))",
            remedy: "restore to another name before the dot, or another directory: --to PATH")
    }

    /// Compares the staged copy with the archived store in another way than it was copied: by its rows, read through
    /// SQLite, and by each external file. A store that SQLite can't read is compared by a hash of all bytes.
    func verify(_ staged: StoreLocation, isUnread: Bool) throws {
        let (copy, original) = (try StoreSnapshot(staged), try StoreSnapshot(archived))
        let isSame =
            isUnread
            ? try StoreContents.publishedHash(copy) == StoreContents.publishedHash(original)
            : try StoreContents.areEqual(copy, original)
        guard isSame, try archived.hasExternalDataWithin(staged) else {
            throw VerifiedCopy.Mismatch(path: staged.path)
        }
    }
}

extension RelocationFailure {
    package static func noArchive(_ word: String, in container: GroupContainer) -> RelocationFailure {
        RelocationFailure(
            .badData, code: "no_archive",
            "\(PrintablePath(container.directory.path)) has no archive \(PrintableText(word))",
            remedy: "see which there are: groupstore archive list \(container.directory.path.shellWord)")
    }
}
