import LinuxSystem
import SystemPackage

/// Moving the folder of external data, which its owner may have closed to writing.
///
/// Such a folder is open for the moment of its move. It is one that the journal knows, and whoever ends the transfer
/// closes it: killed in between, it has its mode again after the next run.
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

    /// However far its move came.
    func closeFolder(_ name: FilePath.Component, in directory: Directory) throws {
        let found = try directory.status(name)
        guard isKnownAsClosed(found), let found, found.permissions & 0o200 != 0 else { return }
        let folder = try directory.directory(name)
        guard folder.identity == found.identity else { return }
        try folder.close()
    }

    /// In a copy of its directory it has another number: there, each folder of that name is taken for it.
    private func isKnownAsClosed(_ status: FileStatus?) -> Bool {
        guard let closed = transfer.closedSupport, let status, status.kind == .directory else { return false }
        let isKnown = places.isSourceKnown(to: transfer) && places.isDestinationKnown(to: transfer)
        return status.identity == closed || (!isKnown && !places.isInPlace)
    }
}

extension StoreTransfer {
    /// The folder that is about to move, where its owner may not write to it.
    var closedSupport: FileIdentity? {
        get throws {
            guard let destination = places.destination else { return nil }
            let leavesItsPlace = !transfer.copies || (places.isInPlace && transfer.support != nil)
            let (directory, name) =
                leavesItsPlace
                ? (source.directory, source.name.support) : (try places.staging(), destination.name.support)
            return try directory.isClosed(name) ? directory.identity(name) : nil
        }
    }
}

/// A folder of external data that this process may not move, and can't allow itself to.
struct FolderObstacle {
    let path: FilePath
    /// "PATH can't be …"
    let lack: String
    /// What chmod(1) is to add.
    let remedy: String
}

extension Directory {
    /// What would fail in the middle of a move; nil where nothing would, and where the folder has lost its name meanwhile:
    /// whoever moves the store then finds out. What is in the folder matters to a copy, which removes it behind itself.
    func obstacle(
        toMoving name: FilePath.Component, whatIsIn isCopied: Bool
    ) throws(SystemError) -> FolderObstacle? {
        do throws(SystemError) {
            guard let found = try obstacleNow(toMoving: name, whatIsIn: isCopied), try status(name) != nil else {
                return nil
            }
            return found
        } catch {
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return nil
        }
    }

    private func obstacleNow(
        toMoving name: FilePath.Component, whatIsIn isCopied: Bool
    ) throws(SystemError) -> FolderObstacle? {
        let path = path.appending(name)
        guard mayLook(into: name) else { return FolderObstacle(path: path, lack: "looked into", remedy: "u+rwx") }
        let isClosed = try isClosed(name)
        guard isClosed || mayWrite(to: name) else {
            return FolderObstacle(path: path, lack: "written to, which its move takes", remedy: "u+w")
        }
        guard isCopied else { return nil }
        let inside = try directory(name)
        for child in try inside.names() where try inside.status(child)?.kind == .directory {
            if let found = try inside.obstacle(toMoving: child, whatIsIn: true) { return found }
        }
        return nil
    }
}
