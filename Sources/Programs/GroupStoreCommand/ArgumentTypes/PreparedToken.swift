import Glibc
import LinuxSystem
import SystemPackage

/// A token that lies beside its file, to be published right after the work that it stands for: a kill between the two
/// repeats that work.
///
/// Nothing is synced. It is for the steps of a shadow, which isn't synced either: after another start of the machine
/// the shadow counts only if the watch had ended, which syncs both.
struct PreparedToken {
    private let directory: Directory
    private let name: FilePath.Component
    private let temporary: FilePath.Component

    /// Writes the token into a file of its own. Throws `SystemError`.
    init(_ token: String, _ location: (directory: Directory, name: FilePath.Component)) throws(SystemError) {
        (directory, name) = location
        guard let temporary = name.appending(".new") else {
            throw SystemError("open", .fileNameTooLong, path: directory.path.appending(name))
        }
        self.temporary = temporary
        try directory.removeFile(temporary)
        let descriptor = try directory.open(temporary, flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        _ = fchmod(descriptor.raw, 0o600)
        directory.giveToOwner(descriptor)
        try descriptor.write(Array((token + "\n").utf8), at: 0, path: directory.path.appending(temporary))
    }

    /// Replaces the token. Throws `SystemError`.
    func publish() throws(SystemError) { try directory.rename(temporary, to: name, in: directory, .replace) }
}
