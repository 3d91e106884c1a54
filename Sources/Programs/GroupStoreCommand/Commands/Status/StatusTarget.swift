import AgentProtocol
import Glibc
import GroupContainers
import GroupStore
import GroupStoreAgent
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// The group or the store that `status` is asked about.
struct StatusTarget {
    /// The identifier, if it is known.
    private(set) var group: String?
    /// The group's directory as this process sees it; nil if there is none.
    private(set) var directory: FilePath?
    /// The only store to show; nil for the whole group.
    private(set) var store: FilePath.Component?
    /// The place of the symbolic link that was named; nil if it is none.
    private(set) var link: StoreLocation?

    /// Finds out what the text names: a directory, a store as `watch` takes it, the former place of a store, or a
    /// group's identifier. `served`: the agent's groups, if there is an agent. Throws `CommandFailure` if it is none.
    init(_ text: String, served: ServedGroups?) throws {
        let given = ArgumentBytes.path(text)
        let path = given.absolute(in: FilePath(workingDirectory()))
        if FileStatus(following: path)?.kind == .directory {
            directory = path
            group = served?.group(at: path)
        } else if let served, let address = Self.address(given, path, served) {
            group = address.group
            directory = served.directory(of: address.group).flatMap(Self.existing)
            store = FilePath.Component(bytes: address.name)
        } else if let identifier = GroupIdentifier(text), let known = try Self.directory(of: identifier, served) {
            group = identifier.rawValue
            directory = Self.existing(known)
        } else if let location = try Self.location(text) {
            directory = location.directory.path
            store = location.name.database
            link = StoreArgument(text).link
        } else {
            // A group that exists may lack the store.
            if let failure = try MissingStore(given).groupFailure(), failure.errorCode != NamedGroup.missingCode {
                throw CommandFailure(failure.status, code: "not_found", failure.message, remedy: failure.remedy)
            }
            throw CommandFailure(
                .inputOutput, code: "not_found",
                GroupIdentifier(text).map { NamedGroup.missing($0, orAt: "store \(PrintablePath(path))") }
                    ?? "there is no group and no store \(PrintablePath(given))",
                remedy: "see which groups there are: groupstore group list")
        }
    }

    /// Returns the store that the agent serves under the name or the path.
    private static func address(_ given: FilePath, _ path: FilePath, _ served: ServedGroups) -> StoreAddress? {
        if let address = try? served.address(of: given) { return address }
        return served.store(relocatedFrom: path)
    }

    /// Returns the location of a store that exists; nil if there is none.
    private static func location(_ text: String) throws -> StoreLocation? {
        do {
            return try StoreArgument(text).location()
        } catch is CommandFailure {
            return nil
        }
    }

    /// Returns a group's directory: the agent's, else the standard one if it exists.
    private static func directory(of group: GroupIdentifier, _ served: ServedGroups?) throws -> FilePath? {
        if let directory = served?.directory(of: group.rawValue) { return directory }
        return try group.standardDirectory(environment: ProcessVariables.all).flatMap(existing)
    }

    private static func existing(_ path: FilePath) -> FilePath? {
        FileStatus(following: path)?.kind == .directory ? path : nil
    }

    /// The request for this part of an agent's status; nil if the agent can't know it.
    var operation: StatusOperation? {
        guard let group else { return nil }
        guard let store else { return StatusOperation(group: group) }
        return StoreAddress(group: group, name: store.bytes).map { StatusOperation(store: $0) }
    }

    /// The group, as a word of a command.
    var container: String { group ?? directory.map(\.shellWord) ?? "" }

    /// The target for people.
    var name: String {
        let container = group ?? directory.map { "\(PrintablePath($0))" } ?? ""
        return container + (store.map { "/\(PrintablePath($0))" } ?? "")
    }
}
