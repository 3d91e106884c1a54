import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage

/// A file or directory of a group container, named the same in every process and mount namespace.
package struct ClaimedItem: Hashable, Sendable {
    /// The group container's name: its identifier if it has one, else its directory.
    package let container: String
    /// The path relative to the container's directory; empty for the container itself.
    package let path: FilePath

    package init(container: String, path: FilePath) {
        self.container = container
        self.path = path
    }

    /// Returns true if the item is inside `other`, at any depth.
    package func isInside(_ other: ClaimedItem) -> Bool {
        container == other.container && path != other.path && path.starts(with: other.path)
    }
}

extension ClaimedItem {
    /// True for the container's `.groupstore` and what is in it.
    package var isBookkeeping: Bool { path.components.first == GroupContainer.bookkeepingName }
}

extension GroupContainer {
    package var name: String { identifier?.rawValue ?? "\(PrintablePath(directory.path))" }

    package func item(_ name: FilePath.Component) -> ClaimedItem {
        ClaimedItem(container: self.name, path: FilePath(root: nil, [name]))
    }

    /// Returns the item at a URL. Resolves symbolic links in the directories of the path, and in the last name only if
    /// `resolvesLink` is true. Throws `FileCoordinationError` if the item is outside the container.
    func item(at url: URL, resolvesLink: Bool = false) throws(FileCoordinationError) -> ClaimedItem {
        guard url.path.utf8.count < PATH_MAX else { throw .tooLong(url.path) }
        let path = FilePath(url.path)
        let root = directory.path.resolvingLinks
        guard url.isFileURL, let real = Self.resolved(path, resolvesLink: resolvesLink), real.starts(with: root) else {
            throw .outside(url.path, directory.path)
        }
        let components = real.components.dropFirst(root.components.count)
        return ClaimedItem(container: name, path: FilePath(root: nil, components))
    }

    /// Returns the path of the database that the item is a log, index or journal of; nil if it is none of these. A
    /// claim on it would ask none of the database's presenters.
    func database(withSideFile item: ClaimedItem) -> FilePath? {
        guard let name = item.path.lastComponent else { return nil }
        for suffix in ["-wal", "-shm", "-journal"] where name.bytes.count > suffix.utf8.count {
            guard name.bytes.suffix(suffix.utf8.count).elementsEqual(suffix.utf8),
                let database = FilePath.Component(bytes: name.bytes.dropLast(suffix.utf8.count))
            else { continue }
            let path = item.path.removingLastComponent().appending(database)
            if FileStatus(following: directory.path.pushing(path))?.kind == .regular { return path }
        }
        return nil
    }

    package func url(of item: ClaimedItem) -> URL { URL(path: directory.path.pushing(item.path)) }

    /// The path without symbolic links, also behind `..`, which is the parent of a link's target.
    private static func resolved(_ path: FilePath, resolvesLink: Bool) -> FilePath? {
        guard path.isAbsolute else { return nil }
        guard !resolvesLink, let name = path.lastComponent, name.kind == .regular else { return path.resolvingLinks }
        return path.removingLastComponent().resolvingLinks.appending(name)
    }
}

extension URL {
    /// Creates a file URL. Replaces bytes that aren't UTF-8, which the path of a URL can't hold.
    package init(path: FilePath) { self.init(filePath: path.string, directoryHint: .notDirectory) }
}
