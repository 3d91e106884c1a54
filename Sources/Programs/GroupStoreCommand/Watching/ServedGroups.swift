import AgentProtocol
import Glibc
import GroupStore
import LinuxSystem
import SystemPackage

/// The groups that the agent serves, and their directories.
struct ServedGroups {
    private var directories: [(group: String, directory: FilePath)] = []
    /// The places from which configured stores are relocated.
    private var legacyStores: [(path: FilePath, store: StoreAddress)] = []

    init(_ connection: AgentConnection) throws(AgentConnectionError) {
        var found: [(String, FilePath)] = []
        var legacy: [(FilePath, StoreAddress)] = []
        _ = try connection.request(.status(StatusOperation(isBrief: true)), deadline: Deadline(after: .seconds(10))) {
            type, row in
            if type == "legacy", let path = row.path("path").flatMap({ FilePath(bytes: $0) }), let store = row.store {
                legacy.append((path, store))
            }
            guard type == "group", let group = row.string("group"),
                let directory = row.path("directory").flatMap({ FilePath(bytes: $0) })
            else { return }
            found.append((group, directory))
        }
        directories = found
        legacyStores = legacy
    }

    /// Returns the path with symbolic links resolved, or the path itself if nothing exists there yet.
    private static func resolved(_ path: FilePath) -> FilePath {
        guard let real = path.withPlatformString({ realpath($0, nil) }) else { return path }
        defer { free(real) }
        return FilePath(platformString: real)
    }

    /// Returns the directory of a served group.
    func directory(of group: String) -> FilePath? { directories.first { $0.group == group }?.directory }

    /// Returns the store that is, or was, relocated from the path.
    func store(relocatedFrom path: FilePath) -> StoreAddress? {
        let parent = path.removingLastComponent()
        let identity = FileStatus(following: parent)?.identity
        return legacyStores.first { known in
            known.path == path
                || known.path.lastComponent == path.lastComponent && identity != nil
                    && FileStatus(following: known.path.removingLastComponent())?.identity == identity
        }?.store
    }

    /// Returns the group with this directory.
    func group(at directory: FilePath) -> String? {
        guard let identity = try? Directory(directory).identity else { return nil }
        return directories.first { (try? Directory($0.directory))?.identity == identity }?.group
    }

    /// Returns a store's wire name. `GROUP_ID/NAME` of a served group takes precedence over a path, which may be a
    /// symbolic link that a relocation left.
    func address(of path: FilePath) throws(AgentConnectionError) -> StoreAddress {
        if let address = StoreAddress(bytes: path.bytes), directories.contains(where: { $0.group == address.group }) {
            return address
        }
        let real = Self.resolved(path.absolute(in: FilePath(workingDirectory())))
        if let name = real.lastComponent, let group = group(at: real.removingLastComponent()),
            let address = StoreAddress(group: group, name: name.bytes)
        {
            return address
        }
        throw .refused(
            WireError(
                code: "not_served", "the agent doesn't serve a group with the store \(PrintablePath(path))",
                hint: "add its directory to the agent's configuration, or name it GROUP_ID/NAME"))
    }
}
