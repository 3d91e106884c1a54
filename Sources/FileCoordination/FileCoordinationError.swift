import FoundationEssentials
import LinuxSystem
import SystemPackage

/// Why a coordinated access did not take place. Nothing was read or written.
public struct FileCoordinationError: Error, Sendable, CustomStringConvertible {
    public enum Code: String, Sendable {
        /// The deadline passed; `holders` says who was waited for.
        case busy
        /// A file presenter could not do what it was asked; its error is in `message`.
        case presenterFailed = "presenter_failed"
        case cancelled
        /// The item isn't inside the group container.
        case outsideContainer = "outside_container"
        /// The group container may not be written to.
        case notWritable = "not_writable"
        /// A system call failed; `message` has its name, the path and the errno.
        case system
        /// The agent that was asked refused, or what it answered made no sense.
        case agent
    }

    /// A process that was waited for.
    public struct Holder: Hashable, Sendable, CustomStringConvertible {
        /// 0 when it isn't known.
        public let pid: Int32
        public let program: String
        /// In another PID namespace: the number means another process here, or none.
        public let isElsewhere: Bool

        public var description: String {
            FileHolder(pid: pid, program: program, isElsewhere: isElsewhere).description
        }
    }

    public let code: Code
    public let message: String
    /// One line on what would help.
    public let remedy: String
    public let holders: [Holder]

    public var description: String { "\(message) (\(remedy))" }

    package init(_ code: Code, _ message: String, remedy: String, holders: [FileHolder] = []) {
        self.code = code
        self.message = message
        self.remedy = remedy
        self.holders = holders.map { Holder(pid: $0.pid, program: $0.program, isElsewhere: $0.isElsewhere) }
    }
}

extension FileCoordinationError {
    static func notWritable(_ container: FilePath, _ item: FilePath, writes: Bool) -> FileCoordinationError {
        let place = PrintablePath(container)
        return writes
            ? FileCoordinationError(
                .notWritable, "\(place) may be read but not written to: \(PrintablePath(item)) can't be claimed there",
                remedy: "ask its owner for write permission, or claim reading only")
            : FileCoordinationError(
                .notWritable,
                "\(place) may be read but not written to, and nobody has claimed \(PrintablePath(item)) yet",
                remedy: "let a process that may write there claim it once, or ask for write permission")
    }

    static func outside(_ path: String, _ container: FilePath) -> FileCoordinationError {
        FileCoordinationError(
            .outsideContainer, "\(path) is not in \(PrintablePath(container))",
            remedy: "name a file of the group container")
    }

    package static let cancelled = FileCoordinationError(
        .cancelled, "the coordinated access was cancelled", remedy: "nothing was done")

    /// `lockHolders` claim what is wanted; `presenters` did not answer.
    static func busy(
        _ items: [FilePath], lockHolders: [FileHolder], presenters: [FileHolder]
    ) -> FileCoordinationError {
        let names = items.map { "\(PrintablePath($0))" }.joined(separator: ", ")
        var reasons: [String] = []
        if !lockHolders.isEmpty { reasons.append("claimed by \(lockHolders.list)") }
        if !presenters.isEmpty { reasons.append("presented by \(presenters.list), which did not answer") }
        if reasons.isEmpty { reasons.append("claimed by a process that left no name") }
        return FileCoordinationError(
            .busy, "\(names) is \(reasons.joined(separator: ", and "))",
            remedy: "try again when it is done; is it stopped?", holders: presenters + lockHolders)
    }

    /// Whatever was thrown on the way.
    package init(_ error: any Error) {
        switch error {
        case let error as FileCoordinationError: self = error
        case let error as SystemError: self.init(.system, "\(error)", remedy: error.remedy)
        default: self.init(.system, "\(error)", remedy: "see groupstore doctor")
        }
    }
}
