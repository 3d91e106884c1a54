@_exported import FileCoordination
@_exported import GroupContainers
@_exported import protocol LinuxSystem.ActionableError
// GroupStore's public types are made of claims and containers, and its errors conform to the protocol, so its clients
// need not import the three modules.

import FoundationEssentials
import Glibc
import LinuxSystem
import SystemPackage

extension GroupContainer {
    /// Opens the group container with this identifier in its standard directory.
    ///
    /// The directory is `$GROUPSTORE_CONTAINERS/ID`, else `app-groups/ID` under `$HOST_XDG_DATA_HOME` (inside a
    /// Flatpak), `$XDG_DATA_HOME` or `~/.local/share`.
    ///
    ///     let container = try GroupContainer(identifier: "group.com.example.notes")
    ///
    /// - Important: The directory must exist. It isn't created, because programs that look in different places would
    ///   silently use different containers. ``init(identifier:creatingIfNeeded:)`` creates it.
    ///
    /// - Parameter identifier: Letters, digits, `.`, `-` and `_`, not beginning with `.`.
    /// - Throws: ``GroupStoreError`` with `badIdentifier`, `noContainer`, or `system` if the directory can't be opened.
    public init(identifier: String) throws(GroupStoreError) {
        let (group, path) = try Self.standard(identifier)
        try self.init(identifier: group, at: path)
    }

    /// Opens the group container with this identifier in its standard directory, and creates the directory first if it
    /// doesn't exist and `creatingIfNeeded` is true. It gets mode 0700, as do its missing parents; `groupstore group
    /// create` does the same.
    ///
    ///     let container = try GroupContainer(identifier: "group.com.example.notes", creatingIfNeeded: true)
    ///
    /// - Important: Inside a Flatpak the directory isn't created: unless the sandbox shares it, it would be gone when
    ///   the app ends. Create it outside, with `groupstore group create`.
    ///
    /// - Parameters:
    ///   - identifier: Letters, digits, `.`, `-` and `_`, not beginning with `.`.
    ///   - creatingIfNeeded: True to create a missing directory.
    /// - Throws: ``GroupStoreError`` with `badIdentifier`, `noContainer` if the directory can't be created, or `system`
    ///   if it can't be opened.
    public init(identifier: String, creatingIfNeeded: Bool) throws(GroupStoreError) {
        let (group, path) = try Self.standard(identifier)
        if creatingIfNeeded, ProcessInfo.processInfo.environment["FLATPAK_ID"] == nil {
            do {
                try Self.create(path)
            } catch {
                throw GroupStoreError(
                    .noContainer,
                    "there is no group container \(identifier), and it can't be created: \(error.message)",
                    remedy:
                        "make \(PrintablePath(path.removingLastComponent())) a directory that this user can write to",
                    underlying: error)
            }
        }
        try self.init(identifier: group, at: path)
    }

    /// Returns the identifier and the standard directory.
    private static func standard(_ identifier: String) throws(GroupStoreError) -> (GroupIdentifier, FilePath) {
        guard let group = GroupIdentifier(identifier) else {
            throw GroupStoreError(
                .badIdentifier, "\(identifier) isn't a group identifier",
                remedy: "use letters, digits, '.', '-' and '_', not beginning with '.'")
        }
        guard let path = group.defaultDirectory(environment: ProcessInfo.processInfo.environment) else {
            throw GroupStoreError(
                .noContainer, "the directory of \(identifier) is unknown: HOME is not set",
                remedy: "set HOME or GROUPSTORE_CONTAINERS")
        }
        return (group, path)
    }

    /// Opens the group container with this identifier in another directory than the standard one. The agent's
    /// configuration must name the same directory.
    ///
    ///     let container = try GroupContainer(identifier: "group.com.example.notes", directory: directory)
    ///
    /// - Throws: ``GroupStoreError`` with `badIdentifier`, `noContainer`, or `system` if the directory can't be opened.
    public init(identifier: String, directory: URL) throws(GroupStoreError) {
        guard let group = GroupIdentifier(identifier) else {
            throw GroupStoreError(
                .badIdentifier, "\(identifier) isn't a group identifier",
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
                throw GroupStoreError(
                    .system, error.message, remedy: "check the directory's permissions", underlying: error)
            }
            throw GroupStoreError(
                .noContainer, "there is no group container \(identifier): \(PrintablePath(path)) is not a directory",
                remedy: "create it: mkdir -p -m 0700 \(PrintablePath(path))")
        }
    }

    /// The container's directory.
    public var url: URL { URL(filePath: directory.path.string, directoryHint: .isDirectory) }
}

extension GroupContainer {
    /// The registry of the container's presenters: the agent's if the container has an identifier.
    package var presenterRegistry: any PresenterRegistry {
        AgentRegistries.install()
        return RegisteredPresenters.makeRegistry.withLock { $0 }(self)
    }
}

/// Installs registries that use the agent, for all group containers with an identifier.
enum AgentRegistries {
    static func install() { _ = installed }

    private static let installed: Void = RegisteredPresenters.makeRegistry.withLock { make in
        make = { registry(of: $0, socket: AgentSocket.path(environment: environment)) }
    }

    /// - Parameter socket: The path of the agent's socket; nil if none is known.
    static func registry(of container: GroupContainer, socket: FilePath?) -> any PresenterRegistry {
        guard container.identifier != nil else { return InProcessRegistry() }
        guard let socket else {
            return InProcessRegistry(
                registration: .waiting(
                    reason: "no agent can be found: neither GROUPSTORE_SOCKET nor XDG_RUNTIME_DIR is set"))
        }
        return RemoteRegistry(container, socket: socket)
    }

    static var environment: [String: String] { ProcessInfo.processInfo.environment }
}
