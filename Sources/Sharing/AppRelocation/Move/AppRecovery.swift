import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage

/// Ends a move: finishes it if its commit point was passed, else puts everything back. It needs only the journal and
/// the state of the disk, and each step may have been done before. A run that isn't interrupted ends the same way.
struct AppRecovery {
    enum Result: Equatable {
        case finished(AppMoveSummary.Method, notes: [String])
        case undone(notes: [String])
    }

    let journal: AppMoveJournal
    let places: AppPlaces
    let container: GroupContainer
    let step: (AppMoveStep) throws -> Void
    /// True if this run has made the copy: its files need no proof, since it watched the directory from the first one
    /// on, and what is gone or changed there was removed or changed by its programs meanwhile.
    var isOwnCopy = false

    init(
        _ journal: AppMoveJournal, _ places: AppPlaces, _ container: GroupContainer,
        step: @escaping (AppMoveStep) throws -> Void = { _ in }
    ) {
        (self.journal, self.places, self.container, self.step) = (journal, places, container, step)
    }

    private var move: AppMove { journal.move }
    /// The old directory's name, or the link's, while the two are exchanged.
    private var hidden: FilePath.Component { move.id.hiddenName() }
    /// The directory beside the destination that holds the copy and its manifest.
    private var staging: FilePath.Component { move.id.hiddenName(".staged") }

    /// True if a partial copy may exist that another run can go on from.
    var hasCopy: Bool { journal.state != .renaming }

    /// True if the commit point was passed.
    func willFinish() throws -> Bool {
        switch journal.state {
        case .renaming: move.isFile(move.root, try arrived())
        case .committing(let copy): move.isFile(copy, try arrived())
        case .copying, .withdrawn: false
        }
    }

    /// Ends the move. With `keepingCopy`, a move that is undone keeps its journal and partial copy for another run.
    func end(keepingCopy: Bool) throws -> Result {
        switch journal.state {
        case .renaming: return try endRename()
        case .committing(let copy) where try willFinish(): return try finishCopy(copy)
        case .copying, .withdrawn, .committing: break
        }
        try giveNameBack()
        if keepingCopy {
            try checkSource()
            try container.write(AppMoveJournal(move, .copying))
            return .undone(notes: [])
        }
        let note = try removeCopy()
        if move.rewrites != nil { try container.removeAppReceipt(move.id) }
        try removeJournal()
        return .undone(notes: [note].compactMap { $0 })
    }

    private func arrived() throws -> FileStatus? { try places.destinationParent.status(places.destinationName) }

    private func endRename() throws -> Result {
        if try willFinish() {
            try places.destinationParent.synchronize()
            try places.sourceParent.synchronize()
            try writeReceipt(.rename, published: move.root)
            try removeLinkOnReturn()
            try removeJournal()
            return .finished(.rename, notes: try notesOfOldPlace())
        }
        // Another link there would be somebody else's.
        if !move.replacesLink, try arrived()?.kind == .symbolicLink,
            try places.destinationParent.linkTarget(places.destinationName) == places.destination
        {
            try places.destinationParent.removeFile(places.destinationName)
            try places.destinationParent.synchronize()
        }
        try removeJournal()
        return .undone(notes: [])
    }

    // MARK: - A copy

    /// Gives the old directory its name back, if it has lost it, and removes the link that stood for it. Anything else
    /// there may be what its program has begun anew: it stays, and the move waits for somebody to decide.
    private func giveNameBack() throws {
        let parent = places.sourceParent
        if move.isFile(move.root, try parent.status(hidden)) {
            if try parent.status(places.sourceName) == nil {
                try parent.rename(hidden, to: places.sourceName, in: parent, .refuse)
            } else {
                guard try isOwnLink(places.sourceName) else { throw try oldPlaceTaken() }
                try parent.rename(hidden, to: places.sourceName, in: parent, .exchange)
                // Another file took the link's place just now.
                guard try isOwnLink(hidden) else {
                    try parent.rename(hidden, to: places.sourceName, in: parent, .exchange)
                    throw try oldPlaceTaken()
                }
            }
        }
        if try isOwnLink(hidden) { try parent.removeFile(hidden) }
        try parent.synchronize()
    }

    /// True for a link in the old directory's parent that leads where this move's does.
    private func isOwnLink(_ name: FilePath.Component) throws -> Bool {
        guard try places.sourceParent.status(name)?.kind == .symbolicLink else { return false }
        return [places.destination, move.destination.path].contains(try places.sourceParent.linkTarget(name))
    }

    private func oldPlaceTaken() throws -> RelocationFailure {
        let present = try AppObstacle(places.sourceName, in: places.sourceParent)
        return .app(
            .conflict, "old_place_taken",
            "\(PrintablePath(places.source)) is \(present.words), and not the link that stood for the directory while it "
                + "was moved, which is now \(PrintablePath(places.sourceParent.path.appending(hidden)))",
            "end its program and move that away, then run this again: mv \(places.source.shellWord) "
                + places.source.appending(suffix: ".new").shellWord)
    }

    /// Removes the copy of a move that is undone, while the directory that it was made from has its name, except for
    /// what that doesn't have any more. Returns a sentence about the rest; nil if there is none.
    private func removeCopy() throws -> String? {
        let parent = places.destinationParent
        guard try parent.status(staging) != nil else { return nil }
        try checkSource()
        let isProofNeeded = !isOwnCopy || !move.isFile(move.root, FileStatus(following: places.source))
        if isProofNeeded, let note = try removeProved(parent.directory(staging)) { return note }
        try parent.removeTree(staging)
        return nil
    }

    /// Throws if there is a copy, and the directory that was being moved is gone.
    private func checkSource() throws {
        // Another move may have left a link to the directory.
        guard try places.destinationParent.status(staging) != nil,
            !isRootOrSuccessor(FileStatus(following: places.source))
        else { return }
        let copy = places.destinationParent.path.appending(staging)
        let present = try AppObstacle(places.sourceName, in: places.sourceParent)
        throw RelocationFailure.app(
            .conflict, "source_gone",
            "\(PrintablePath(places.source)) is \(present.words), and not the directory that was being moved: "
                + "\(PrintablePath(copy)) may be its only copy",
            "move the copy aside, then run this again: mv \(copy.shellWord) "
                + places.source.appending(suffix: ".copied").shellWord)
    }

    /// True for the directory that was being moved, and for the copy of it that another move has published meanwhile,
    /// to which the link at the old place leads.
    private func isRootOrSuccessor(_ found: FileStatus?) -> Bool {
        if move.isFile(move.root, found) { return true }
        guard let target = try? places.sourceParent.linkTarget(places.sourceName),
            let group = try? Directory(resolving: target.removingLastComponent()),
            let receipts = try? GroupContainer(directory: group).appReceipts(from: places.source)
        else { return false }
        return receipts.contains { $0.move.root == move.root && $0.move.isFile($0.published, found) }
    }

    private func removeProved(_ staged: Directory) throws -> String? {
        let name = AppTransfer.copyName
        guard try staged.status(name)?.kind == .directory else { return nil }
        let source = try Directory(resolving: places.source)
        guard try isRootOrSuccessor(source.status()) else {
            return "the copy is still \(PrintablePath(staged.path)): \(PrintablePath(places.source)) was replaced"
        }
        let manifest = try AppManifest(in: staged, isNewBoot: move.boot != ProcessIdentity.current.boot)
        let isRewritten = move.rewrites != nil || move.undoes != nil
        let kept = try CopyRemoval(manifest: manifest, isRewritten: isRewritten).run(name, in: staged, of: source)
        guard let note = kept.note(in: staged.path.appending(name)) else { return nil }
        try staged.removeFile(AppManifest.name)
        return note
    }

    private func finishCopy(_ copy: FileIdentity) throws -> Result {
        try places.destinationParent.synchronize()
        try places.sourceParent.synchronize()
        try writeReceipt(.copy, published: copy)
        try step(.receipt)
        var notes: [String] = []
        notes += try removeOld(hidden, in: places.sourceParent, copy, isOfMove: true)
        // What the move that is taken back could not remove.
        if let left = move.undoes?.hiddenName() { notes += try removeOld(left, in: places.destinationParent, copy) }
        try removeLinkOnReturn()
        try step(.retired)
        try places.destinationParent.removeTree(staging)
        try removeJournal()
        return .finished(.copy, notes: try notes + notesOfOldPlace())
    }

    /// Removes an old directory, except for what can't be proved to be at the new place. Returns sentences about the
    /// rest, and about what is left out.
    ///
    /// - Parameter isOfMove: True if the copy was made of this directory: what SQLite makes again needs no proof.
    private func removeOld(
        _ name: FilePath.Component, in parent: Directory, _ copied: FileIdentity, isOfMove: Bool = false
    ) throws -> [String] {
        guard try parent.status(name)?.kind == .directory else { return [] }
        let rest = PrintablePath(parent.path.appending(name))
        let published = try places.destinationParent.directory(places.destinationName)
        guard move.isFile(copied, try published.status()) else {
            return ["the old directory is still \(rest): \(PrintablePath(places.destination)) was replaced"]
        }
        guard
            let staged = try places.destinationParent.status(staging)?.kind == .directory
                ? places.destinationParent.directory(staging) : nil
        else { return ["the old directory is still \(rest): the record of what was copied is missing"] }
        let manifest = try AppManifest(in: staged, isNewBoot: false)
        let old = try parent.directory(name)
        let copy = TreeCopy(old, to: staged, manifest: manifest)
        // Each file in the manifest may be a store: SQLite makes the files beside it again.
        if isOfMove { (copy.quiescent, copy.leave) = (Set(manifest.entries.keys), move.leavePatterns) }
        let removal = TreeRemoval(
            manifest: manifest, copy: copy, published: published, didRemove: { try step(.removedFile) })
        do {
            let result = try removal.run(name, in: parent)
            return [AppRecipe.note(leftOut: result.leftOut), result.kept.note(in: parent.path.appending(name))]
                .compactMap { $0 }
        } catch let error as SystemError {
            return ["the old directory could not be removed and is now \(rest): \(error)"]
        }
    }

    // MARK: - Either

    /// Returns a sentence about what lies at the old place instead of the link.
    private func notesOfOldPlace() throws -> [String] {
        guard move.leavesLink, try !isOwnLink(places.sourceName) else { return [] }
        let (from, to) = (places.source, places.destination)
        let present = try AppObstacle(places.sourceName, in: places.sourceParent)
        let moved = present.isAbsent ? "" : "mv \(from.shellWord) \(from.appending(suffix: ".new").shellWord) && "
        return [
            "\(PrintablePath(from)) is \(present.words), and not the link that the move left: a program that uses that "
                + "name doesn't find what was moved (\(moved)ln -s \(to.shellWord) \(from.shellWord))"
        ]
    }

    /// Removes the journal, and then the note that leads to it, unless it is also needed for what was stopped.
    private func removeJournal() throws {
        try container.removeAppJournal()
        guard try container.stoppedPrograms() == nil else { return }
        try AppUndoNote.remove(move, in: places.noteParent(of: move))
    }

    private func writeReceipt(_ method: AppMoveReceipt.Method, published: FileIdentity) throws {
        if let undone = move.undoes {
            try passOn(undone, published)
            return try container.endAppReceipt(undone)
        }
        try container.begin(AppMoveReceipt(move, at: Date(), method: method, published: published))
    }

    /// Tells the receipt of an earlier move, which brought the directory to where it now returns, its new identity.
    private func passOn(_ undone: TransferIdentifier, _ published: FileIdentity) throws {
        guard let receipt = try container.appReceipts(of: places.source).first(where: { $0.move.id == undone }),
            receipt.move.root != published
        else { return }
        let group = GroupContainer(directory: places.destinationParent)
        for var earlier in try group.appReceipts(of: places.destination)
        where earlier.published.inode == receipt.move.root.inode {
            (earlier.published, earlier.move.boot) = (published, move.boot)
            try group.write(earlier)
        }
    }

    /// Removes the link at the place that a directory has left on its way back.
    private func removeLinkOnReturn() throws {
        guard !move.leavesLink, try places.sourceParent.status(places.sourceName)?.kind == .symbolicLink else { return }
        try places.sourceParent.removeFile(places.sourceName)
        try places.sourceParent.synchronize()
    }
}

extension AppMove {
    /// The files that a copy leaves out.
    var leavePatterns: [PathPattern] { leave?.compactMap(PathPattern.init) ?? [] }
}
