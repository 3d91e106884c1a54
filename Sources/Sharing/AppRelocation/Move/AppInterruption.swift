import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage

/// A directory's move that was begun and not ended, and that no process performs.
package struct UnfinishedAppMove: Sendable, Equatable {
    package let id: TransferIdentifier
    package let source: FilePath
    package let destination: FilePath
    /// True if the directory has neither name, as in the middle of a copy.
    package let isHidden: Bool
    /// True if something else has its old name, which its program may have made meanwhile.
    package let isReplaced: Bool

    init(_ journal: AppMoveJournal) {
        let move = journal.move
        (id, source, destination) = (move.id, move.source.path, move.destination.path)
        let present = [source, destination].map { FileStatus(following: $0) }
        let hidden = FileStatus(following: source.removingLastComponent().appending(move.id.hiddenName()))
        isHidden =
            move.isFile(move.root, hidden)
            ? !journal.hasArrived(present[1]) : !present.contains { $0?.kind == .directory }
        isReplaced = isHidden && present[0] != nil
    }
}

extension AppMoveJournal {
    fileprivate func hasArrived(_ present: FileStatus?) -> Bool {
        guard case .committing(let copy) = state else { return false }
        return move.isFile(copy, present)
    }
}

// What `recover` does for the move of a directory.
extension AppRelocation {
    /// Returns the directory's move of which a group has the journal, or nil. Changes nothing. A move in progress in
    /// another process looks the same; that process holds the group's lock.
    package static func interrupted(in group: FilePath) throws(RelocationFailure) -> InterruptedTransfer? {
        try failing(AppMoveRequest(source: group, destination: group)) {
            let container = try Relocation.container(at: group)
            guard let journal = try container.appJournal() else { return nil }
            return try AppRecovery(journal, AppPlaces(journal, in: container), container).interrupted()
        }
    }

    /// Returns the group's move that waits for somebody to end it; nil if there is none, a process performs it, or its
    /// journal can't be read. Changes nothing.
    package static func unfinished(in container: GroupContainer) -> UnfinishedAppMove? {
        // A journal that is there before and after the lock was free had no process then.
        guard let before = try? container.appJournal(), !container.isLocked,
            let journal = try? container.appJournal(), journal.move.id == before.move.id
        else { return nil }
        return UnfinishedAppMove(journal)
    }

    /// Returns what a move has stopped that no process starts again; nil also if the record can't be read. Changes
    /// nothing.
    package static func leftStopped(in container: GroupContainer) -> StoppedPrograms? {
        // The same record before and after the lock was free had no process then.
        guard let before = try? container.stoppedPrograms(), !container.isLocked,
            let stopped = try? container.stoppedPrograms(), stopped == before
        else { return nil }
        return stopped
    }

    /// Returns what a move has stopped and not started again. Changes nothing.
    package static func stopped(in group: FilePath) throws(RelocationFailure) -> StoppedPrograms? {
        try failing(AppMoveRequest(source: group, destination: group)) {
            try Relocation.container(at: group).stoppedPrograms()
        }
    }

    /// Finishes or undoes the group's move, and calls `found` before; then starts what it has stopped. Returns nil if
    /// no move was interrupted. Throws only `RelocationFailure`.
    ///
    /// - Parameters:
    ///   - keepingCopy: False to remove a copy that isn't complete; true to leave it for the next run of that move.
    ///   - leavingStopped: True to forget what was stopped.
    package func recover(
        keepingCopy: Bool = false, leavingStopped: Bool = false, found: (InterruptedTransfer) -> Void = { _ in }
    ) throws(RelocationFailure) -> InterruptedTransfer? {
        try Self.failing(request) {
            let container = try Relocation.container(at: request.destination)
            guard try container.appJournal() != nil || container.stoppedPrograms() != nil else { return nil }
            return try underLock(of: container) {
                if leavingStopped, let stopped = try container.stoppedPrograms() {
                    try forget(stopped, container)
                    report(.recovered("\(stopped.programs.list): not started again"))
                }
                return try startingAgain(container) {
                    guard let journal = try container.appJournal() else { return nil }
                    let recovery = AppRecovery(journal, try AppPlaces(journal, in: container), container)
                    let interrupted = try recovery.interrupted()
                    found(interrupted)
                    switch try recovery.end(keepingCopy: keepingCopy && recovery.hasCopy) {
                    case .finished(_, let notes), .undone(let notes): notes.forEach { report(.note($0)) }
                    }
                    return interrupted
                }
            }
        }
    }
}

extension AppRecovery {
    fileprivate func interrupted() throws -> InterruptedTransfer {
        InterruptedTransfer(
            id: journal.move.id, .moveApp, state: journal.state.name, from: places.source, to: places.destination,
            try willFinish() ? .finish : .undo)
    }
}

extension AppMoveState {
    fileprivate var name: String {
        switch self {
        case .renaming: "renaming"
        case .copying: "copying"
        case .withdrawn: "withdrawn"
        case .committing: "committing"
        }
    }
}
