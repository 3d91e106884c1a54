import Glibc
import SystemPackage

/// A directory that its owner may look into and not write to. rename(2) of a directory into another one changes its
/// "..", for which the kernel wants that right of everybody whom it checks at all; its owner can give it to themselves.
extension Directory {
    /// Whether what goes by the name is such a directory of this user's, and can be opened for the moment of its move, and
    /// closed again, with nothing else of its mode changed.
    package func isClosed(_ name: FilePath.Component) throws(SystemError) -> Bool {
        guard let found = try status(name), found.kind == .directory, found.owner == geteuid(),
            found.permissions & S_IWUSR == 0, !mayWrite(to: name)
        else { return false }
        // chmod(2) takes that bit away where the group is not one of the owner's.
        return found.permissions & S_ISGID == 0 || Self.isOwnGroup(found.group)
    }

    /// Whether this process may write to what goes by the name, by the rights that it has now.
    package func mayWrite(to name: FilePath.Component) -> Bool { may(W_OK, name) }

    /// Whether this process may look into the directory of that name.
    package func mayLook(into name: FilePath.Component) -> Bool { may(R_OK | X_OK, name) }

    private func may(_ access: CInt, _ name: FilePath.Component) -> Bool {
        name.withPlatformString { faccessat(raw, $0, access, AT_EACCESS | AT_SYMLINK_NOFOLLOW) } == 0
    }

    private static func isOwnGroup(_ group: gid_t) -> Bool {
        if group == getegid() { return true }
        var groups = [gid_t](repeating: 0, count: Int(NGROUPS_MAX))
        let count = getgroups(CInt(groups.count), &groups)
        return groups.prefix(max(0, Int(count))).contains(group)
    }

    /// Moves what goes by the name, a closed directory too. EEXIST when something stands at the new name.
    package func move(
        _ name: FilePath.Component, to other: FilePath.Component, in destination: Directory
    ) throws(SystemError) {
        if try isClosed(name) {
            try renameClosed(name, to: other, in: destination)
        } else {
            try rename(name, to: other, in: destination, .refuse)
        }
    }

    /// Moves a closed directory, its mode what it was afterwards, moved or not. Killed in between, it is left open.
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

    /// Takes the owner's right to write to the directory away again, on the disk too.
    package func close() throws(SystemError) {
        let mode = try status().permissions
        guard mode & S_IWUSR != 0 else { return }
        try setPermissions(mode & ~S_IWUSR)
        try synchronize()
    }
}
