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
        if path.lastComponent?.kind != .regular, let directory = try? Directory(resolving: path) {
            // `.` and `..` have a name, too.
            guard directory.path.lastComponent != nil else {
                throw RelocationFailure(
                    .unusablePlace, code: "not_a_directory", "/ is the root of all files, and no program's directory",
                    remedy: "name the program's directory")
            }
            return directory.path
        }
        guard FileStatus(following: path) == nil else { return path }
        if let place = try? inGroup(text), FileStatus(following: place) != nil { return place }
        do throws(ContainerPath.Failure) {
            return try ContainerPath(text, home: ProcessVariables.all["HOME"])?.path ?? path
        } catch {
            throw RelocationFailure(.badData, code: "bad_name", error.message, remedy: error.remedy)
        }
    }

    /// Returns the directory's new path. A directory that exists is one to move into, under the same name, unless it is
    /// the new place itself: the move was done, or began, before. `GROUP` and `GROUP/NAME` name a group's directory by
    /// its identifier.
    static func destination(_ text: String, of source: FilePath, isUndo: Bool) throws -> FilePath {
        let given = FilePath(workingDirectory()).pushing(ArgumentBytes.path(text))
        let path = FileStatus(following: given) == nil ? try inGroup(text) ?? given : given
        guard let status = FileStatus(following: path), status.kind == .directory, let name = source.lastComponent,
            status.identity != FileStatus(following: source)?.identity,
            try !isDestination(path, of: source, isUndo: isUndo)
        else { return path }
        return path.appending(name)
    }

    /// True if an interrupted or recorded move has this destination.
    private static func isDestination(_ path: FilePath, of source: FilePath, isUndo: Bool) throws -> Bool {
        guard let parent = try? Directory(resolving: path.removingLastComponent()), let name = path.lastComponent else {
            return false
        }
        let place = parent.path.appending(name)
        let container = GroupContainer(directory: parent)
        if let move = try container.appJournal()?.move {
            return [move.source.path, move.destination.path].contains(place)
        }
        guard isUndo || FileStatus(following: source) == nil else { return false }
        return try container.appReceipts(of: place).contains {
            $0.move.source.path.lastComponent == source.lastComponent
        }
    }

    /// Returns the place in a group that `GROUP` and `GROUP/NAME` name; nil for another path. A name that
    /// begins as identifiers do is never that of a directory to be made.
    private static func inGroup(_ text: String) throws(RelocationFailure) -> FilePath? {
        let parts = text.split(separator: "/", maxSplits: 1)
        guard !text.hasPrefix("/"), let first = parts.first.map(String.init), GroupIdentifier(first) != nil else {
            return nil
        }
        do throws(RelocationFailure) {
            let directory = try GroupDirectory.path(first)
            return parts.count == 1 ? directory : directory.pushing(FilePath(String(parts[1])))
        } catch {
            guard error.code == NamedGroup.missingCode, !first.hasPrefix("group.") else { throw error }
            return nil
        }
    }
}
