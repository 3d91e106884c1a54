import CommandSupport
import Glibc
import LinuxSystem
import StoreRelocation
import SystemPackage

/// The owner and mode that `group create` gives to a new directory.
struct GroupRights {
    private let owner: uid_t?
    private let group: gid_t?
    private let mode: mode_t?

    /// Returns nil if nothing is asked for. Throws `CommandFailure` for an unknown user or group, or a bad mode.
    init?(owner: String?, mode: String?) throws {
        guard owner != nil || mode != nil else { return nil }
        self.mode = try mode.map { text in
            guard let mode = mode_t(text, radix: 8), mode <= 0o3777, mode & 0o700 == 0o700 else {
                throw CommandFailure(
                    .usage, code: "bad_mode", "\(text) isn't a mode of a directory that its owner can use",
                    remedy: "name it in octal: 0700, or 2770 to share it with a group")
            }
            return mode
        }
        let parts = owner?.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false).map(String.init) ?? []
        self.owner = try parts.first.flatMap { name in
            if name.isEmpty { return nil }
            guard let user = UserNames.user(name) else { throw Self.unknown("user", name, "getent passwd") }
            return user
        }
        group =
            try parts.dropFirst().first.map { name in
                guard let group = UserNames.group(name) else { throw Self.unknown("group", name, "getent group") }
                return group
            } ?? self.owner.map(UserNames.firstGroup)
    }

    private static func unknown(_ kind: String, _ name: String, _ list: String) -> CommandFailure {
        CommandFailure(
            .usage, code: "unknown_\(kind)", "there is no \(kind) \(name)", remedy: "these are known: \(list)")
    }

    /// Throws `CommandFailure` if this process may not give a directory of its own to the owner or group (chown(2)).
    private func checkMayGive(_ path: FilePath) throws {
        guard geteuid() != 0 else { return }
        let other = owner.flatMap { $0 == geteuid() ? nil : "user \($0)" }
        let foreign = group.flatMap { Directory.isOwnGroup($0) ? nil : "group \($0)" }
        guard let recipient = other ?? foreign else { return }
        throw CommandFailure(
            .notPermitted, code: "not_permitted", "only root may give \(PrintablePath(path)) to \(recipient)",
            remedy: "run this as root, as with sudo")
    }

    /// Throws `CommandFailure` if the directory exists with other rights, if this process can't give it these, or if
    /// its owner could not reach it.
    func check(_ path: FilePath) throws {
        if let status = FileStatus(following: path) {
            let isSame =
                (owner ?? status.owner) == status.owner && (group ?? status.group) == status.group
                && (mode ?? status.permissions) == status.permissions
            guard !isSame else { return }
            let commands = [
                owner == nil && group == nil
                    ? nil : "chown \(owner ?? status.owner):\(group ?? status.group) \(path.shellWord)",
                mode.map { "chmod \(String($0, radix: 8)) \(path.shellWord)" },
            ]
            throw CommandFailure(
                .conflict, code: "exists",
                "\(PrintablePath(path)) exists already, with owner \(status.owner):\(status.group) and mode "
                    + "0\(String(status.permissions, radix: 8))",
                remedy: "change that: " + commands.compactMap { $0 }.joined(separator: " && "))
        }
        try checkMayGive(path)
        guard let owner, owner != geteuid() else { return }
        let parent = path.removingLastComponent()
        guard FileStatus(following: parent)?.kind == .directory else {
            throw CommandFailure(
                .inputOutput, code: "no_directory", "there is no directory \(PrintablePath(parent))",
                remedy: "create it first, so that user \(owner) can pass it: mkdir -p \(parent.shellWord)")
        }
        let directory = try Directory(resolving: parent)
        guard let name = path.lastComponent,
            let obstacle = try OwnerAccess(of: owner, to: directory).obstacle(from: "/", reaching: name)
        else { return }
        throw CommandFailure(
            .notPermitted, code: "owner_locked_out", "user \(owner) \(obstacle.words)", remedy: obstacle.remedy)
    }

    /// Gives the rights to a directory that was just made, or removes it.
    func give(to path: FilePath) throws {
        do {
            try give(Directory(path), path)
        } catch {
            // It removes an empty directory only: what another process has put there meanwhile stays.
            _ = path.withPlatformString { rmdir($0) }
            throw error
        }
    }

    private func give(_ directory: Directory, _ path: FilePath) throws {
        if owner != nil || group != nil {
            guard fchown(directory.raw, owner ?? uid_t.max, group ?? gid_t.max) == 0 else {
                throw SystemError.last("fchown", path: path)
            }
        }
        // After the owner, whose change takes the set-group bit.
        if let mode { try directory.setPermissions(mode) }
    }
}
