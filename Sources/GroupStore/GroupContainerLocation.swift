@_exported import FileCoordination
@_exported import GroupContainers
// The two above are this library to those who import it: claims and containers are what its types are made of.

import FoundationEssentials
import Glibc
import LinuxSystem
import SystemPackage

extension GroupContainer {
    /// The group container of that identifier, such as `group.com.example.notes`: its directory is
    /// `$GROUPSTORE_CONTAINERS/ID`, else `app-groups/ID` under `$HOST_XDG_DATA_HOME` (inside a Flatpak),
    /// `$XDG_DATA_HOME` or `~/.local/share`. Throws `GroupStoreError` when there is none: it is not made here, since
    /// two programs that look in different places would not notice.
    public init(identifier: String) throws(GroupStoreError) {
        guard let group = GroupIdentifier(identifier) else {
            throw GroupStoreError(
                .badIdentifier, "\(identifier) is no group identifier",
                remedy: "use letters, digits, '.', '-' and '_', not beginning with '.'")
        }
        guard let path = group.defaultDirectory(environment: ProcessInfo.processInfo.environment) else {
            throw GroupStoreError(
                .noContainer, "where \(identifier) is can't be told: HOME is not set",
                remedy: "set HOME or GROUPSTORE_CONTAINERS")
        }
        try self.init(identifier: group, at: path)
    }

    /// The group container of that identifier in another directory than the standard one, as the agent's configuration
    /// has it. Throws `GroupStoreError` when nothing is there.
    public init(identifier: String, directory: URL) throws(GroupStoreError) {
        guard let group = GroupIdentifier(identifier) else {
            throw GroupStoreError(
                .badIdentifier, "\(identifier) is no group identifier",
                remedy: "use letters, digits, '.', '-' and '_', not beginning with '.'")
        }
        try self.init(identifier: group, at: FilePath(directory.path))
    }

    private init(identifier: GroupIdentifier, at path: FilePath) throws(GroupStoreError) {
        AgentRegistries.install()
        do {
            try self.init(path, identifier: identifier)
        } catch {
            guard error.errno == .noSuchFileOrDirectory || error.errno == .notDirectory else {
                throw GroupStoreError(.system, "\(error)", remedy: "check the directory's permissions")
            }
            throw GroupStoreError(
                .noContainer, "there is no group container \(identifier): \(PrintablePath(path)) is no directory",
                remedy: "make it: mkdir -p -m 0700 \(PrintablePath(path))")
        }
    }

    /// The container's directory.
    public var url: URL { URL(filePath: directory.path.string, directoryHint: .isDirectory) }
}

/// Registries that speak to the agent, for all group containers that are known by an identifier.
enum AgentRegistries {
    static func install() { _ = installed }

    private static let installed: Void = RegisteredPresenters.makeRegistry.withLock { make in
        make = { container in
            guard container.identifier != nil, let socket = AgentSocket.path(environment: environment) else {
                return InProcessRegistry()
            }
            return RemoteRegistry(container, socket: socket)
        }
    }

    static var environment: [String: String] { ProcessInfo.processInfo.environment }
}
