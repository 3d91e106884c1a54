import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage

/// What to move, and where to.
package struct AppMoveRequest: Sendable {
    /// The directory to move. The path is absolute.
    package var source: FilePath
    /// Its new path. The parent exists, and is the group container whose `.groupstore` has the records.
    package var destination: FilePath
    /// Paths to change in the stores. The directory is then copied, even on one file system.
    package var rewrites: [PathRewrite] = []
    /// What is known of the directory; nil if nothing.
    package var recipe: AppRecipe?
    /// The longest wait for programs that have a file of the directory open.
    package var deadline = Duration.seconds(30)
    /// True to go on where the file system can't prove that no program has a store open.
    package var assumeClosed = false
    /// The directory below which the systemd units are that a move by root may not lock out.
    package var unitRoot: FilePath = "/"
    package var gracePeriod = OpenerGracePeriod.standard
    /// True to stop the programs that have a file of the directory open, and to start them again.
    package var stopsHolders = false
    package var managers = ManagerCommands.real
    /// True for a move that an agent's configuration has. The agent doesn't repeat it after a person took it back.
    package var isConfigured = false

    package init(source: FilePath, destination: FilePath) {
        (self.source, self.destination) = (source, destination)
    }

    /// Has the old place's path changed to the new one in the stores, unless a rewrite of it is there already.
    package mutating func rewriteOwnPath() {
        let isThere = rewrites.contains { $0.old.path == source }
        if !isThere, let own = PathRewrite(old: source, new: destination) { rewrites.append(own) }
    }
}

/// The result of a move.
package struct AppMoveSummary: Sendable {
    package enum Outcome: String, Sendable {
        case moved
        case alreadyMoved = "already_moved"
        case undone
        /// The directory is at its old place, and no move of it is recorded.
        case nothingToUndo = "nothing_to_do"
    }

    package enum Method: String, Sendable {
        case rename, copy
    }

    package var outcome: Outcome
    package var from: FilePath
    package var to: FilePath
    /// Nil if nothing had to be done.
    package var method: Method?
    package var contents: AppContents?
    /// The bytes and files that an earlier, killed run had copied already.
    package var resumedFiles = 0
    /// The columns in which paths were changed.
    package var rewritten: [RewrittenColumn] = []
    /// The cells that `undo` has left as they are.
    package var left: [LeftCells] = []
    package var notes: [String] = []
    /// The rows of the tables that the recipe checks, the same before and after.
    package var checked: [CheckedTable] = []

    package init(outcome: Outcome, from: FilePath, to: FilePath) {
        (self.outcome, self.from, self.to) = (outcome, from, to)
    }
}

/// What a directory contains, as counted before the move.
package struct AppContents: Sendable, Equatable {
    package var files = 0
    package var directories = 0
    /// The size of all regular files. Nil if they weren't looked at, because a rename needs only their names.
    package var bytes: Int64?
    /// The SQLite stores, by their headers. Nil likewise.
    package var stores: [FilePath]?
    /// Sockets, which only their server can make again. A copy leaves them out.
    package var sockets: [FilePath] = []
    /// Absolute symbolic links to a place inside the directory. They stay as they are.
    package var linksInside: [FilePath] = []
    /// Relative symbolic links to a place outside of the directory.
    package var linksOutside: [OutwardLink] = []
    /// Regular files that have another name outside of the directory. Empty if the files weren't looked at.
    package var sharedFiles: [FilePath] = []
}

/// A relative symbolic link that leads out of a directory, and so to another place once that has moved.
package struct OutwardLink: Sendable, Equatable {
    /// The link, relative to the directory.
    let path: FilePath
    let target: FilePath
    /// The target, relative to the directory's parent.
    let beside: FilePath
}

/// A step of a move, for a progress bar or a log.
package enum AppMoveEvent: Sendable {
    /// Programs that have a file of the directory open.
    case waiting(for: [FileHolder])
    case copied(files: Int, ofFiles: Int, bytes: Int64, ofBytes: Int64)
    case recovered(String)
    case note(String)
    /// These programs are about to be stopped.
    case stopping([ManagedProgram])
    /// These programs were started, and run again.
    case started([ManagedProgram])
}

/// The points of a move at which a test may end it, as a kill would.
package enum AppMoveStep: String, CaseIterable, Sendable {
    case planned, journalled, linked, renamed, quiesced, copiedFile, copied, withdrawn, checked, committing, published
    case receipt, removedFile, retired
    /// Of the programs that are stopped: the note, their record, and each end of stopping and starting.
    case noted, recorded, stopped, starting, started
}

extension RelocationFailure {
    /// The failure of a step at one path.
    static func app(_ kind: Kind, _ code: String, _ message: String, _ remedy: String) -> RelocationFailure {
        RelocationFailure(kind, code: code, message, remedy: remedy)
    }

    /// The failure of a move that waited for programs to end. It names what manages them.
    static func held(_ source: FilePath, _ holders: [FileHolder], _ request: AppMoveRequest) -> RelocationFailure {
        let origins = holders.map { request.managers.origin(of: $0.pid) }
        let names = zip(holders, origins).map { holder, origin in
            guard case .managed(let program) = origin else { return "\(holder)" }
            return "\(holder) of \(program.words)"
        }
        let areManaged = !origins.isEmpty && origins.allSatisfy { if case .managed = $0 { true } else { false } }
        var failure = RelocationFailure(
            .busy, code: "in_use",
            "\(PrintablePath(source)) is in use by \(names.isEmpty ? holders.names : names.joined(separator: ", "))",
            remedy: areManaged && !request.stopsHolders
                ? "have them stopped and started again: add --stop-holders; or end these programs, then run this again"
                : "end these programs, then run this again")
        failure.holders = holders
        return failure
    }
}
