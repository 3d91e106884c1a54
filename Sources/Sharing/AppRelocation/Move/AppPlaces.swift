import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage

/// The two places of a move: their open parent directories, and the names in them.
struct AppPlaces {
    let sourceParent: Directory
    let sourceName: FilePath.Component
    let destinationParent: Directory
    let destinationName: FilePath.Component

    /// Opens both parents. Throws `RelocationFailure` if there is none, and `SystemError`.
    init(source: FilePath, destination: FilePath) throws {
        (sourceParent, sourceName) = try Self.place(
            source,
            missing: .app(
                .unusablePlace, "no_source", "there is no directory \(PrintablePath(source))",
                "name the program's directory"))
        let parent = destination.removingLastComponent()
        (destinationParent, destinationName) = try Self.place(
            destination,
            missing: .app(
                .unusablePlace, "no_group_directory", "there is no directory \(PrintablePath(parent))",
                "create it first: mkdir -p -m 0700 \(parent.shellWord)"))
    }

    /// Opens the places of a group's journal. The group's directory may have another path by now.
    init(_ journal: AppMoveJournal, in container: GroupContainer) throws {
        let (source, destination) = (journal.move.source.path, journal.move.destination.path)
        guard let sourceName = source.lastComponent, let destinationName = destination.lastComponent else {
            throw RelocationFailure.app(
                .failed, "unreadable_record", "the journal of a move names no directory: \(PrintablePath(source))",
                "it is damaged: move .groupstore/app-journal.json aside")
        }
        let group = try journal.directory(container.directory.path)
        let isReturn = journal.move.undoes != nil
        sourceParent = isReturn ? group : try journal.directory(source.removingLastComponent())
        destinationParent = isReturn ? try journal.directory(destination.removingLastComponent()) : group
        (self.sourceName, self.destinationName) = (sourceName, destinationName)
    }

    private static func place(
        _ path: FilePath, missing: RelocationFailure
    ) throws -> (Directory, FilePath.Component) {
        guard let name = path.lastComponent, name.kind == .regular else { throw missing }
        do throws(SystemError) {
            return (try Directory(resolving: path.removingLastComponent()), name)
        } catch {
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            throw missing
        }
    }

    /// The directory of the old place, where a move's note lies, there or back.
    func noteParent(of move: AppMove) -> Directory { move.undoes == nil ? sourceParent : destinationParent }

    /// Writes the note that leads from the old place to the records. A full disk there keeps nothing from leaving it.
    func writeNote(of move: AppMove) throws {
        do {
            try AppUndoNote.write(move, in: noteParent(of: move))
        } catch let error as SystemError where [.noSpace, .diskQuotaExceeded].contains(error.errno) {
            guard move.undoes == nil else { throw error }
            AppUndoNote.removeUnfinished(in: sourceParent)
        }
    }

    var source: FilePath { sourceParent.path.appending(sourceName) }
    var destination: FilePath { destinationParent.path.appending(destinationName) }

    /// Looks at both places. Changes nothing.
    func facts(isUndo: Bool) throws -> AppFacts {
        var facts = AppFacts(
            source: try Self.look(sourceName, in: sourceParent),
            destination: try Self.look(destinationName, in: destinationParent))
        facts.isUndo = isUndo
        facts.isInside = destinationParent.path.starts(with: source)
        guard case .directory = facts.source else { return facts }
        facts.hasRecords =
            try GroupContainer.isBookkeeping(source)
            || GroupContainer(directory: sourceParent.directory(sourceName)).isGroup()
        if facts.hasRecords {
            let inner = GroupContainer(directory: try sourceParent.directory(sourceName))
            facts.movedApp = try inner.movedApps().first?.move.destination.path
        }
        facts.mountPoint = try sourceParent.mountPoint(within: sourceName)
        return facts
    }

    /// Returns sentences about the links in the directory that lead elsewhere from the new place.
    func notes(_ contents: AppContents) -> [String] {
        contents.linksOutside.compactMap { link in
            guard let old = FileStatus(following: sourceParent.path.pushing(link.beside)) else { return nil }
            let new = FileStatus(following: destinationParent.path.pushing(link.beside))
            guard new?.identity != old.identity else { return nil }
            return "\(PrintablePath(link.path)) is a link to \(PrintablePath(link.target)), outside of the directory: "
                + "from the new place it leads \(new == nil ? "nowhere" : "to another file")"
        }
    }

    /// Throws unless this process may change the names in both parents. Otherwise that would show after the copy.
    func checkWritable() throws {
        if let parent = [sourceParent, destinationParent].first(where: { $0.isImmutable(.currentDirectory) }) {
            throw RelocationFailure.app(
                .notPermitted, "immutable",
                "\(PrintablePath(parent.path)) is immutable or append-only: no name in it changes",
                "make it an ordinary directory first: chattr -ia \(parent.path.shellWord)")
        }
        for parent in [sourceParent, destinationParent] where try !parent.mayWrite(.currentDirectory) {
            throw RelocationFailure.app(
                .notPermitted, "not_writable", "\(PrintablePath(parent.path)) can't be written to",
                "run this as a user who may write there: ls -ld \(parent.path.shellWord)")
        }
        guard !sourceParent.isImmutable(sourceName) else {
            throw RelocationFailure.app(
                .notPermitted, "immutable", "\(PrintablePath(source)) is immutable: nobody can rename it",
                "make it an ordinary directory first: chattr -ia \(source.shellWord)")
        }
    }

    /// Throws unless this process may give the directory another parent, for which it must be able to write to it, too
    /// (`EACCES` of rename(2)). A copy has the directory's mode, and comes from the place where it was made.
    func checkRenamable(asCopy isCopy: Bool = false) throws {
        let isNear = try !isCopy && sourceParent.status().identity == destinationParent.status().identity
        guard !isNear, try !sourceParent.mayWrite(sourceName) else { return }
        throw RelocationFailure.app(
            .notPermitted, "not_writable",
            "\(PrintablePath(source)) can't be written to, as a move to another directory needs",
            "let its owner write to it, and take that back afterwards: chmod u+w \(source.shellWord)")
    }

    /// Throws `RelocationFailure` if the directory is a Flatpak app's, whose sandbox would not reach the new place, or
    /// if root moves it to where its owner, the owner of a store in it, or a service that uses it can't use it.
    func checkAccess(_ root: Directory, _ survey: AppSurvey, _ request: AppMoveRequest) throws {
        try FlatpakAccess.check(from: source, to: destination, request.managers)
        guard geteuid() == 0 else { return }
        let owner = try root.status().owner
        for user in survey.owners.union([owner]).subtracting([0]).sorted() {
            let access = try OwnerAccess(of: user, to: destinationParent)
            if let obstacle = access.obstacle(from: source, reaching: destinationName) {
                let subject = user == owner ? "the directory" : "a store in the directory"
                throw RelocationFailure.lockedOut(obstacle, subject)
            }
        }
        try ServiceUnit.check(owner: owner, from: source, to: destination, leavesLink: true, root: request.unitRoot)
    }

    private static func look(_ name: FilePath.Component, in parent: Directory) throws -> AppPlace {
        guard let status = try parent.status(name) else { return .nothing }
        return switch status.kind {
        case .directory: .directory(status.identity)
        case .symbolicLink: .link(to: FileStatus(following: parent.path.appending(name))?.identity)
        case .regular, .other: .other
        }
    }
}
