import Glibc
import SystemPackage

/// Support for closed directories, which their owner may read but not write. rename(2) of a directory into another one
/// changes its "..", for which the kernel demands write permission. Its owner can grant that to themselves.
extension Directory {
    /// True if the name is such a directory of this user, and it can be opened for a move and closed again without any
    /// other change of its mode.
    package func isClosed(_ name: FilePath.Component) throws(SystemError) -> Bool {
        guard let found = try status(name), found.kind == .directory, found.owner == geteuid(),
            found.permissions & S_IWUSR == 0, !mayWrite(to: name)
        else { return false }
        // chmod(2) clears that bit if the group is not one of the owner's.
        return found.permissions & S_ISGID == 0 || Self.isOwnGroup(found.group)
    }

    /// True if this process may write to the file with that name, by its present permissions.
    package func mayWrite(to name: FilePath.Component) -> Bool { may(W_OK, name) }

    /// True if this process may list the directory with that name.
    package func mayList(_ name: FilePath.Component) -> Bool { may(R_OK | X_OK, name) }

    private func may(_ access: CInt, _ name: FilePath.Component) -> Bool {
        name.withPlatformString { faccessat(raw, $0, access, AT_EACCESS | AT_SYMLINK_NOFOLLOW) } == 0
    }

    /// True if this process may give its files to the group.
    package static func isOwnGroup(_ group: gid_t) -> Bool {
        if group == getegid() { return true }
        var groups = [gid_t](repeating: 0, count: Int(NGROUPS_MAX))
        let count = getgroups(CInt(groups.count), &groups)
        return groups.prefix(max(0, Int(count))).contains(group)
    }

    /// Moves a file or directory, even a closed one. Throws EEXIST if the new name exists.
    package func move(
        _ name: FilePath.Component, to other: FilePath.Component, in destination: Directory
    ) throws(SystemError) {
        if try isClosed(name) {
            try renameClosed(name, to: other, in: destination)
        } else {
            try rename(name, to: other, in: destination, .refuse)
        }
    }

    /// Moves a closed directory, and restores its mode whether or not it was moved. If the process is killed in
    /// between, the directory stays open.
    private func renameClosed(
        _ name: FilePath.Component, to other: FilePath.Component, in destination: Directory
    ) throws(SystemError) {
        let closed = try directory(name)
        let mode = try closed.status().permissions
        try closed.setPermissions(mode | S_IWUSR)
        do throws(SystemError) {
            try rename(name, to: other, in: destination, .refuse)
        } catch {
            try? closed.setPermissions(mode)
            throw error
        }
        try closed.setPermissions(mode)
        try closed.synchronize()
    }

    /// Removes the owner's write permission from the directory again, and syncs.
    package func close() throws(SystemError) {
        let mode = try status().permissions
        guard mode & S_IWUSR != 0 else { return }
        try setPermissions(mode & ~S_IWUSR)
        try synchronize()
    }
}
