import AgentProtocol
import Glibc
import LinuxSystem
import SystemPackage

/// Who asks, and what they may have by the configuration and by the permissions of the file system.
///
/// A user other than the agent's own gets nothing from the agent that they could not have without it.
/// Documentation/Security.md says who may ask for what.
struct Requester: Sendable {
    let peer: PeerCredentials
    let roles: Set<Role>
    /// The agent's own user, or root.
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

    /// Whether the file is one that they may open so, or is not there as far as they could find out by themselves. The agent
    /// must see the same file there.
    func mayOpen(_ path: FilePath, _ mode: CInt = R_OK) -> Bool { mayOpen([path], mode).first ?? false }

    /// The same of many at once.
    func mayOpen(_ paths: [FilePath], _ mode: CInt = R_OK) -> [Bool] { grants(paths, mode).map { $0 != nil } }

    /// Nil for what they may not open.
    private func grants(_ paths: [FilePath], _ mode: CInt) -> [FileGrant?] {
        guard !isTrusted else { return paths.map { _ in .anything } }
        let questions = paths.map { UserAccess.Question($0, mode) }
        var grants: [FileGrant?] = []
        // A file that is replaced between the two looks is none that they may not open: looked again, a few times.
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

    /// What they may open, or don't find, is what the agent finds.
    private static func isSameHere(_ path: FilePath, _ answer: UserAccess.Answer) -> Bool {
        switch answer {
        case .granted(let identity): FileStatus(following: path)?.identity == identity
        case .absent: FileStatus(following: path) == nil
        case .denied: false
        }
    }

    /// Of a store in a group that is served. Nothing is said of why not: who may not see a store doesn't hear whether there
    /// is one, nor whether there is such a group.
    func mayOpen(_ store: StoreAddress, _ configuration: Configuration, _ mode: CInt = R_OK) -> Bool {
        mayOpen(ItemAddress(group: store.group, path: store.name), configuration, mode)
    }

    func mayOpen(_ item: ItemAddress?, _ configuration: Configuration, _ mode: CInt = R_OK) -> Bool {
        grant(item, configuration, mode) != nil
    }

    /// What somebody wants to do with an item, as those who present it are told.
    enum ItemUse {
        case read
        case write
        /// Take it away, or put it there: that takes the right to write to the directory, too.
        case move
    }

    func may(_ use: ItemUse, _ item: ItemAddress, _ configuration: Configuration) -> Bool {
        guard use != .read else { return mayOpen(item, configuration) }
        guard let found = grant(item, configuration, R_OK | W_OK) else { return false }
        // What isn't there is written by whoever may make it.
        guard found == .nothing || use == .move, !isTrusted,
            let directory = configuration.group(item.group)?.directory, let relative = FilePath(bytes: item.path)
        else { return true }
        return mayOpen(directory.pushing(relative).removingLastComponent(), W_OK | X_OK)
    }

    /// What they may open of it; nil: nothing is said of why not.
    func grant(_ item: ItemAddress?, _ configuration: Configuration, _ mode: CInt = R_OK) -> FileGrant? {
        guard !isTrusted else { return .anything }
        let group = item.flatMap { configuration.group($0.group) }
        let relative = item.flatMap { FilePath(bytes: $0.path) }
        // Asked although nothing is served, so that the answer takes as long.
        guard let group, let relative else {
            _ = mayOpen("/", mode)
            return nil
        }
        return grants([group.directory.pushing(relative)], mode).first ?? nil
    }
}

/// What may be opened by a name, whatever has that name by then.
enum FileGrant: Sendable, Equatable {
    case anything
    case only(FileIdentity)
    /// There was nothing by that name.
    case nothing
}
