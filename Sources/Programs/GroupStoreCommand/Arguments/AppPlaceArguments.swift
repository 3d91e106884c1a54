import AgentProtocol
import AppRelocation
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage

/// The two places of a directory's move, as the command line names them.
enum AppPlaceArguments {
    /// Returns the directory's path: a path, or the short form of one in a packaged app's directory.
    static func source(_ text: String) throws(RelocationFailure) -> FilePath {
        let path = FilePath(workingDirectory()).pushing(ArgumentBytes.path(text))
        guard FileStatus(following: path) == nil else { return path }
        do throws(ContainerPath.Failure) {
            return try ContainerPath(text, home: ProcessVariables.all["HOME"])?.path ?? path
        } catch {
            throw RelocationFailure(.badData, code: "bad_name", error.message, remedy: error.remedy)
        }
    }

    /// Returns the directory's new path. A directory that exists is one to move into, under the same name, unless it is
    /// the new place itself: the move was done, or began, before. `GROUP` and `GROUP/NAME` name a group's directory by
    /// its identifier.
    static func destination(_ text: String, of source: FilePath) throws -> FilePath {
        let given = FilePath(workingDirectory()).pushing(ArgumentBytes.path(text))
        let path = FileStatus(following: given) == nil ? inGroup(text) ?? given : given
        guard let status = FileStatus(following: path), status.kind == .directory, let name = source.lastComponent,
            status.identity != FileStatus(following: source)?.identity, try !isDestination(path, of: source)
        else { return path }
        return path.appending(name)
    }

    /// Returns where the directory at the source was moved to, or from, for `--undo` with one path only.
    static func recorded(_ path: FilePath) throws -> (source: FilePath, destination: FilePath) {
        guard let name = path.lastComponent, let parent = try? Directory(resolving: path.removingLastComponent()) else {
            throw RelocationFailure(
                .unusablePlace, code: "no_source", "there is no directory \(PrintablePath(path))",
                remedy: "name the program's old or new directory")
        }
        let place = parent.path.appending(name)
        let group = GroupContainer(directory: parent)
        // An undo that was interrupted after the directory had its old name back.
        if let back = AppUndoNote.find(for: place, in: parent) { return (place, back.source.path) }
        if let back = try? group.appJournal()?.move, back.undoes != nil, back.source.path == place {
            return (back.destination.path, place)
        }
        let obstacle = try AppObstacle(name, in: parent)
        if let link = obstacle.link { return (place, link) }
        if let receipt = try group.appReceipts(of: place).last { return (receipt.move.source.path, place) }
        throw RelocationFailure(
            .unusablePlace, code: "no_receipt",
            "\(PrintablePath(path)) is \(obstacle.words): neither the link that a move leaves, nor a directory that a move "
                + "has brought there",
            remedy: "name both places: groupstore move-app --undo SOURCE DESTINATION")
    }

    /// True if an interrupted or recorded move has this destination.
    private static func isDestination(_ path: FilePath, of source: FilePath) throws -> Bool {
        guard let parent = try? Directory(resolving: path.removingLastComponent()), let name = path.lastComponent else {
            return false
        }
        let place = parent.path.appending(name)
        let container = GroupContainer(directory: parent)
        if let move = try container.appJournal()?.move {
            return [move.source.path, move.destination.path].contains(place)
        }
        guard FileStatus(following: source) == nil else { return false }
        return try container.appReceipts(of: place).contains {
            $0.move.source.path.lastComponent == source.lastComponent
        }
    }

    private static func inGroup(_ text: String) -> FilePath? {
        let parts = text.split(separator: "/", maxSplits: 1)
        guard let first = parts.first, let identifier = GroupIdentifier(String(first)),
            let directory = try? identifier.standardDirectory(environment: ProcessVariables.all),
            FileStatus(following: directory)?.kind == .directory
        else { return nil }
        return parts.count == 1 ? directory : directory.pushing(FilePath(String(parts[1])))
    }
}
