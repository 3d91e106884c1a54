import FoundationEssentials
import GroupContainers
import LinuxSystem
import SystemPackage

/// Why the library could not do what it was asked.
public struct GroupStoreError: Error, Sendable, CustomStringConvertible {
    public enum Code: String, Sendable {
        /// The identifier is none: letters, digits, `.`, `-` and `_`.
        case badIdentifier = "bad_identifier"
        /// There is no group container of that identifier.
        case noContainer = "no_container"
        /// A store that was there isn't there any more.
        case noStore = "no_store"
        /// A store's name can't be one.
        case badName = "bad_name"
        /// No agent answers, or it ended the connection.
        case noAgent = "no_agent"
        /// The agent refused; its word is in `message`.
        case refused
        /// A relocation was interrupted and not yet brought to its end.
        case interrupted
        /// Somebody else is at work on the store; the deadline passed.
        case busy
        /// A system call failed.
        case system
    }

    public let code: Code
    public let message: String
    /// One line on what would help.
    public let remedy: String

    public var description: String { "\(message) (\(remedy))" }

    init(_ code: Code, _ message: String, remedy: String) {
        self.code = code
        self.message = message
        self.remedy = remedy
    }

    init(_ error: AgentConnectionError) {
        let code: Code = if case .refused = error { .refused } else { .noAgent }
        self.init(code, error.message, remedy: error.remedy)
    }

    /// What apps can't name, as an error that they can; and what they can, as it is.
    static func visible(_ error: any Error) -> any Error {
        switch error {
        case let error as SystemError: GroupStoreError(.system, "\(error)", remedy: error.remedy)
        case let error as UnreadableRecord:
            GroupStoreError(
                .interrupted, "what a relocation was interrupted at can't be read: \(error)",
                remedy: "a newer groupstore made it, or it is damaged: use that version, or move the file aside")
        case let error as UntrustedJournal:
            GroupStoreError(.interrupted, "\(error)", remedy: "run groupstore recover as user \(error.writer)")
        default: error
        }
    }
}
