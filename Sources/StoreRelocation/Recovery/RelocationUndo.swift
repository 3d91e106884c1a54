import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Takes the last relocation of a store back, from its receipt, while nobody has written to the store since.
extension Relocation {
    /// Gives the store its legacy place again, with its external files, and takes the receipt away. What
    /// `--retire archive` has kept stays. Throws `RelocationFailure`; both places are then as they were.
    package func undo() throws(RelocationFailure) -> RelocationSummary {
        do {
            let container = try RelocationEndpoints.container(request.group, request.identifier)
            let places = try UndoPaths(request, container)
            let engine = try claimed(places.group.name.database, in: container)
            defer { engine.claim?.end(published: false) }
            return try engine.locked(container, for: [places.group, places.legacy]) {
                try engine.takeBack(UndoPaths(request, container), container)
            }
        } catch is RelocationEndpoints.NoLegacyDirectory {
            throw .noLegacyDirectory(request.source)
        } catch {
            // The store is where it was brought to.
            var there = request
            there.source = request.group.appending(request.name ?? request.source.lastComponent ?? .currentDirectory)
            throw RelocationFailure(error, there)
        }
    }

    private func takeBack(_ places: UndoPaths, _ container: GroupContainer) throws -> RelocationSummary {
        for store in [places.group, places.legacy] { opener?.relinquish(store.path) }
        defer { for store in [places.group, places.legacy] { opener?.reacquire(store.path) } }
        guard let receipt = try container.receipts(of: places.group.name.database).last,
            receipt.from.path == places.legacy.path
        else { throw RelocationFailure.noReceipt(places) }
        guard receipt.method != .migrate else { throw RelocationFailure.migratedOnTheWay(places) }
        guard receipt.method != .replace else {
            throw RelocationFailure.setAside(places, container.archivePath(receipt.id))
        }
        try places.checkLegacyPlaceIsFree()
        try places.checkNothingWritten(since: receipt)
        let sentence = "take \(PrintablePath(places.group.path)) back to \(PrintablePath(places.legacy.path))"
        report(.plan(sentence, bytesToCopy: 0))
        let done = try restoration(
            of: places.group, to: places.legacy, taken: receipt.id,
            hadWAL: StoreSnapshot(places.group).header?.journalMode == .writeAhead, arrivesInWAL: receipt.hadWAL,
            container,
            isStillWanted: {
                try places.checkNothingWritten(since: receipt)
                return true
            }
        ).run()
        var summary = RelocationSummary(.undone, from: places.group.path, to: places.legacy.path)
        summary.method = done.method
        summary.bytes = done.bytes
        summary.notes = done.notes
        return summary
    }
}

/// Where a relocated store is, and where it is to be again: under its own name, not where a link there leads.
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

    /// Nothing of a store may stand there but the link that `--retire symlink` has left.
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
                "\(PrintablePath(directory.path.appending(name))) stands where the store was",
                remedy: "look at it, and move it away, then run this again")
        }
    }

    func checkNothingWritten(since receipt: RelocationReceipt) throws {
        let seen = try StoreSnapshot(group)
        guard let status = seen.status else {
            throw RelocationFailure(
                .badData, code: "store_gone", "\(PrintablePath(group.path)) is not there any more",
                remedy: "nothing can be taken back; see groupstore status GROUP_DIR")
        }
        guard let published = receipt.published else {
            throw RelocationFailure(
                .badData, code: "not_known", "its receipt doesn't tell what \(PrintablePath(group.path)) was like",
                remedy: "move it by hand while nobody has it open, with its -wal and support folder")
        }
        guard published.isUnchanged(in: status), !seen.needsQuiescing else {
            throw RelocationFailure(
                .badData, code: "written_since",
                "\(PrintablePath(group.path)) was written to since it was relocated",
                remedy: "relocate it to the other place instead: groupstore relocate STORE DIRECTORY")
        }
    }
}

extension RelocationFailure {
    static func noReceipt(_ places: UndoPaths) -> RelocationFailure {
        RelocationFailure(
            .badData, code: "no_receipt",
            "no receipt says that \(PrintablePath(places.group.path)) came from \(PrintablePath(places.legacy.path))",
            remedy: "see which there are: groupstore status GROUP_DIR")
    }

    static func migratedOnTheWay(_ places: UndoPaths) -> RelocationFailure {
        RelocationFailure(
            .badData, code: "migrated",
            "\(PrintablePath(places.group.path)) was migrated when it was relocated: the old program can't open it",
            remedy: "relocate with --retire archive to keep the old store")
    }

    static func setAside(_ places: UndoPaths, _ archive: FilePath) -> RelocationFailure {
        RelocationFailure(
            .badData, code: "set_aside",
            "\(PrintablePath(places.group.path)) is another store: the one that was relocated couldn't be migrated",
            remedy: "the old one is in \(PrintablePath(archive)): copy it to where it is to be")
    }

    static func noLegacyDirectory(_ source: FilePath) -> RelocationFailure {
        RelocationFailure(
            .unusablePlace, code: "no_legacy_directory",
            "there is no directory \(PrintablePath(source.removingLastComponent()))", remedy: "make it first")
    }
}
