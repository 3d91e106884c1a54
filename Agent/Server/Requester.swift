import AgentProtocol
import Glibc
import LinuxSystem
import SystemPackage

/// The peer of a request, with its permissions by the configuration and by the file system.
///
/// A user other than the agent's own gets nothing from the agent that they could not have without it.
/// Documentation/Security.md lists what each user may ask for.
struct Requester: Sendable {
    let peer: PeerCredentials
    let roles: Set<Role>
    /// True for the agent's own user and root.
    let isTrusted: Bool

    init(_ peer: PeerCredentials, _ configuration: Configuration, agent: uid_t = geteuid()) {
        self.peer = peer
        roles = configuration.roles(of: peer.uid, agent: agent) ?? []
        isTrusted = peer.uid == agent || peer.uid == 0
    }

    func check(_ role: Role?) throws(WireError) {
        guard isTrusted || role.map(roles.contains) ?? true else {
            throw WireError(
                code: "not_permitted", "user \(peer.uid) may not ask for that",
                hint: "the agent's owner can grant it: socket: allow: [{uid: …, may: […]}]")
        }
    }

    /// True if the user may open the file with this mode, or if it is absent as far as the user could find out alone.
    /// The agent must see the same file there.
    func mayOpen(_ path: FilePath, _ mode: CInt = R_OK) -> Bool { mayOpen([path], mode).first ?? false }

    /// Checks many files at once.
    func mayOpen(_ paths: [FilePath], _ mode: CInt = R_OK) -> [Bool] { grants(paths, mode).map { $0 != nil } }

    /// Returns a grant for each path; nil for those that the user may not open.
    private func grants(_ paths: [FilePath], _ mode: CInt) -> [FileGrant?] {
        guard !isTrusted else { return paths.map { _ in .anything } }
        let questions = paths.map { UserAccess.Question($0, mode) }
        var grants: [FileGrant?] = []
        // A file replaced between the two checks is not a file that they may not open: checked again, a few times.
        for _ in 0..<3 {
            let answers = UserAccess(peer).answers(questions)
            grants = zip(paths, answers).map { path, answer in
                guard Self.isSameHere(path, answer) else { return nil }
                if case .granted(let identity) = answer { return .only(identity) }
                return .nothing
            }
            if zip(grants, answers).allSatisfy({ $0 != nil || $1 == .denied }) { break }
        }
        return grants
    }

    /// True if the agent finds at the path what the user may open, or doesn't find.
    private static func isSameHere(_ path: FilePath, _ answer: UserAccess.Answer) -> Bool {
        switch answer {
        case .granted(let identity): FileStatus(following: path)?.identity == identity
        case .absent: FileStatus(following: path) == nil
        case .denied: false
        }
    }

    /// True if the user may open the store, and its group is served. A refusal gives no reason: a user who may not see
    /// a store doesn't learn whether the store or its group exists.
    func mayOpen(_ store: StoreAddress, in configuration: Configuration, mode: CInt = R_OK) -> Bool {
        mayOpen(ItemAddress(group: store.group, path: store.name), in: configuration, mode: mode)
    }

    func mayOpen(_ item: ItemAddress?, in configuration: Configuration, mode: CInt = R_OK) -> Bool {
        grant(item, in: configuration, mode: mode) != nil
    }

    /// A use of an item, as its presenters are told.
    enum ItemUse {
        case read
        case write
        /// Move it away, or to this place: that requires the permission to write to the directory, too.
        case move
    }

    func may(_ use: ItemUse, _ item: ItemAddress, in configuration: Configuration) -> Bool {
        guard use != .read else { return mayOpen(item, in: configuration) }
        guard let found = grant(item, in: configuration, mode: R_OK | W_OK) else { return false }
        // An absent file counts as writable for a user who may create it.
        guard found == .nothing || use == .move, !isTrusted,
            let directory = configuration.group(item.group)?.directory, let relative = FilePath(bytes: item.path)
        else { return true }
        return mayOpen(directory.pushing(relative).removingLastComponent(), W_OK | X_OK)
    }

    /// Returns what the user may open of the item; nil, without a reason, if nothing.
    func grant(_ item: ItemAddress?, in configuration: Configuration, mode: CInt = R_OK) -> FileGrant? {
        guard !isTrusted else { return .anything }
        let group = item.flatMap { configuration.group($0.group) }
        let relative = item.flatMap { FilePath(bytes: $0.path) }
        // Checked although nothing is served, so that the answer takes as long.
        guard let group, let relative else {
            _ = mayOpen("/", mode)
            return nil
        }
        return grants([group.directory.pushing(relative)], mode).first ?? nil
    }
}

/// The files that a user may open by a name, whichever file has that name by then.
enum FileGrant: Sendable, Equatable {
    case anything
    case only(FileIdentity)
    /// Nothing had that name.
    case nothing
}
