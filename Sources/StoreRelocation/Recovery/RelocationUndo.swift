import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Undoes the last relocation of a store, by its receipt, as long as nobody has written to the store since.
extension Relocation {
    /// Moves the store with its external files back to its legacy place and removes the receipt. Keeps what `--retire
    /// archive` archived. Throws `RelocationFailure`; both places are then unchanged.
    package func undo() throws(RelocationFailure) -> RelocationSummary {
        do {
            let container = try RelocationEndpoints.container(request.group, request.identifier)
            let paths = try UndoPaths(request, container)
            let relocation = try claiming(paths.group.name.database, in: container)
            defer { relocation.claim?.end(published: false) }
            return try relocation.withGroupLock(container, afterRecovering: [paths.group, paths.legacy]) {
                try relocation.undo(UndoPaths(request, container), in: container)
            }
        } catch is RelocationEndpoints.NoLegacyDirectory {
            throw .noLegacyDirectory(request.source)
        } catch {
            // Name the store by its current place.
            var moved = request
            moved.source = request.group.appending(request.name ?? request.source.lastComponent ?? .currentDirectory)
            throw RelocationFailure(error, moved)
        }
    }

    private func undo(_ paths: UndoPaths, in container: GroupContainer) throws -> RelocationSummary {
        for store in [paths.group, paths.legacy] { opener?.relinquish(store.path) }
        defer { for store in [paths.group, paths.legacy] { opener?.reacquire(store.path) } }
        guard let receipt = try container.receipts(of: paths.group.name.database).last,
            receipt.from.path == paths.legacy.path
        else { throw RelocationFailure.noReceipt(paths) }
        guard receipt.method != .migrate else { throw RelocationFailure.migratedOnTheWay(paths) }
        guard receipt.method != .replace else {
            throw RelocationFailure.setAside(paths, container.archivePath(receipt.id))
        }
        try paths.checkLegacyPlaceIsFree()
        try paths.checkNothingWritten(since: receipt)
        let sentence = "move \(PrintablePath(paths.group.path)) back to \(PrintablePath(paths.legacy.path))"
        report(.plan(sentence, bytesToCopy: 0))
        let outcome = try restoration(
            of: paths.group, to: paths.legacy, taken: receipt.id,
            hadWAL: StoreSnapshot(paths.group).header?.journalMode == .writeAhead, arrivesInWAL: receipt.hadWAL,
            in: container,
            isStillValid: {
                try paths.checkNothingWritten(since: receipt)
                return true
            }
        ).run()
        var summary = RelocationSummary(.undone, from: paths.group.path, to: paths.legacy.path)
        summary.method = outcome.method
        summary.bytes = outcome.bytes
        summary.notes = outcome.notes
        return summary
    }
}

/// The relocated store's location, and the one that it returns to: the legacy name itself, not the target of a link
/// there.
struct UndoPaths {
    let group: StoreLocation
    let legacy: StoreLocation

    init(_ request: RelocationRequest, _ container: GroupContainer) throws {
        legacy = try RelocationEndpoints.unresolved(request.source)
        guard let name = request.name else {
            group = StoreLocation(directory: container.directory, name: legacy.name)
            return
        }
        guard let name = StoreName(name) else { throw RelocationFailure.badName(FilePath(root: nil, [name])) }
        group = StoreLocation(directory: container.directory, name: name)
    }

    /// Throws if any file of a store stands there, except the link that `--retire symlink` left.
    func checkLegacyPlaceIsFree() throws {
        let directory = legacy.directory
        for name in [legacy.name.database, legacy.name.support] + legacy.name.sideFiles {
            guard let status = try directory.status(name) else { continue }
            let isOurLink =
                name == legacy.name.database && status.kind == .symbolicLink
                && FileStatus(following: legacy.path)?.identity
                    == FileStatus(following: group.path)?.identity
            guard !isOurLink else { continue }
            throw RelocationFailure(
                .conflict, code: "old_place_taken",
                "\(PrintablePath(directory.path.appending(name))) is in the store's former place",
                remedy: "check it and move it away, then run this again")
        }
    }

    func checkNothingWritten(since receipt: RelocationReceipt) throws {
        let snapshot = try StoreSnapshot(group)
        guard let status = snapshot.status else {
            throw RelocationFailure(
                .badData, code: "store_gone", "\(PrintablePath(group.path)) no longer exists",
                remedy: "nothing can be undone; see groupstore status GROUP_DIR")
        }
        guard let published = receipt.published else {
            throw RelocationFailure(
                .badData, code: "not_known", "its receipt does not record the state of \(PrintablePath(group.path))",
                remedy: "move it by hand while nobody has it open, with its -wal and support folder")
        }
        guard published.isUnchanged(in: status), !snapshot.needsQuiescing else {
            throw RelocationFailure(
                .badData, code: "written_since",
                "\(PrintablePath(group.path)) was written to since it was relocated",
                remedy: "relocate it to the other place instead: groupstore relocate STORE DIRECTORY")
        }
    }
}

extension RelocationFailure {
    static func noReceipt(_ paths: UndoPaths) -> RelocationFailure {
        RelocationFailure(
            .badData, code: "no_receipt",
            "no receipt says that \(PrintablePath(paths.group.path)) came from \(PrintablePath(paths.legacy.path))",
            remedy: "see which there are: groupstore status GROUP_DIR")
    }

    static func migratedOnTheWay(_ paths: UndoPaths) -> RelocationFailure {
        RelocationFailure(
            .badData, code: "migrated",
            "\(PrintablePath(paths.group.path)) was migrated when it was relocated: the old program can't open it",
            remedy: "relocate with --retire archive to keep the old store")
    }

    static func setAside(_ paths: UndoPaths, _ archive: FilePath) -> RelocationFailure {
        RelocationFailure(
            .badData, code: "set_aside",
            "\(PrintablePath(paths.group.path)) is another store: the one that was relocated couldn't be migrated",
            remedy: "the old one is in \(PrintablePath(archive)): copy it to where you need it")
    }

    static func noLegacyDirectory(_ source: FilePath) -> RelocationFailure {
        RelocationFailure(
            .unusablePlace, code: "no_legacy_directory",
            "there is no directory \(PrintablePath(source.removingLastComponent()))", remedy: "create it first")
    }
}
