import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage

// What an undo has to find: the move that it takes back, and the link at the old place.
extension AppRelocation {
    /// Returns the two places of the move that an undo with one path only means: the directory's old or new path. Nil
    /// if a directory is there, or nothing, and no record tells of a move. Throws `RelocationFailure`, which says what
    /// lies there.
    ///
    /// - Parameter groups: Directories whose records may tell where a directory is whose link was replaced.
    package static func recorded(
        _ path: FilePath, groups: () -> [FilePath] = { [] }
    ) throws -> (source: FilePath, destination: FilePath)? {
        guard let name = path.lastComponent, let parent = try? Directory(resolving: path.removingLastComponent()) else {
            throw RelocationFailure.app(
                .unusablePlace, "no_source", "there is no directory \(PrintablePath(path))",
                "name the program's old or new directory")
        }
        let place = parent.path.appending(name)
        let group = GroupContainer(directory: parent)
        // A move that was interrupted, or an undo after the directory had its old name back.
        if let back = AppUndoNote.find(for: place, in: parent) { return (place, back.source.path) }
        if let move = AppUndoNote.find(from: place, in: parent) { return (place, move.destination.path) }
        if let move = try? group.appJournal()?.move {
            if move.undoes != nil, move.source.path == place { return (move.destination.path, place) }
            // A copy that was interrupted has left nothing at the new place yet.
            if move.undoes == nil, move.destination.path == place { return (move.source.path, place) }
        }
        if let stopped = try? group.stoppedPrograms() {
            let (source, destination) = (stopped.source.path, stopped.destination.path)
            if [source, destination].contains(place) {
                return try isWayBack(stopped, in: group) ? (destination, source) : (source, destination)
            }
        }
        let obstacle = try AppObstacle(name, in: parent)
        if let link = obstacle.link { return (place, link) }
        if let receipt = try group.appReceipts(of: place).last { return (receipt.move.source.path, place) }
        if obstacle.isDirectory, let away = movedAway(from: place, [parent.path] + groups()) { return (place, away) }
        // The new place of a move that was undone before has nothing, either.
        if [.directory, nil].contains(try parent.status(name)?.kind) { return nil }
        throw RelocationFailure.app(
            .unusablePlace, "no_receipt",
            "\(PrintablePath(path)) is \(obstacle.words): neither the link that a move leaves, nor a directory that a move "
                + "has brought there", "name both the old and the new place")
    }

    /// True if programs were stopped for the way back of a move, and not for the move: the record is where the move
    /// leads to. Within one directory, the move's receipt is there until its way back ends, and then nothing is where
    /// that began.
    private static func isWayBack(_ stopped: StoppedPrograms, in group: GroupContainer) throws -> Bool {
        let (source, destination) = (stopped.source.path, stopped.destination.path)
        let here = group.directory.path
        guard source.removingLastComponent() == here, let name = source.lastComponent else { return false }
        guard destination.removingLastComponent() == here else { return true }
        return try group.directory.status(name) == nil
            || group.appReceipts(of: source).contains { $0.move.source.path == destination }
    }

    /// Returns the stores in a directory, by their headers. Throws `SystemError` and `RelocationFailure`.
    package static func stores(in place: FilePath) throws -> [FilePath] {
        try AppSurvey(Directory(resolving: place), .files).stores
    }

    /// Returns where the directory is that was moved from a place, by the records of the groups; nil if none tells.
    private static func movedAway(from place: FilePath, _ groups: [FilePath]) -> FilePath? {
        for group in groups {
            guard let group = try? Directory(resolving: group),
                let receipts = try? GroupContainer(directory: group).appReceipts(from: place)
            else { continue }
            let found = receipts.last { $0.move.isFile($0.published, FileStatus(following: $0.move.destination.path)) }
            if let found { return found.move.destination.path }
        }
        return nil
    }

    /// True if the agent whose configuration has the move would repeat one that a person took back.
    func isTakenBack(_ places: AppPlaces, _ container: GroupContainer) throws -> Bool {
        try request.isConfigured && container.isAppMoveUndone(from: places.source)
    }

    /// Marks the receipt of a move that a person has made: an agent's configuration has it too, and doesn't repeat it
    /// once it is taken back. Best effort: another user's records may not be writable.
    func markConfigured(_ places: AppPlaces, _ container: GroupContainer) {
        func unmarked() throws -> AppMoveReceipt? {
            try container.appReceipts(of: places.destination)
                .last { $0.move.source.path == places.source && $0.move.isConfigured != true }
        }
        guard request.isConfigured, (try? unmarked()) != nil else { return }
        try? underLock(of: container) {
            guard var receipt = try unmarked() else { return }
            receipt.move.isConfigured = true
            try container.write(receipt)
        }
    }

    /// Removes what a move that was killed before it had recorded anything may have left beside a directory.
    package static func removeUnfinishedNotes(beside path: FilePath) {
        guard let parent = try? Directory(resolving: path.removingLastComponent()) else { return }
        AppUndoNote.removeUnfinished(in: parent)
    }

    /// Returns the receipt of the move between two places; nil if there is none, and the directory is at the first one.
    /// Throws `RelocationFailure`, which says what lies there, if neither holds.
    func receipt(_ container: GroupContainer, _ places: AppPlaces) throws -> AppMoveReceipt? {
        let receipts = try container.appReceipts(of: places.destination)
        let (from, to) = (PrintablePath(places.source), PrintablePath(places.destination))
        guard let receipt = receipts.last(where: { $0.move.source.path == places.source }) else {
            if try places.sourceParent.status(places.sourceName)?.kind == .directory,
                try places.destinationParent.status(places.destinationName) == nil
            {
                return nil
            }
            let present = try AppObstacle(places.sourceName, in: places.sourceParent)
            throw RelocationFailure.app(
                .unusablePlace, "no_receipt", "\(from) is \(present.words), and no move of it to \(to) is recorded",
                present.link.map { "if that is the program's old place: groupstore move-app --undo \($0.shellWord)" }
                    ?? "name the two places as in the move")
        }
        let present = try places.destinationParent.status(places.destinationName)
        if receipt.move.isFile(receipt.published, present) { return receipt }
        let obstacle = try AppObstacle(places.destinationName, in: places.destinationParent)
        if let target = obstacle.link {
            throw RelocationFailure.app(
                .conflict, "moved_on", "\(to), where \(from) was moved to, is now a link to \(PrintablePath(target))",
                "undo the later move first: groupstore move-app --undo \(places.destination.shellWord) && "
                    + "groupstore move-app --undo \(places.source.shellWord)")
        }
        guard present != nil else {
            throw RelocationFailure.app(
                .unusablePlace, "no_source", "\(to), where \(from) was moved to, is gone",
                "if it was moved on by other means, move it back there first")
        }
        throw RelocationFailure.app(
            .conflict, "replaced",
            "\(to) is \(obstacle.words), and not the directory that was moved there from \(from)", "move it by hand")
    }
}

extension AppPlan.Refusal {
    /// The failure of a move back to a place where the link is no more.
    static func replacedLink(_ place: FilePath, in parent: Directory) throws -> RelocationFailure {
        guard let name = place.lastComponent else { return AppPlan.Refusal.taken.failure(place, place) }
        return .app(
            .conflict, "destination_taken",
            "\(PrintablePath(place)) is \(try AppObstacle(name, in: parent).words), and not the link that the move left",
            "move it away: mv \(place.shellWord) \(place.appending(suffix: ".old").shellWord)")
    }
}

/// What lies at a place, in words for a message.
struct AppObstacle {
    let words: String
    /// The absolute path that a symbolic link there leads to.
    let link: FilePath?
    var isDirectory = false
    var isAbsent = false

    init(_ name: FilePath.Component, in parent: Directory) throws {
        switch try parent.status(name)?.kind {
        case nil: (words, link, isAbsent) = ("absent", nil, true)
        case .directory: (words, link, isDirectory) = ("a directory", nil, true)
        case .symbolicLink:
            let target = parent.path.pushing(try parent.linkTarget(name)).lexicallyNormalized()
            (words, link) = ("a link to \(PrintablePath(target))", target)
        case .regular, .other: (words, link) = ("a file", nil)
        }
    }
}
