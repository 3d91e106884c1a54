import AgentProtocol
import CommandSupport
import GroupContainers
import GroupStore
import GroupStoreAgent
import LinuxSystem
import StoreRelocation
import SystemPackage

/// A group that an argument names by its identifier.
struct NamedGroup {
    let identifier: GroupIdentifier
    /// The group's directory: the one that the agent serves, else the standard one; nil if there is none.
    let directory: FilePath?

    /// Finds the group. Throws `ConfigurationError`, and `AgentConnectionError` if an agent is there and doesn't
    /// answer: it may serve the group elsewhere than in the standard place.
    init(_ identifier: GroupIdentifier) throws {
        self.identifier = identifier
        directory =
            try Self.served(identifier)
            ?? identifier.standardDirectory(environment: ProcessVariables.all).flatMap {
                FileStatus(following: $0)?.kind == .directory ? $0 : nil
            }
    }

    private static func served(_ identifier: GroupIdentifier) throws(AgentConnectionError) -> FilePath? {
        do throws(AgentConnectionError) {
            let socket = try AgentConnection.standardSocket(environment: ProcessVariables.all)
            return try ServedGroups(AgentConnection(socket)).directory(of: identifier.rawValue)
        } catch {
            switch error {
            case .timedOut, .lost: throw error
            case .noSocketPath, .noAgent, .notUnderstood, .refused, .tooLong, .interrupted: return nil
            }
        }
    }

    /// The code of the error for a group that doesn't exist.
    static let missingCode = "no_container"

    /// Returns what is wrong if there is no such group: with the groups that have a similar name.
    ///
    /// - Parameter place: Where else it could have been, such as `directory PATH`.
    static func missing(_ identifier: GroupIdentifier, orAt place: String? = nil) -> String {
        // Without either variable, no group can be found by its identifier.
        if GroupIdentifier.defaultDirectories(environment: ProcessVariables.all) == nil {
            return "the place of the group \(identifier) is unknown: HOME is not set"
        }
        // An agent may serve a group of that name elsewhere.
        let similar = KnownNames(environment: ProcessVariables.all).groups.filter { $0 != identifier.rawValue }
            .similar(to: identifier.rawValue).prefix(3)
        return "there is no group \(identifier)" + (place.map { ", and no \($0)" } ?? "")
            + (similar.isEmpty
                ? "" : "; did you mean \(similar.joined(separator: " or "))? A new one must be made first")
    }

    /// The command that makes the group.
    static func creation(of identifier: GroupIdentifier) -> String {
        guard GroupIdentifier.defaultDirectories(environment: ProcessVariables.all) != nil else {
            return "set HOME or GROUPSTORE_CONTAINERS, or name the group's directory"
        }
        // A group's identifier may begin with a hyphen.
        return "groupstore group create \(identifier.rawValue.hasPrefix("-") ? "-- " : "")\(identifier)"
    }
}

/// A group container named on the command line: the group's identifier, or a directory.
enum GroupDirectory {
    /// Returns the directory's absolute path, not normalized: only the kernel knows what ".." means after a symbolic
    /// link. A group with that identifier takes precedence over a directory; `./NAME` is a directory in any case. The
    /// directory may not exist if the path has a slash.
    ///
    /// Throws `RelocationFailure` if there is neither a group nor a directory.
    static func path(_ text: String) throws(RelocationFailure) -> FilePath {
        var relative = ArgumentBytes.path(text)
        if relative.components.first?.kind == .currentDirectory, relative.isRelative {
            relative.components.removeFirst()
        }
        let given = FilePath(workingDirectory()).pushing(relative)
        guard let identifier = GroupIdentifier(text) else {
            if FileStatus(following: given) == nil, try store(text) != nil { throw namesStore(text) }
            return given
        }
        if let directory = try lookUp({ try NamedGroup(identifier).directory }) { return directory }
        guard FileStatus(following: given) == nil else { return given }
        throw RelocationFailure(
            .unusablePlace, code: NamedGroup.missingCode,
            NamedGroup.missing(identifier, orAt: "directory \(PrintablePath(given))"),
            remedy: NamedGroup.creation(of: identifier))
    }

    /// Returns the path of `GROUP_ID/NAME`; nil if there is no such group.
    static func store(_ text: String) throws(RelocationFailure) -> FilePath? {
        try lookUp { try StoreArgument.groupStore(ArgumentBytes.path(text)) }
    }

    private static func lookUp(_ body: () throws -> FilePath?) throws(RelocationFailure) -> FilePath? {
        do {
            return try body()
        } catch let error as any ActionableError {
            throw RelocationFailure(.busy, error)
        } catch {
            throw RelocationFailure(.failed, code: "failed", "\(error)", remedy: "see why: groupstore doctor")
        }
    }

    private static func namesStore(_ text: String) -> RelocationFailure {
        let group = text.prefix { $0 != "/" }
        return RelocationFailure(
            .unusablePlace, code: "no_group_directory",
            "\(PrintableText(text)) names a store, and a group is wanted", remedy: "name the group alone: \(group)")
    }
}
