import GroupContainers
import StoreRelocation
import SystemPackage

// What `recover` does for the move of a directory.
extension AppRelocation {
    /// Returns the directory's move of which a group has the journal, or nil. Changes nothing. A move in progress in
    /// another process looks the same; that process holds the group's lock.
    package static func interrupted(in group: FilePath) throws(RelocationFailure) -> InterruptedTransfer? {
        try failing(AppMoveRequest(source: group, destination: group)) {
            let container = try Relocation.container(at: group)
            guard let journal = try container.appJournal() else { return nil }
            return try AppRecovery(journal, AppPlaces(journal), container).interrupted()
        }
    }

    /// Finishes or undoes that move, and calls `found` before. A copy that isn't complete is removed. Returns nil if
    /// there is none. Throws only `RelocationFailure`.
    package static func recover(
        in group: FilePath, deadline: Duration, isCancelled: @escaping @Sendable () -> Bool,
        found: (InterruptedTransfer) -> Void
    ) throws(RelocationFailure) -> InterruptedTransfer? {
        var request = AppMoveRequest(source: group, destination: group)
        request.deadline = deadline
        let engine = AppRelocation(request, isCancelled: isCancelled)
        return try failing(request) {
            let container = try Relocation.container(at: group)
            guard try container.appJournal() != nil else { return nil }
            return try engine.underLock(of: container) {
                guard let journal = try container.appJournal() else { return nil }
                let recovery = AppRecovery(journal, try AppPlaces(journal), container)
                let interrupted = try recovery.interrupted()
                found(interrupted)
                _ = try recovery.end(keepingCopy: false)
                return interrupted
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
