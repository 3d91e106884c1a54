import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage

/// Moves a program's whole directory: request → plan → run. At every instant exactly one of two places is the
/// directory, and the disk says which.
///
/// On one file system, the directory and a symbolic link exchange their names (`AppRename`). Across file systems, it is
/// copied while its stores are locked, loses its name, is compared with the copy, and the copy gets the new name
/// (`AppTransfer`). Either has one commit point. `AppRecovery` ends what a kill has interrupted.
package struct AppRelocation {
    let request: AppMoveRequest
    let isCancelled: @Sendable () -> Bool
    let report: (AppMoveEvent) -> Void
    /// Called at each step. A test that throws `Abandonment` from it ends the move as a kill does.
    let step: (AppMoveStep) throws -> Void

    /// An error after which nothing is put back, as after a kill. Only tests throw it.
    package struct Abandonment: Error {
        package init() {}
    }

    package init(
        _ request: AppMoveRequest, isCancelled: @escaping @Sendable () -> Bool = { false },
        report: @escaping (AppMoveEvent) -> Void = { _ in }, step: @escaping (AppMoveStep) throws -> Void = { _ in }
    ) {
        (self.request, self.isCancelled, self.report, self.step) = (request, isCancelled, report, step)
    }

    // MARK: - Run

    /// Moves the directory. Throws only `RelocationFailure`; both places are then as they were.
    package func run() throws(RelocationFailure) -> AppMoveSummary {
        try failing {
            let places = try AppPlaces(source: request.source, destination: request.destination)
            let container = GroupContainer(directory: places.destinationParent)
            if let finished = try finishUndo(of: places) { return finished }
            // What is not to be moved leaves no trace: no lock, and no directory of records.
            if try container.appJournal() == nil, try container.stoppedPrograms() == nil {
                switch AppPlan(try places.facts(isUndo: false)) {
                case .alreadyMoved:
                    // A move that was killed at its end has left it.
                    if AppUndoNote.find(from: places.source, in: places.sourceParent) != nil {
                        try? underLock(of: container, within: .zero) {
                            try removeNotes(of: places.source, in: places.sourceParent, container)
                        }
                    }
                    markConfigured(places, container)
                    return summary(.alreadyMoved, places)
                case .refuse(let refusal): throw try failure(refusal, places, isUndo: false)
                case .move:
                    if try isTakenBack(places, container) { return summary(.undone, places) }
                    try places.checkWritable()
                }
            }
            let result = try underLock(of: container) {
                try startingAgain(container) {
                    if let finished = try recover(container, continuing: places) { return finished }
                    try startStopped(before: places, container)
                    try removeNotes(of: places.source, in: places.sourceParent, container)
                    try removeEndedNotes(of: places, container)
                    // A killed undo of it may just have been finished.
                    if try isTakenBack(places, container) { return summary(.undone, places) }
                    return try move(places, container, undoing: nil)
                }
            }
            // Another command may have moved it meanwhile.
            markConfigured(places, container)
            return result
        }
    }

    /// Moves the directory back, and removes the link at its old place. Does nothing if the directory is there and no
    /// move is recorded: that was undone before. Throws only `RelocationFailure`.
    package func undo() throws(RelocationFailure) -> AppMoveSummary {
        try failing {
            let forward = try AppPlaces(source: request.source, destination: request.destination)
            let container = GroupContainer(directory: forward.destinationParent)
            let back = try AppPlaces(source: forward.destination, destination: forward.source)
            // Without records there is nothing to undo, and none are made for that.
            if try container.existingBookkeeping() == nil, !hasNote(of: back) {
                _ = try receipt(container, forward)
                return summary(.nothingToUndo, back)
            }
            return try underLock(of: container) {
                try startingAgain(container) {
                    if let finished = try recover(container, continuing: back) { return finished }
                    try startStopped(before: back, container)
                    try removeNotes(of: back.destination, in: back.destinationParent, container)
                    if try endNote(of: back, container) { return summary(.undone, back) }
                    guard let receipt = try receipt(container, forward) else { return summary(.nothingToUndo, back) }
                    return try move(back, container, undoing: receipt.move.id)
                }
            }
        }
    }

    /// Looks at both places and returns what a move would do. Changes nothing.
    package func dryRun() throws(RelocationFailure) -> AppPreview {
        try failing { try AppPreview(self) }
    }

    /// Looks at both places and returns what an undo would do. Changes nothing.
    package func dryRunOfUndo() throws(RelocationFailure) -> AppPreview {
        try failing { try AppPreview(undoing: self) }
    }

    private func move(
        _ places: AppPlaces, _ container: GroupContainer, undoing: TransferIdentifier?
    ) throws -> AppMoveSummary {
        switch AppPlan(try places.facts(isUndo: undoing != nil)) {
        case .alreadyMoved: return summary(.alreadyMoved, places)
        case .refuse(let refusal): throw try failure(refusal, places, isUndo: undoing != nil)
        case .move(let root, let replacesLink):
            var move = AppMove(
                id: TransferIdentifier(), source: places.source, destination: places.destination, root: root,
                leavesLink: undoing == nil, replacesLink: replacesLink, undoes: undoing)
            move.rewrites = request.rewrites.isEmpty || undoing != nil ? nil : request.rewrites
            if undoing == nil, let leave = request.recipe?.leave, !leave.isEmpty { move.leave = leave.map(\.text) }
            if undoing == nil, request.isConfigured { move.isConfigured = true }
            try places.checkWritable()
            if undoing == nil {
                let directory = try places.sourceParent.directory(places.sourceName)
                // Without a recipe, a directory of very many files is moved for its owner's sake alone.
                let survey = try AppSurvey(directory, request.recipe == nil ? .names : .files)
                try survey.checkLogs()
                try request.recipe?.check(survey, of: places.source)
                try places.checkAccess(directory, survey, request)
            }
            try step(.planned)
            return try perform(move, places, container, resuming: false)
        }
    }

    /// Returns the failure of a refusal, whose remedy also runs for an immutable file.
    func failure(_ refusal: AppPlan.Refusal, _ places: AppPlaces, isUndo: Bool) throws -> RelocationFailure {
        var failure =
            isUndo && refusal == .taken
            ? try AppPlan.Refusal.replacedLink(places.destination, in: places.destinationParent)
            : refusal.failure(places.source, places.destination)
        if refusal == .taken, places.destinationParent.isImmutable(places.destinationName) {
            failure.message += ", and immutable"
            failure.remedy = failure.remedy.replacing(
                ": mv ", with: ": chattr -ia \(places.destination.shellWord) && mv ", maxReplacements: 1)
        }
        return failure
    }

    private func perform(
        _ move: AppMove, _ places: AppPlaces, _ container: GroupContainer, resuming: Bool
    ) throws -> AppMoveSummary {
        // Paths are changed in a copy.
        let isRewritten = try AppRewriting(move, container) != nil
        if request.stopsHolders, !resuming { try checkCopy(move, places, isRewritten: isRewritten) }
        try stopHolders(move, places, container)
        do {
            if !resuming, !isRewritten, let summary = try AppRename(self, move, places, container).run() {
                return summary
            }
            return try AppTransfer(self, move, places, container).run()
        } catch let error as Abandonment {
            throw error
        } catch {
            let error = try overtaken(error, places) ?? error
            // Nothing is undone past the commit point.
            guard let journal = try container.appJournal() else { throw error }
            var recovery = AppRecovery(journal, places, container)
            recovery.isOwnCopy = !resuming
            let hasArrived = (try? recovery.willFinish()) == true
            do {
                switch try recovery.end(keepingCopy: false) {
                case .undone(let notes), .finished(_, let notes): notes.forEach { report(.note($0)) }
                }
            } catch let second {
                // The step fails again: what has come about is said all the same.
                throw hasArrived ? Self.unfinished(places, error) : second
            }
            throw hasArrived ? Self.unfinished(places, error) : error
        }
    }

    /// The failure of a step after the commit point.
    private static func unfinished(_ places: AppPlaces, _ error: any Error) -> RelocationFailure {
        .app(
            .failed, "unfinished",
            "\(PrintablePath(places.destination)) has its new place, but a later step failed: \(error)",
            "run this again")
    }

    /// Returns the refusal of a directory that another move has taken to another place meanwhile.
    private func overtaken(_ error: any Error, _ places: AppPlaces) throws -> RelocationFailure? {
        guard (error as? SystemError)?.errno == .notDirectory,
            try places.sourceParent.status(places.sourceName)?.kind == .symbolicLink
        else { return nil }
        return AppPlan.Refusal.sourceIsLink.failure(places.source, places.destination)
    }

    /// Throws what would keep a copy from being made, before a program is stopped for it.
    private func checkCopy(_ move: AppMove, _ places: AppPlaces, isRewritten: Bool) throws {
        let isNear = try places.destinationParent.status().identity.device == move.root.device
        guard isRewritten || !isNear else { return }
        let directory = try places.sourceParent.directory(places.sourceName)
        let survey = try AppSurvey(directory, .files, leaving: move.leavePatterns)
        try survey.checkCopy()
        try AppTransfer.checkSpace(survey, places)
    }

    // MARK: - Recovery

    /// Ends an interrupted move. Returns its summary if it was the move to `places` and is done now.
    private func recover(
        _ container: GroupContainer, continuing places: AppPlaces
    ) throws -> AppMoveSummary? {
        guard let journal = try container.appJournal() else { return nil }
        let former = try AppPlaces(journal, in: container)
        let isSame = former.source == places.source && former.destination == places.destination
        let isRequested = isSame && isRequested(journal.move)
        let recovery = AppRecovery(journal, former, container, step: step)
        let (from, to) = (PrintablePath(former.source), PrintablePath(former.destination))
        switch try recovery.end(keepingCopy: isRequested) {
        case .finished(let method, let notes):
            report(.recovered("finished the interrupted move of \(from) to \(to)"))
            guard isSame else {
                notes.forEach { report(.note($0)) }
                return nil
            }
            var summary = summary(journal.move.undoes == nil ? .moved : .undone, former)
            (summary.method, summary.notes, summary.left) = (method, notes, journal.left ?? [])
            if !isRequested {
                summary.notes.append("the move was decided already, with the options that it was begun with")
            }
            return summary
        case .undone(let notes):
            report(.recovered("the move of \(from) to \(to) was interrupted before it was decided"))
            notes.forEach { report(.note($0)) }
            if journal.move.undoes == nil, former.source == places.destination, former.destination == places.source {
                if journal.move.isConfigured == true { try container.recordUndone(journal.move) }
                return summary(.undone, places)
            }
            guard isRequested, recovery.hasCopy else { return nil }
            // The files that were copied and verified need not be copied again.
            return try perform(journal.move, former, container, resuming: true)
        }
    }

    /// True if a recorded move, or an undo, does what this request asks for.
    private func isRequested(_ move: AppMove) -> Bool {
        guard move.undoes == nil else { return true }
        let leave = request.recipe?.leave.map(\.text) ?? []
        return move.rewrites ?? [] == request.rewrites && move.leave ?? [] == leave
    }

    /// Ends an interrupted undo, or an interrupted move of the directory to another place, whose journal isn't in the
    /// destination's group. Returns its summary if that was asked for.
    private func finishUndo(of places: AppPlaces) throws -> AppMoveSummary? {
        var groups = [places.sourceParent]
        let back = AppUndoNote.find(for: places.source, in: places.sourceParent)?.source.path.removingLastComponent()
        if let back { groups.append(try Directory(back)) }
        let noted = AppUndoNote.find(from: places.source, in: places.sourceParent)?.destination.path
        if let parent = noted?.removingLastComponent(), let group = try? Directory(parent) { groups.append(group) }
        for group in groups where group.path != places.destinationParent.path {
            let container = GroupContainer(directory: group)
            // A killed move of this directory to another place.
            if try container.appJournal() == nil {
                if let stopped = try? container.stoppedPrograms(),
                    [stopped.source.path, stopped.destination.path].contains(places.source)
                {
                    try underLock(of: container) { try startStopped(container) }
                } else if [noted?.removingLastComponent(), back].contains(group.path) {
                    // Whoever has the lock may be about to write the record.
                    try? underLock(of: container, within: .zero) {
                        try removeNotes(of: places.source, in: places.sourceParent, container)
                        try removeEndedNotes(of: places, container)
                    }
                }
            }
            guard let move = try? container.appJournal()?.move,
                move.source.path == places.source || move.undoes != nil && move.destination.path == places.source
            else { continue }
            let finished = try underLock(of: container) {
                try startingAgain(container) { try recover(container, continuing: places) }
            }
            if let finished { return finished }
        }
        try startStopped(behindLinkOf: places)
        return nil
    }

    private func hasNote(of back: AppPlaces) -> Bool {
        AppUndoNote.find(for: back.destination, in: back.destinationParent) != nil
            || AppUndoNote.find(from: back.destination, in: back.destinationParent) != nil
    }

    /// Removes the note of an undo that was interrupted after its end. Returns false if there is none.
    private func endNote(of back: AppPlaces, _ container: GroupContainer) throws -> Bool {
        guard let move = AppUndoNote.find(for: back.destination, in: back.destinationParent),
            move.source.path == back.source
        else { return false }
        // What was stopped is found by the note.
        if try container.stoppedPrograms() == nil { try AppUndoNote.remove(move, in: back.destinationParent) }
        return try back.destinationParent.status(back.destinationName)?.kind == .directory
            && back.sourceParent.status(back.sourceName) == nil
    }

    // MARK: - Waiting

    func underLock<Result>(
        of container: GroupContainer, within limit: Duration? = nil, _ body: () throws -> Result
    ) throws -> Result {
        let deadline = Deadline(after: limit ?? request.deadline)
        var backoff = Backoff(first: .milliseconds(1), longest: .milliseconds(20))
        while true {
            if let lock = try container.lock() {
                return try withExtendedLifetime(lock) { lock in
                    // A full disk is reported by what needs the disk: the note only names this process to others.
                    let isOwn = (try? container.sign(lock)) ?? true
                    defer { if isOwn { container.removeUnusedRecords() } }
                    return try body()
                }
            }
            if isCancelled() { throw RelocationFailure.cancelled(request.source) }
            guard !deadline.hasPassed else {
                throw RelocationFailure.app(
                    .busy, "locked",
                    "another relocation is in progress in \(PrintablePath(container.directory.path)) "
                        + "(process \(container.lockHolder()))", "try again when it is done")
            }
            pause(backoff.next())
        }
    }

    /// Calls `body` until it finds the directory closed. Throws a failure that names the holders at the deadline.
    func awaitClosed<Result>(_ source: FilePath, _ body: () throws -> Result) throws -> Result {
        let deadline = Deadline(after: request.deadline)
        var backoff = Backoff(first: .milliseconds(20), longest: .milliseconds(160))
        var reported: [FileHolder]?
        var changes = 0
        while true {
            let failure: RelocationFailure
            do {
                return try body()
            } catch let held as AppHeld {
                failure = .held(source, held.holders, request)
                if reported != held.holders { report(.waiting(for: held.holders)) }
                reported = held.holders
            } catch let held as AppFileHeld {
                failure = .held(held.path, FileHolder.of(held.identity), request)
            } catch let changed as AppChanged {
                changes += 1
                failure = .app(
                    .busy, "changing", "\(PrintablePath(changed.path)) keeps changing",
                    "end the programs that write to it, then run this again")
            }
            if isCancelled() { throw RelocationFailure.cancelled(source) }
            // A long copy is made equal to a changed directory in far less time than it took.
            guard !deadline.hasPassed || (failure.code == "changing" && changes < Self.leastAttempts) else {
                throw failure
            }
            pause(backoff.next())
        }
    }

    /// A directory that changes is looked at so often, whatever the deadline.
    private static let leastAttempts = 3

    func summary(_ outcome: AppMoveSummary.Outcome, _ places: AppPlaces) -> AppMoveSummary {
        AppMoveSummary(outcome: outcome, from: places.source, to: places.destination)
    }

    private func failing<Result>(_ body: () throws -> Result) throws(RelocationFailure) -> Result {
        try Self.failing(request, body)
    }

    static func failing<Result>(
        _ request: AppMoveRequest, _ body: () throws -> Result
    ) throws(RelocationFailure) -> Result {
        do {
            return try body()
        } catch {
            throw RelocationFailure(error, RelocationRequest(source: request.source, group: request.destination))
        }
    }
}

/// Programs have files of the directory open.
struct AppHeld: Error {
    let holders: [FileHolder]
}
