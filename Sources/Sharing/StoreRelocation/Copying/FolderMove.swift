import LinuxSystem
import SystemPackage

/// Moves of the folder of external data, which may be closed: its owner may not write to it.
///
/// A closed folder is opened for the duration of its move. The journal names it, and whichever process ends the
/// transfer closes it: if a process is killed midway, the next run restores the mode.
extension TransferCompletion {
    func moveFolder(
        _ name: FilePath.Component, in directory: Directory, to other: FilePath.Component, in target: Directory
    ) throws {
        if try isKnownAsClosed(directory.status(name)) {
            try directory.move(name, to: other, in: target)
        } else {
            try directory.rename(name, to: other, in: target, .refuse)
        }
    }

    /// Closes the folder again, whether or not it has moved.
    func closeFolder(_ name: FilePath.Component, in directory: Directory) throws {
        let found = try directory.status(name)
        guard isKnownAsClosed(found), let found, found.permissions & 0o200 != 0 else { return }
        let folder = try directory.directory(name)
        guard folder.identity == found.identity else { return }
        try folder.close()
    }

    /// Returns true if the journal names this folder as closed. In a copy of its directory the folder has another
    /// number, so every folder of that name counts.
    private func isKnownAsClosed(_ status: FileStatus?) -> Bool {
        guard let closed = transfer.closedSupport, let status, status.kind == .directory else { return false }
        let isKnown = paths.isSourceKnown(to: transfer) && paths.isDestinationKnown(to: transfer)
        return status.identity == closed || (!isKnown && !paths.isInPlace)
    }
}

extension StoreTransfer {
    /// The folder that is about to move, if its owner may not write to it.
    var closedSupport: FileIdentity? {
        get throws {
            guard let destination = paths.destination else { return nil }
            let leavesItsPlace = !transfer.copies || (paths.isInPlace && transfer.support != nil)
            let (directory, name) =
                leavesItsPlace
                ? (source.directory, source.name.support) : (try paths.staging(), destination.name.support)
            return try directory.isClosed(name) ? directory.identity(name) : nil
        }
    }
}

/// A folder of external data that this process may not move and can't make movable.
struct FolderObstacle {
    let path: FilePath
    /// The missing right, to complete "PATH can't be …".
    let missingRight: String
    /// The mode that chmod(1) should add, such as `u+w`.
    let missingMode: String
}

extension Directory {
    /// Returns what would make a move of the folder fail midway. Returns nil if nothing would, or if the folder has
    /// lost its name in the meantime; the move itself then finds out. A copy removes the folder afterwards, so its
    /// contents matter too.
    func obstacle(
        toMoving name: FilePath.Component, includingContents isCopied: Bool
    ) throws(SystemError) -> FolderObstacle? {
        do throws(SystemError) {
            guard let found = try currentObstacle(toMoving: name, includingContents: isCopied), try status(name) != nil
            else {
                return nil
            }
            return found
        } catch {
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return nil
        }
    }

    private func currentObstacle(
        toMoving name: FilePath.Component, includingContents isCopied: Bool
    ) throws(SystemError) -> FolderObstacle? {
        let path = path.appending(name)
        guard mayList(name) else { return FolderObstacle(path: path, missingRight: "listed", missingMode: "u+rwx") }
        let isClosed = try isClosed(name)
        guard isClosed || mayWrite(to: name) else {
            return FolderObstacle(path: path, missingRight: "written to, as moving it requires", missingMode: "u+w")
        }
        guard isCopied else { return nil }
        let inside = try directory(name)
        for child in try inside.names() where try inside.status(child)?.kind == .directory {
            if let found = try inside.obstacle(toMoving: child, includingContents: true) { return found }
        }
        return nil
    }
}
