import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage

/// A file or directory of a group container, as claims and presenters name it: the same in every process and mount
/// namespace.
package struct ClaimedItem: Hashable, Sendable {
    /// What the group container is called: its identifier where it has one, else its directory.
    package let container: String
    /// Relative to the container's directory; empty for the container itself.
    package let path: FilePath

    package init(container: String, path: FilePath) {
        self.container = container
        self.path = path
    }

    /// Whether it is inside `other`, at any depth.
    package func isInside(_ other: ClaimedItem) -> Bool {
        container == other.container && path != other.path && path.starts(with: other.path)
    }
}

extension GroupContainer {
    package var name: String { identifier?.rawValue ?? "\(PrintablePath(directory.path))" }

    package func item(_ name: FilePath.Component) -> ClaimedItem {
        ClaimedItem(container: self.name, path: FilePath(root: nil, [name]))
    }

    /// The item at a URL. The directories on the way are resolved; the last name is only when `resolvesLink`.
    /// Throws `FileCoordinationError` when it isn't inside.
    func item(at url: URL, resolvesLink: Bool = false) throws(FileCoordinationError) -> ClaimedItem {
        let path = FilePath(url.path)
        guard url.isFileURL, let real = Self.resolved(path, resolvesLink: resolvesLink),
            let root = Self.real(directory.path), real.starts(with: root)
        else { throw .outside(url.path, directory.path) }
        let components = real.components.dropFirst(root.components.count)
        return ClaimedItem(container: name, path: FilePath(root: nil, components))
    }

    package func url(of item: ClaimedItem) -> URL { URL(path: directory.path.pushing(item.path)) }

    /// Resolves name by name, as the kernel does: `..` behind a symbolic link is above what the link leads to. What
    /// doesn't exist is taken as it is written.
    private static func resolved(_ path: FilePath, resolvesLink: Bool) -> FilePath? {
        guard path.isAbsolute else { return nil }
        var found: FilePath = "/"
        var rest = Array(path.components)[...]
        while let name = rest.popFirst() {
            switch name.kind {
            case .currentDirectory: continue
            case .parentDirectory: found.removeLastComponent()
            case .regular:
                let next = found.appending(name)
                let isResolved = resolvesLink || !rest.isEmpty
                found = isResolved ? real(next) ?? next : next
            }
        }
        return found
    }

    private static func real(_ path: FilePath) -> FilePath? {
        guard let found = path.withPlatformString({ realpath($0, nil) }) else { return nil }
        defer { free(found) }
        return FilePath(platformString: found)
    }
}

extension URL {
    /// A file URL; bytes that are not UTF-8 are replaced, since a URL can't hold them as a path.
    package init(path: FilePath) { self.init(filePath: path.string, directoryHint: .notDirectory) }
}
