import CSQLite
import FileCoordination
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

extension RelocationFailure {
    package static func badName(_ path: FilePath) -> RelocationFailure {
        // The name that a store is to get is relative.
        if path.isAbsolute, FileStatus(following: path)?.kind == .directory {
            return RelocationFailure(
                .badData, code: "not_a_file",
                "\(PrintablePath(path.lexicallyNormalized())): a directory, not a store",
                remedy: "name the store's database file")
        }
        let named = path.isAbsolute ? path.databaseOfSideFile : nil
        let database = named.flatMap { FileStatus(following: $0) == nil ? nil : $0 }
        return RelocationFailure(
            .badData, code: "bad_name", "\(PrintablePath(path)) can't be a store's name",
            remedy: database.map { "name the database itself: \($0.shellWord)" } ?? StoreName.remedy)
    }

    static func sideFileIsDatabase(_ sideFile: FilePath) -> RelocationFailure {
        RelocationFailure(.badData, StoreError.sideFileIsDatabase(sideFile))
    }

    static func noGroupDirectory(_ path: FilePath) -> RelocationFailure {
        RelocationFailure(
            .unusablePlace, code: "no_group_directory",
            FileStatus(following: path) == nil
                ? "there is no directory \(PrintablePath(path))" : "\(PrintablePath(path)) is not a directory",
            remedy: FileStatus(following: path) == nil
                ? "create it first: mkdir -p -m 0700 \(path.shellWord)"
                : "name a directory, or a group's identifier")
    }

    static func insideBookkeeping(_ path: FilePath, copy: Bool = false) -> RelocationFailure {
        RelocationFailure(
            .unusablePlace, code: "own_directory", "\(PrintablePath(path)) holds a group container's own records",
            remedy: copy
                ? "copy the store from there to another directory, then name the copy"
                : "name the group container, or another directory")
    }

    static func alreadyInGroup(
        _ source: FilePath, as name: FilePath.Component, in container: GroupContainer
    ) -> RelocationFailure {
        RelocationFailure(
            .badData, code: "in_group",
            "\(PrintablePath(source)) is \(PrintablePath(name)) in \(PrintablePath(container.directory.path)), a store of "
                + "this group already",
            remedy: "nothing needs to be moved: programs find it under that name (--name \(PrintablePath(name)))")
    }

    package static func cancelled(_ store: FilePath) -> RelocationFailure {
        RelocationFailure(
            .busy, code: "cancelled", "the relocation of \(PrintablePath(store)) was cancelled before it was complete",
            remedy: "run it again")
    }

    static func lockHeld(by holder: String, _ container: GroupContainer) -> RelocationFailure {
        RelocationFailure(
            .busy, code: "locked",
            "another relocation is in progress in \(PrintablePath(container.directory.path)) (process \(holder))",
            remedy: "try again when it is done")
    }

    /// Converts any error of a relocation into a failure that says what the user can do.
    package init(_ error: any Error, _ request: RelocationRequest) {
        let store = PrintablePath(request.source)
        switch error {
        case let failure as RelocationFailure: self = failure
        case let unfinished as StoreTransfer.Unfinished: self = Self.unfinished(unfinished, request)
        case let reason as StoreTransfer.RetryReason: self = Self.busy(reason, request)
        case let error as FileCoordinationError: self = Self.coordination(error)
        case let error as SystemError: self = Self.system(error)
        case let error as StoreWriteError: self = Self.writing(error, request)
        case let error as StoreError: self = Self.store(error)
        case let error as StoreContents.Unreadable: self.init(.badData, error, context: "\(store): ")
        case let error as any ActionableError: self.init(Self.kind(of: error), error)
        default:
            self.init(.failed, code: "failed", "\(store): \(error)", remedy: "see why: groupstore doctor")
        }
        if underlyingError == nil, !(error is RelocationFailure) { underlyingError = error }
    }

    private static func kind(of error: any ActionableError) -> Kind {
        switch error {
        case is StoreWithdrawn: .busy
        case is UnsupportedFile: .badData
        case is UntrustedJournal: .notPermitted
        default: .failed
        }
    }

    private static func coordination(_ error: FileCoordinationError) -> RelocationFailure {
        let (kind, code): (Kind, String) =
            switch error.code {
            case .busy: (.busy, "in_use")
            case .presenterFailed, .cancelled: (.busy, error.code.rawValue)
            case .notWritable: (.notPermitted, "not_writable")
            case .containerReplaced: (.unusablePlace, "replaced")
            case .outsideContainer, .notAnItem, .system, .agent: (.failed, "io_error")
            }
        var failure = RelocationFailure(kind, code: code, error.message, remedy: error.remedy)
        failure.holders = error.holders.map {
            FileHolder(pid: $0.pid, program: $0.program, isElsewhere: $0.isElsewhere)
        }
        return failure
    }

    private static func unfinished(
        _ unfinished: StoreTransfer.Unfinished, _ request: RelocationRequest
    ) -> RelocationFailure {
        var moved = request
        moved.source = unfinished.path
        let reason = RelocationFailure(unfinished.reason, moved)
        return RelocationFailure(
            reason.kind == .busy ? .busy : .failed, code: "unfinished",
            "the store is now \(PrintablePath(unfinished.path)), but its relocation is not complete: "
                + reason.message,
            remedy: "run this again to complete it")
    }

    private static func busy(_ reason: StoreTransfer.RetryReason, _ request: RelocationRequest) -> RelocationFailure {
        let store = PrintablePath(request.source)
        guard case .held(let identity) = reason else {
            return RelocationFailure(
                .busy, code: "in_use", "\(store) keeps changing",
                remedy: "close the programs that use it, then try again")
        }
        return inUse(request.source, FileHolder.of(identity))
    }

    /// The failure of a store that these programs have open; another user's, or those of another PID namespace, if
    /// there are none.
    package static func inUse(_ store: FilePath, _ holders: [FileHolder]) -> RelocationFailure {
        let names = holders.names + (holders.isEmpty ? ": another user's, or in another PID namespace" : "")
        var failure = RelocationFailure(
            .busy, code: "in_use", "\(PrintablePath(store)) is open in \(names)",
            remedy: "close it there, then try again")
        failure.holders = holders
        return failure
    }

    /// A full disk or quota. The message names a file there. Also without an inode left, the error is that there is no
    /// space.
    package static func noSpace(_ message: String) -> RelocationFailure {
        RelocationFailure(
            .unusablePlace, code: "no_space", message,
            remedy: "free space there (df -h), or inodes (df -i), then try again")
    }

    private static func system(_ error: SystemError) -> RelocationFailure {
        switch error.errno {
        case .permissionDenied, .notPermitted:
            RelocationFailure(
                .notPermitted, code: "not_permitted", "\(error)", remedy: "run this as the owner of these files")
        case .resourceTemporarilyUnavailable where error.isLeaseConflict:
            RelocationFailure(
                .busy, code: "in_use", "\(error): another process holds a lease on it, as a relocation does",
                remedy: "try again when it is done")
        case .noSpace, .diskQuotaExceeded:
            noSpace("\(error)")
        case .readOnlyFileSystem:
            RelocationFailure(
                .unusablePlace, code: "read_only", "\(error)", remedy: "mount it writable, then try again")
        case .notSupported where error.call.hasPrefix("fsetxattr"):
            RelocationFailure(
                .unusablePlace, code: "attributes", "\(error): that file system does not support such attributes",
                remedy: "remove them with setfacl -b or setfattr -x, or use another file system")
        default:
            if let remedy = error.obstacleRemedy {
                RelocationFailure(
                    .unusablePlace, code: error.errno == .tooManySymbolicLinkLevels ? "symbolic_link" : "obstacle",
                    "\(error)", remedy: remedy)
            } else {
                RelocationFailure(
                    .failed, code: "io_error", "\(error)", remedy: "check the kernel log: dmesg or journalctl -k")
            }
        }
    }

    private static func store(_ error: StoreError) -> RelocationFailure {
        let kind: Kind =
            switch error {
            case .busy: .busy
            case .missing, .sqlite: .failed
            case .notAFile, .foreign, .sideFileIsDatabase, .foreignLog, .corrupt, .superJournalElsewhere: .badData
            }
        switch error {
        case .superJournalElsewhere, .sideFileIsDatabase, .foreignLog:
            return RelocationFailure(kind, code: error.errorCode, "\(error)", remedy: error.remedy)
        case _ where error.isFull: return noSpace("\(error)")
        default: break
        }
        return RelocationFailure(
            kind, code: kind == .busy ? "in_use" : "unreadable", "\(error)",
            remedy: kind == .busy
                ? "close the programs that use it, then try again"
                : "see what it is: groupstore inspect \(error.path.shellWord)")
    }

    /// The failure if a file system has too few inodes.
    ///
    /// - Parameter needed: The number of files to make there; nil if it isn't known.
    package static func noInodes(_ directory: FilePath, left: UInt64, needed: Int?) -> RelocationFailure {
        RelocationFailure(
            .unusablePlace, code: "no_space",
            "the file system of \(PrintablePath(directory)) has \(left == 0 ? "no" : "\(left)") inodes left for new files"
                + (needed.map { ", and \($0) are needed" } ?? ""),
            remedy: "remove files there, or name a place on another file system; this counts them: df -i "
                + directory.shellWord)
    }

    private static func writing(_ error: StoreWriteError, _ request: RelocationRequest) -> RelocationFailure {
        let text = "\(PrintablePath(request.source)): SQLite error \(error.code): \(error.message)"
        switch error.primaryCode {
        case SQLITE_BUSY, SQLITE_LOCKED:
            return RelocationFailure(
                .busy, code: "in_use", text, remedy: "close the programs that use it, then try again")
        case SQLITE_NOTADB, SQLITE_CORRUPT:
            return RelocationFailure(
                .badData, code: "corrupt", text, remedy: StoreError.recovery(of: request.source))
        case SQLITE_FULL: return noSpace(text)
        case SQLITE_PERM, SQLITE_READONLY, SQLITE_AUTH:
            return RelocationFailure(
                .notPermitted, code: "not_permitted", text, remedy: "run this as the owner of these files")
        default:
            return RelocationFailure(.failed, code: "sqlite_error", text, remedy: "see why: groupstore doctor")
        }
    }
}
