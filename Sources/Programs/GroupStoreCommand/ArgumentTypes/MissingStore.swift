import AgentProtocol
import CommandSupport
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import SQLiteStore
import SystemPackage

/// A store on the command line that isn't there: the group or the file that may be meant.
struct MissingStore {
    private let given: FilePath
    private let path: FilePath

    /// - Parameter given: The argument, with its original bytes.
    init(_ given: FilePath) {
        self.given = given
        path = given.absolute(in: FilePath(workingDirectory()))
    }

    /// The failure of a command that needs a store. Throws the errors of finding a group.
    func failure() throws -> CommandFailure {
        if let failure = try groupFailure() { return failure }
        let place = try StoreArgument.groupStore(given) ?? path
        let missing = MissingSource(place)
        return CommandFailure(
            .inputOutput, code: Self.code, missing?.sentence ?? StoreError.missing(place).message,
            remedy: missing?.nearest.map { "name it: \($0.shellWord)" } ?? "check the path, or name it GROUP_ID/NAME")
    }

    /// Returns the failure if the argument names a group, or a store of a group; nil if it can only be a file.
    ///
    /// `mayAppear`: a store that a group doesn't have is no failure.
    func groupFailure(mayAppear: Bool = false) throws -> CommandFailure? {
        guard FileStatus(following: path) == nil else { return nil }
        if given.components.count == 1, given.isRelative, let text = given.utf8, let group = GroupIdentifier(text) {
            return try groupItself(group)
        }
        guard let address = StoreAddress(bytes: given.bytes), let group = GroupIdentifier(address.group) else {
            return nil
        }
        let directory = path.removingLastComponent()
        guard FileStatus(following: directory) == nil else { return nil }
        guard let found = try NamedGroup(group).directory else {
            return CommandFailure(
                .inputOutput, code: NamedGroup.missingCode,
                NamedGroup.missing(group, orAt: "directory \(PrintablePath(directory))"),
                remedy: NamedGroup.creation(of: group))
        }
        guard !mayAppear, let name = FilePath.Component(bytes: address.name) else { return nil }
        let sentence = MissingSource(found.appending(name))?.sentence
        return CommandFailure(
            .inputOutput, code: Self.code,
            "\(group) has no store \(PrintablePath(bytes: address.name))" + (sentence.map { ": \($0)" } ?? ""),
            remedy: "see its stores: groupstore status \(group)")
    }

    private func groupItself(_ group: GroupIdentifier) throws -> CommandFailure? {
        guard try NamedGroup(group).directory == nil else {
            return CommandFailure(
                .badData, code: "not_a_file", "\(group) is a group, not a store: name a store of it, \(group)/NAME",
                remedy: "see its stores: groupstore status \(group)")
        }
        // Any file's name may be an identifier.
        guard group.rawValue.hasPrefix("group.") else { return nil }
        return CommandFailure(
            .inputOutput, code: NamedGroup.missingCode,
            NamedGroup.missing(group, orAt: "file \(PrintablePath(path))"), remedy: NamedGroup.creation(of: group))
    }

    private static let code = "no_such_store"
}
