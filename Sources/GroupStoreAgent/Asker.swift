import AgentProtocol
import Glibc
import LinuxSystem
import SystemPackage

/// Who asks, and what they may have by the configuration and by the permissions of the file system.
///
/// A user other than the agent's own gets nothing from the agent that they could not have without it.
/// Documentation/Security.md says who may ask for what.
struct Asker: Sendable {
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
    func mayOpen(_ paths: [FilePath], _ mode: CInt = R_OK) -> [Bool] {
        guard !isTrusted else { return paths.map { _ in true } }
        let questions = paths.map { UserAccess.Question($0, mode) }
        var may = paths.map { _ in false }
        // A file that is replaced between the two looks is none that they may not open: looked again, a few times.
        for _ in 0..<3 {
            let answers = UserAccess(peer).answers(questions)
            may = zip(paths, answers).map(Self.isSameHere)
            if zip(may, answers).allSatisfy({ $0 || $1 == .denied }) { break }
        }
        return may
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
        guard !isTrusted else { return true }
        let group = item.flatMap { configuration.group($0.group) }
        let relative = item.flatMap { FilePath(bytes: $0.path) }
        // Asked although nothing is served, so that the answer takes as long.
        guard let group, let relative else { return mayOpen("/", mode) && false }
        return mayOpen(group.directory.pushing(relative), mode)
    }
}
