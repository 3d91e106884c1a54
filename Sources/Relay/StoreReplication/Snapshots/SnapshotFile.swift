import Glibc
import LinuxSystem
import SystemPackage

/// The file of a snapshot that is being made.
struct SnapshotFile {
    private let path: FilePath
    private let directory: Directory
    private let name: FilePath.Component

    /// Creates an empty file that only this user may read. Throws `ReplicationError.exists`, `SystemError`.
    init(creating path: FilePath) throws {
        guard let name = path.lastComponent else { throw SystemError("open", .invalidArgument, path: path) }
        let parent = path.removingLastComponent()
        directory = try Directory(parent.isEmpty ? "." : parent)
        (self.path, self.name) = (path, name)
        do throws(SystemError) {
            _ = try directory.open(name, flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        } catch {
            if error.errno == .fileExists { throw ReplicationError.exists(path) }
            throw error
        }
    }

    /// Removes the content of an earlier attempt.
    func empty() throws { try directory.open(name, flags: O_WRONLY).truncate(to: 0, path: path) }

    func remove() {
        for suffix in ["", "-journal", "-wal", "-shm"] {
            if let part = name.appending(suffix) { try? directory.removeFile(part) }
        }
    }

    static func size(_ path: FilePath) throws -> Int64 {
        try Descriptor(opening: path, flags: O_RDONLY | O_NOFOLLOW).status(path: path).size
    }
}
