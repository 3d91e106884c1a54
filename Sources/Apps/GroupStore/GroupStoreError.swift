import FoundationEssentials
import GroupContainers
import LinuxSystem
import SystemPackage

/// An error of the GroupStore library, with a remedy.
///
/// Programs check ``code``; ``message`` and ``remedy`` are for people.
///
///     do {
///         try await store.acknowledge(token, by: "indexer")
///     } catch let error as GroupStoreError where error.code == .noAgent {
///         print(error.message, error.remedy)
///     }
public struct GroupStoreError: ActionableError {
    /// The kind of error. Raw values are stable.
    public enum Code: String, Sendable {
        /// The text isn't a group identifier, which has letters, digits, `.`, `-` and `_`.
        case badIdentifier = "bad_identifier"
        /// There is no group container with this identifier.
        case noContainer = "no_container"
        /// A store that existed is gone.
        case noStore = "no_store"
        /// The text can't be a store's name, a database has the name of one of the store's side files, or the store has
        /// no legacy URL.
        case badName = "bad_name"
        /// No agent answers, or it ended the connection.
        case noAgent = "no_agent"
        /// The agent refused the request, or it is too long for an agent; `message` has the reason.
        case refused
        /// A relocation was interrupted and hasn't been completed or undone yet.
        case interrupted
        /// Another process is using or relocating the store, and the deadline passed.
        case busy
        /// A system call failed.
        case system
    }

    /// The kind of error.
    public let code: Code
    /// One sentence that says what failed, with the path and the system's error where there is one.
    public let message: String
    /// One line that says what to do about it.
    public let remedy: String

    /// The error that caused this one, such as a failed system call; nil if there is none.
    public let underlyingError: (any Error)?

    /// The raw value of ``code``.
    public var errorCode: String { code.rawValue }

    /// The message followed by the remedy in parentheses.
    public var description: String { messageWithRemedy }

    package init(_ code: Code, _ message: String, remedy: String, underlying: (any Error)? = nil) {
        self.code = code
        self.message = message
        self.remedy = remedy
        underlyingError = underlying
    }

    /// Wraps an error whose type isn't public.
    package init(_ error: any ActionableError) {
        let code: Code =
            switch error {
            case AgentConnectionError.refused, AgentConnectionError.tooLong: .refused
            case is AgentConnectionError: .noAgent
            case is UnreadableRecord, is UntrustedJournal: .interrupted
            default: .system
            }
        let context = error is UnreadableRecord ? "the record of an interrupted relocation can't be read: " : ""
        self.init(code, context + error.fullMessage, remedy: error.remedy, underlying: error)
    }

    /// Returns the error with a public type if its own type isn't public.
    static func visible(_ error: any Error) -> any Error {
        switch error {
        case is GroupStoreError, is FileCoordinationError: error
        case let error as any ActionableError: GroupStoreError(error)
        default: error
        }
    }
}
