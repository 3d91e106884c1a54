import Glibc
import LinuxSystem
import SystemPackage

extension GroupContainer {
    /// The permissions of a new container: its owner's alone.
    package static let directoryMode: mode_t = 0o700

    /// Makes the directory with mode 0700, and its missing parents likewise, as the XDG base directory specification
    /// asks for. Several processes may do so at once.
    ///
    /// - Returns: False if the directory exists already. Its permissions are then left as they are.
    @discardableResult
    package static func create(_ path: FilePath) throws(SystemError) -> Bool {
        if isDirectory(path) { return false }
        guard let name = path.lastComponent else { throw SystemError("mkdir", .invalidArgument, path: path) }
        let parent = path.removingLastComponent()
        if !parent.isEmpty, !isDirectory(parent) { _ = try create(parent) }
        let directory = try Directory(parent.isEmpty ? "." : parent)
        do throws(SystemError) {
            try directory.makeDirectory(name, mode: directoryMode)
        } catch {
            guard error.errno == .fileExists, isDirectory(path) else { throw error }
            return false
        }
        // The umask may have taken away even the owner's permissions.
        let made = try directory.directory(name)
        if try made.status().permissions != directoryMode { try made.setPermissions(directoryMode) }
        directory.giveToOwner(made)
        try directory.synchronize()
        return true
    }

    private static func isDirectory(_ path: FilePath) -> Bool { FileStatus(following: path)?.kind == .directory }
}
