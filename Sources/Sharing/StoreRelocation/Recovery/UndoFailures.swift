import GroupContainers
import LinuxSystem
import SystemPackage

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
            remedy: undoing(last.from.path, container.directory.path, name))
    }

    /// Returns the command that takes a relocation back, after the one that takes back the move of a whole directory
    /// above the store's old place: its receipt knows the store by that place.
    private static func undoing(_ source: FilePath, _ group: FilePath, _ name: String) -> String {
        var group = group
        let moved = movedDirectory(above: source)
        if let moved, group.removePrefix(moved.destination) { group = moved.source.pushing(group) }
        let command = "groupstore relocate \(source.shellWord) \(group.shellWord)\(name) --undo"
        return moved.map { moved in
            "its directory was moved to \(PrintablePath(moved.destination)): take that back first: "
                + "groupstore move-app --undo \(moved.source.shellWord) && \(command)"
        } ?? "run: \(command)"
    }

    /// Returns the places of the move that has left a link in a path; nil if there is none.
    private static func movedDirectory(above path: FilePath) -> (source: FilePath, destination: FilePath)? {
        var place = path.removingLastComponent()
        while let name = place.lastComponent {
            if let parent = try? Directory(resolving: place.removingLastComponent()),
                (try? parent.status(name)?.kind) == .symbolicLink, let target = try? parent.linkTarget(name)
            {
                let destination = parent.path.pushing(target).lexicallyNormalized()
                let group = try? Directory(resolving: destination.removingLastComponent())
                let receipts = try? group.map { try GroupContainer(directory: $0).appReceipts(of: destination) }
                if receipts?.contains(where: { $0.move.source.path == place }) == true { return (place, destination) }
            }
            place.removeLastComponent()
        }
        return nil
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
