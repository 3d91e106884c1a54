import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

extension NewStore {
    /// Copies another store's external data folder, if it has one, as this one's. Throws `SystemError`.
    package func copySupport(of store: StoreLocation) throws {
        try store.copySupport(to: staged)
    }
}

extension StoreLocation {
    /// Copies the store's external data folder, if it has one, to another store's location. Throws `SystemError`.
    package func copySupport(to other: StoreLocation) throws {
        guard try directory.status(name.support) != nil else { return }
        try directory.copyTree(name.support, to: other.name.support, in: other.directory)
    }
}

extension Directory {
    /// Copies a directory with its files and directories, and syncs it. Throws for any other kind of file.
    fileprivate func copyTree(
        _ name: FilePath.Component, to newName: FilePath.Component, in parent: Directory, depth: Int = 0
    ) throws {
        let from = try directory(name)
        guard depth < 16 else { throw SystemError("mkdir", .tooManySymbolicLinkLevels, path: from.path) }
        let mode = try from.status().permissions
        // Its content is written while it is still writable.
        try parent.makeDirectory(newName, mode: mode | S_IRWXU)
        let to = try parent.directory(newName)
        for child in try from.names() {
            switch try from.status(child)?.kind {
            case .directory?: try from.copyTree(child, to: child, in: to, depth: depth + 1)
            case .regular?: try from.copyFile(child, to: to)
            case nil: continue
            default: throw SystemError("open", .invalidArgument, path: from.path.appending(child))
            }
        }
        if mode & S_IRWXU != S_IRWXU { try to.setPermissions(to.status().permissions & (mode | ~S_IRWXU)) }
        try to.synchronize()
    }

    private func copyFile(_ name: FilePath.Component, to target: Directory) throws {
        let source = try open(name, flags: O_RDONLY)
        let status = try source.status(path: path.appending(name))
        let copy = try target.open(name, flags: O_RDWR | O_CREAT | O_EXCL, mode: status.permissions)
        let targetPath = target.path.appending(name)
        _ = try FileCopy(from: path.appending(name), to: targetPath).run(from: source, to: copy)
        try copy.synchronize(path: targetPath)
    }
}
