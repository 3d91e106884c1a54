import Glibc
import LinuxSystem
import SQLiteFormat
import StoreRelocation
import SystemPackage

/// Adds the files of the legacy store's support folder to the group's, for stores whose rows don't say which of them
/// they refer to. It overwrites nothing.
struct SupportFolderUnion {
    let group: StoreLocation
    let legacy: StoreLocation
    private static let deepest = 16

    /// Returns the number of copied files. Throws `RelocationFailure` if both folders have a file of one name with
    /// different bytes.
    func copy() throws -> Int64 {
        guard try legacy.directory.status(legacy.name.support)?.kind == .directory else { return 0 }
        let count = try add(
            legacy.name.support, in: legacy.directory, as: group.name.support, in: group.directory, depth: 0)
        // The proof: each file is there, byte for byte.
        guard try legacy.hasExternalDataWithin(group) else {
            throw RelocationFailure.proof("files of the legacy store's support folder are missing")
        }
        return count
    }

    private func add(
        _ name: FilePath.Component, in parent: Directory, as newName: FilePath.Component, in newParent: Directory,
        depth: Int
    ) throws -> Int64 {
        let path = parent.path.appending(name)
        guard depth < Self.deepest else { throw SystemError("mkdir", .tooManySymbolicLinkLevels, path: path) }
        guard let status = try parent.status(name) else { return 0 }
        let found = try newParent.status(newName)
        switch (status.kind, found?.kind) {
        case (.directory, .directory?), (.directory, nil):
            let from = try parent.directory(name)
            if found == nil { try newParent.makeDirectory(newName, mode: status.permissions | S_IRWXU) }
            let to = try newParent.directory(newName)
            var count: Int64 = 0
            for child in try from.names() { count += try add(child, in: from, as: child, in: to, depth: depth + 1) }
            if found == nil { try to.setPermissions(status.permissions) }
            try to.synchronize()
            return count
        case (.regular, nil):
            try copyFile(name, from: parent, to: newParent, mode: status.permissions)
            return 1
        case (.regular, .regular?):
            let one = try parent.open(name, flags: O_RDONLY | O_NOFOLLOW)
            let other = try newParent.open(newName, flags: O_RDONLY | O_NOFOLLOW)
            let otherPath = newParent.path.appending(newName)
            guard status.size == found?.size, try Self.areEqual(one, other, status.size, path, otherPath) else {
                throw RelocationFailure.mergeUnsupported(
                    "both support folders have \(name.string), with different content, and nothing says which rows refer to it"
                )
            }
            return 0
        default:
            throw RelocationFailure.mergeUnsupported(
                "\(PrintablePath(path)) is neither a file nor a directory, or not of the kind that the group's folder has"
            )
        }
    }

    private func copyFile(_ name: FilePath.Component, from parent: Directory, to target: Directory, mode: mode_t) throws
    {
        let file = try parent.open(name, flags: O_RDONLY | O_NOFOLLOW)
        let (path, newPath) = (parent.path.appending(name), target.path.appending(name))
        let copy = try target.open(name, flags: O_RDWR | O_CREAT | O_EXCL, mode: mode)
        _ = try FileCopy(from: path, to: newPath).run(from: file, to: copy)
        try copy.synchronize(path: newPath)
    }

    private static func areEqual(
        _ one: borrowing Descriptor, _ other: borrowing Descriptor, _ size: Int64, _ path: FilePath,
        _ otherPath: FilePath
    ) throws -> Bool {
        var offset: Int64 = 0
        while offset < size {
            let count = Int(min(1 << 20, size - offset))
            let bytes = try one.read(count: count, at: offset, path: path)
            guard !bytes.isEmpty, bytes == (try other.read(count: count, at: offset, path: otherPath)) else {
                return false
            }
            offset += Int64(bytes.count)
        }
        return true
    }
}
