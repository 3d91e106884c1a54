import FoundationEssentials
import Glibc
import LinuxSystem
import SystemPackage

/// The error of a coordinated access that did not happen. Nothing was read or written.
///
///     do {
///         try coordinator.coordinate(writingItemAt: url, deadline: .seconds(5)) { try data.write(to: $0) }
///     } catch let error as FileCoordinationError where error.code == .busy {
///         print("waited for", error.holders)
///     }
public struct FileCoordinationError: ActionableError {
    /// The kind of an error. The raw value is stable.
    public enum Code: String, Sendable {
        /// The deadline passed. ``FileCoordinationError/holders`` names the processes that were waited for.
        case busy
        /// A file presenter could not do what it was asked. ``FileCoordinationError/message`` contains its error.
        case presenterFailed = "presenter_failed"
        /// The access was cancelled before it was granted, by its task or by ``FileCoordinator/cancel()``.
        case cancelled
        /// The item is not inside the group container.
        case outsideContainer = "outside_container"
        /// The name is no item of its own: it is groupstore's directory, or a database's log, index or journal. Or the
        /// path is longer than any system call accepts.
        case notAnItem = "not_an_item"
        /// The group container's directory was moved or removed.
        case containerReplaced = "container_replaced"
        /// The process may not write to the group container.
        case notWritable = "not_writable"
        /// A system call failed. ``FileCoordinationError/message`` contains its name, the path and the errno.
        case system
        /// The agent refused, or its answer was invalid.
        case agent
    }

    /// A process that an access waited for.
    public struct Holder: Hashable, Sendable, CustomStringConvertible {
        /// The process identifier; 0 if unknown.
        public let pid: Int32
        /// The name of the program.
        public let program: String
        /// True if the process is in another PID namespace. Its ``pid`` then means another process here, or none.
        public let isElsewhere: Bool

        public var description: String {
            FileHolder(pid: pid, program: program, isElsewhere: isElsewhere).description
        }
    }

    /// The kind of the error.
    public let code: Code
    /// One line that says what happened, with the path and the errno where there is one.
    public let message: String
    /// One line that says what would help.
    public let remedy: String
    /// The processes that were waited for, or the presenter that failed; empty for other codes.
    public let holders: [Holder]

    /// The error that caused this one, such as a failed system call; nil if there is none.
    public let underlyingError: (any Error)?

    /// The raw value of ``code``.
    public var errorCode: String { code.rawValue }

    /// The message, with the remedy in parentheses.
    public var description: String { messageWithRemedy }

    package init(
        _ code: Code, _ message: String, remedy: String, holders: [FileHolder] = [], underlying: (any Error)? = nil
    ) {
        self.code = code
        // Another process may have written a part of it.
        self.message = PrintableText(message).description
        self.remedy = PrintableText(remedy).description
        underlyingError = underlying
        self.holders = holders.map { Holder(pid: $0.pid, program: $0.program, isElsewhere: $0.isElsewhere) }
    }
}

extension FileCoordinationError {
    /// The item's path; that of the group container itself is empty.
    private static func name(of item: FilePath) -> String {
        item.isEmpty ? "the group container" : "\(PrintablePath(item))"
    }

    static func notWritable(_ container: FilePath, _ item: FilePath, writes: Bool) -> FileCoordinationError {
        let place = PrintablePath(container)
        let item = name(of: item)
        return writes
            ? FileCoordinationError(
                .notWritable, "\(place) may be read but not written to: \(item) can't be claimed there",
                remedy: "ask its owner for write permission, or claim reading only")
            : FileCoordinationError(
                .notWritable,
                "\(place) may be read but not written to, and nobody has claimed \(item) yet",
                remedy: "let a process that may write there claim it once, or ask for write permission")
    }

    static func outside(_ path: String, _ container: FilePath) -> FileCoordinationError {
        FileCoordinationError(
            .outsideContainer, "\(path) is not in \(PrintablePath(container))",
            remedy: "name a file of the group container")
    }

    /// No system call accepts such a path, and to look at each part of it takes long.
    static func tooLong(_ path: String) -> FileCoordinationError {
        FileCoordinationError(
            .notAnItem, "a path of \(path.utf8.count) bytes, which begins with \(path.prefix(80)), is too long",
            remedy: "name an item whose path has less than \(PATH_MAX) bytes")
    }

    static func bookkeeping(_ item: FilePath) -> FileCoordinationError {
        FileCoordinationError(
            .notAnItem, "\(PrintablePath(item)) is groupstore's own, and holds the locks of all accesses",
            remedy: "name another file of the group container")
    }

    static func sideFile(_ item: FilePath, of database: FilePath) -> FileCoordinationError {
        FileCoordinationError(
            .notAnItem,
            "\(PrintablePath(item)) is a part of the database \(PrintablePath(database)), whose commits it may hold",
            remedy: "name \(PrintablePath(database)), which stands for all of its files")
    }

    static func tooManyItems(_ count: Int) -> FileCoordinationError {
        FileCoordinationError(
            .system, "an access has \(count) items, and may have \(FileCoordinator.maximumItems)",
            remedy: "name a directory that contains them, or divide the access")
    }

    static func containerReplaced(_ path: FilePath) -> FileCoordinationError {
        FileCoordinationError(
            .containerReplaced, "the group container \(PrintablePath(path)) was moved or removed",
            remedy: "bring its directory back, or create it again, then try again")
    }

    package static let cancelled = FileCoordinationError(
        .cancelled, "the coordinated access was cancelled", remedy: "nothing was done")

    /// Returns the error for a deadline that passed. `lockHolders` have conflicting claims; `presenters` did not
    /// answer.
    static func busy(
        _ items: [FilePath], lockHolders: [FileHolder], presenters: [FileHolder]
    ) -> FileCoordinationError {
        let names = items.map { name(of: $0) }.joined(separator: ", ")
        var reasons: [String] = []
        if !lockHolders.isEmpty { reasons.append("claimed by \(lockHolders.list)") }
        if !presenters.isEmpty { reasons.append("presented by \(presenters.list), which did not answer") }
        if reasons.isEmpty { reasons.append("claimed by a process that left no name") }
        return FileCoordinationError(
            .busy, "\(names) is \(reasons.joined(separator: ", and "))",
            remedy: "try again when it is done; is it stopped?", holders: presenters + lockHolders)
    }

    /// Converts any error of an access.
    package init(_ error: any Error) {
        if let error = error as? FileCoordinationError {
            self = error
        } else {
            let known = error as? any ActionableError
            self.init(
                .system, known?.fullMessage ?? "\(error)", remedy: known?.remedy ?? "see why: groupstore doctor",
                underlying: error)
        }
    }
}
