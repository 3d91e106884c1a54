import CLinux
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

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

    /// True if the group has no store of the name, or only the link that an undo leaves, and the legacy place has one.
    var isStoreBack: Bool {
        get throws {
            let status = try group.directory.status(group.name.database)
            let isLink =
                try status?.kind == .symbolicLink
                && FileStatus(following: group.path)?.identity
                    == legacy.directory.identity(legacy.name.database)
            return try (status == nil || isLink) && StoreSnapshot(legacy).mayBeStore
        }
    }

    /// Throws if the store isn't in the group any more. What is in its former place is then the store itself.
    func checkStoreIsThere() throws {
        let status = try group.directory.status(group.name.database)
        guard status?.kind != .regular else { return }
        if status?.kind == .symbolicLink, let next = try Self.places(of: group.path).last, next.path != group.path {
            throw try relocatedFurther(to: next)
        }
        throw RelocationFailure(
            .badData, code: "store_gone",
            "\(PrintablePath(group.path)) \(status == nil ? "no longer exists" : "is not a store any more")",
            remedy: "nothing can be undone; see groupstore status \(group.directory.path.shellWord)")
    }

    /// Returns the failure for a store that was relocated again, from the group to another place, and left a link.
    private func relocatedFurther(to next: StoreLocation) throws -> RelocationFailure {
        let places = try Self.places(of: group.path)
        let receipt = try GroupContainer(directory: next.directory).receipts(of: next.name.database).last
        let from = receipt?.from.path
        let isUndoable = places.contains { $0.path == from }
        return RelocationFailure(
            .badData, code: "store_gone",
            "\(PrintablePath(group.path)) is a link to \(PrintablePath(next.path)), where the store is now",
            remedy: isUndoable
                ? "take that back first: \(next.relocationCommand(of: from ?? group.path)) --undo"
                : "nothing can be undone; see groupstore status \(group.directory.path.shellWord)")
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
            if isOurLink {
                try checkLinkIsReplaceable(status)
                continue
            }
            let path = directory.path.appending(name)
            throw RelocationFailure(
                .conflict, code: "old_place_taken", "\(PrintablePath(path)) is in the store's former place",
                remedy: "check it, move it away, then run this again: "
                    + "mv \(path.shellWord) \(path.appending(suffix: ".new").shellWord)")
        }
    }

    /// Throws if the link belongs to another user, in a directory in which only owners may rename.
    private func checkLinkIsReplaceable(_ link: FileStatus) throws {
        let directory = try legacy.directory.status()
        guard directory.permissions & mode_t(S_ISVTX) != 0, ![0, link.owner, directory.owner].contains(geteuid()) else {
            return
        }
        throw RelocationFailure(
            .notPermitted, code: "not_owner",
            "the link \(PrintablePath(legacy.path)) belongs to user \(link.owner), and "
                + "\(PrintablePath(legacy.directory.path)) has the sticky bit: only that user may replace it",
            remedy: "run this as that user, or as root")
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
    private var relocationBack: String { legacy.relocationCommand(of: group.path) }
}
