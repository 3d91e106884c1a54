import CLinux
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Undoes the last relocation of a store, by its receipt, as long as nobody has written to the store since.
extension Relocation {
    /// Moves the store with its external files back to its legacy place and removes the receipt. Keeps what `--retire
    /// archive` archived. Throws `RelocationFailure`; both places are then unchanged.
    package func undo() throws(RelocationFailure) -> RelocationSummary {
        var named = self
        named.request = Self.namingStore(of: request)
        return try named.undoNamed()
    }

    private func undoNamed() throws(RelocationFailure) -> RelocationSummary {
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

    /// Returns the places that the request's source may mean: its name, and those that symbolic links there lead to.
    /// Undoing a relocation returns the store to the one that its receipt names.
    package static func undoPlaces(of source: FilePath) -> [FilePath] {
        ((try? UndoPaths.places(of: source)) ?? []).map(\.path)
    }

    /// Returns the request with the name that the store has in the group. A store may have come there under another
    /// name (`--name`), which its receipt tells; the last receipt counts if several stores came from the same place.
    package static func namingStore(of request: RelocationRequest) -> RelocationRequest {
        var named = request
        guard request.name == nil, let places = try? UndoPaths.places(of: request.source),
            let container = try? RelocationEndpoints.container(request.group, request.identifier),
            let receipts = try? container.receipts()
        else { return named }
        let last = receipts.enumerated().filter { index, receipt in
            !receipts.dropFirst(index + 1).contains { $0.name.path == receipt.name.path }
        }.map(\.element)
        let found = last.last { receipt in places.contains { $0.path == receipt.from.path } }
        named.name = found?.name.path.lastComponent
        return named
    }

    private func undo(_ paths: UndoPaths, in container: GroupContainer) throws -> RelocationSummary {
        for store in [paths.group, paths.legacy] { opener?.relinquish(store.path) }
        defer { for store in [paths.group, paths.legacy] { opener?.reacquire(store.path) } }
        let last = try container.receipts(of: paths.group.name.database).last
        guard let receipt = last, receipt.from.path == paths.legacy.path else {
            throw RelocationFailure.noReceipt(paths, last, in: container)
        }
        guard receipt.method != .migrate else {
            throw try RelocationFailure.migratedOnTheWay(paths, receipt, in: container)
        }
        guard receipt.method != .merge else { throw try RelocationFailure.merged(paths, receipt, in: container) }
        guard receipt.method != .replace else { throw try RelocationFailure.setAside(paths, receipt, in: container) }
        try paths.checkStoreIsThere()
        try paths.checkLegacyPlaceIsFree()
        try paths.checkNothingWritten(since: receipt)
        let sentence = "move \(PrintablePath(paths.group.path)) back to \(PrintablePath(paths.legacy.path))"
        report(.plan(sentence, bytesToCopy: 0))
        let outcome = try restoration(
            of: paths.group, to: paths.legacy, taken: receipt.id,
            hadWAL: hadWAL(StoreSnapshot(paths.group), container), arrivesInWAL: receipt.hadWAL,
            in: container,
            isStillValid: {
                try paths.checkNothingWritten(since: receipt)
                return true
            }
        ).run()
        var summary = RelocationSummary(.undone, from: paths.group.path, to: paths.legacy.path)
        summary.add(outcome)
        return summary
    }
}

/// The relocated store's location, and the one that it returns to: the place that its receipt names, which is the
/// legacy name itself or where a symbolic link at that name leads.
struct UndoPaths {
    let group: StoreLocation
    let legacy: StoreLocation

    init(_ request: RelocationRequest, _ container: GroupContainer) throws {
        let places = try Self.places(of: request.source)
        guard let given = places.first else { throw RelocationFailure.badName(request.source) }
        var name = given.name
        if let other = request.name {
            guard let valid = StoreName.existing(other) else {
                throw RelocationFailure.badName(FilePath(root: nil, [other]))
            }
            name = valid
        }
        group = StoreLocation(directory: container.directory, name: name)
        let from = try container.receipts(of: name.database).last?.from.path
        legacy = places.first { $0.path == from } ?? given
    }

    /// Returns the location of a path, and of each place that symbolic links from there lead to. The last one may have
    /// no file: its store was relocated. Doesn't follow the link of a user who owns neither it nor the target's
    /// directory.
    static func places(of path: FilePath) throws -> [StoreLocation] {
        var found = [try RelocationEndpoints.unresolved(path)]
        while let last = found.last, let status = try last.directory.status(last.name.database),
            status.kind == .symbolicLink, found.count <= 40
        {
            let link = try last.directory.open(last.name.database, flags: gs_o_path)
            let target = last.directory.path.pushing(try link.linkTarget(path: last.path))
            guard let next = try? RelocationEndpoints.unresolved(target),
                !found.contains(where: { $0.path == next.path }),
                [0, geteuid(), try next.directory.status().owner].contains(status.owner)
            else { break }
            found.append(next)
        }
        return found
    }

    /// Throws if the store isn't in the group any more. What is in its former place is then the store itself.
    func checkStoreIsThere() throws {
        guard try group.directory.status(group.name.database) == nil else { return }
        throw RelocationFailure(
            .badData, code: "store_gone", "\(PrintablePath(group.path)) no longer exists",
            remedy: "nothing can be undone; see groupstore status \(group.directory.path.shellWord)")
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
            let path = directory.path.appending(name)
            throw RelocationFailure(
                .conflict, code: "old_place_taken", "\(PrintablePath(path)) is in the store's former place",
                remedy: "check it, move it away, then run this again: "
                    + "mv \(path.shellWord) \(path.appending(suffix: ".new").shellWord)")
        }
    }

    func checkNothingWritten(since receipt: RelocationReceipt) throws {
        let snapshot = try StoreSnapshot(group)
        try checkStoreIsThere()
        guard let status = snapshot.status else { throw SystemError("stat", .noSuchFileOrDirectory, path: group.path) }
        guard let published = receipt.published else {
            throw RelocationFailure(
                .badData, code: "not_known", "its receipt does not record the state of \(PrintablePath(group.path))",
                remedy: "relocate it to the other place instead: \(relocationBack)")
        }
        guard published.isUnchanged(in: status), !snapshot.needsQuiescing else {
            throw RelocationFailure(
                .badData, code: "written_since",
                "\(PrintablePath(group.path)) was written to since it was relocated",
                remedy: "relocate it to the other place instead: \(relocationBack)")
        }
    }

    /// The command that moves the store to its former place, even if other programs have written to it since.
    private var relocationBack: String {
        let name = group.name == legacy.name ? "" : " --name=\(FilePath(root: nil, [legacy.name.database]).shellWord)"
        return "groupstore relocate \(group.path.shellWord) \(legacy.directory.path.shellWord)\(name)"
    }
}

extension RelocationFailure {
    static func noReceipt(
        _ paths: UndoPaths, _ last: RelocationReceipt?, in container: GroupContainer
    ) -> RelocationFailure {
        let store = PrintablePath(paths.group.path)
        guard let last else {
            return RelocationFailure(
                .badData, code: "no_receipt",
                "no receipt says that \(store) came from \(PrintablePath(paths.legacy.path))",
                remedy: "see what was relocated: groupstore status \(container.directory.path.shellWord)")
        }
        let name =
            paths.group.name.database == last.from.path.lastComponent
            ? "" : " --name=\(FilePath(root: nil, [paths.group.name.database]).shellWord)"
        return RelocationFailure(
            .badData, code: "no_receipt",
            "\(store) came from \(PrintablePath(last.from.path)), not from \(PrintablePath(paths.legacy.path))",
            remedy:
                "run: groupstore relocate \(last.from.path.shellWord) \(container.directory.path.shellWord)\(name) --undo"
        )
    }

    static func migratedOnTheWay(
        _ paths: UndoPaths, _ receipt: RelocationReceipt, in container: GroupContainer
    ) throws -> RelocationFailure {
        RelocationFailure(
            .badData, code: "migrated",
            "\(PrintablePath(paths.group.path)) was migrated when it was relocated: the old program can't open it",
            remedy: try restoring(receipt, in: container)
                ?? "the store was not kept as it was before; --retire archive keeps it")
    }

    static func setAside(
        _ paths: UndoPaths, _ receipt: RelocationReceipt, in container: GroupContainer
    ) throws -> RelocationFailure {
        RelocationFailure(
            .badData, code: "set_aside",
            "\(PrintablePath(paths.group.path)) is another store: the one that was relocated couldn't be migrated",
            remedy: try restoring(receipt, in: container) ?? "the old one was archived, and its archive was purged")
    }

    static func merged(
        _ paths: UndoPaths, _ receipt: RelocationReceipt, in container: GroupContainer
    ) throws -> RelocationFailure {
        RelocationFailure(
            .badData, code: "merged",
            "\(PrintablePath(paths.group.path)) has the rows of two stores, which can't be taken apart",
            remedy: "both are in the archive as they were, and archive restore --to puts one elsewhere: "
                + "groupstore archive list \(container.directory.path.shellWord)")
    }

    /// Returns the command that brings back the store as it was before its relocation; nil if it wasn't kept.
    private static func restoring(_ receipt: RelocationReceipt, in container: GroupContainer) throws -> String? {
        guard try container.archivedSet(receipt.id) != nil else { return nil }
        return "bring back the store as it was: "
            + "groupstore archive restore \(container.directory.path.shellWord) \(receipt.id)"
    }

    static func noLegacyDirectory(_ source: FilePath) -> RelocationFailure {
        let directory = source.removingLastComponent()
        return RelocationFailure(
            .unusablePlace, code: "no_legacy_directory", "there is no directory \(PrintablePath(directory))",
            remedy: "create it first: mkdir -p \(directory.shellWord)")
    }
}
