import LinuxSystem

/// The error of an access while the database is closed.
public struct SharedDatabaseUnavailable: ActionableError {
    /// The reason why the database is closed.
    public enum Reason: Sendable {
        /// Another process is using the store, or waits for it, and the store didn't come back in time.
        case away
        /// The store couldn't be opened again in time; the payload is the last error.
        case notOpened(any Error)
        /// The database was closed with `close()`.
        case closed
    }

    /// The store's name.
    public let store: String
    /// The reason why the database is closed.
    public let reason: Reason

    /// `store_away`, `store_not_opened` or `database_closed`.
    public var errorCode: String {
        switch reason {
        case .away: "store_away"
        case .notOpened: "store_not_opened"
        case .closed: "database_closed"
        }
    }

    /// One sentence with the store's name and the reason.
    public var message: String {
        switch reason {
        case .away: "\(store) is being relocated and did not come back in time"
        case .notOpened(let error):
            "\(store) could not be opened again in time: "
                + ((error as? any ActionableError)?.fullMessage ?? "\(error)")
        case .closed: "\(store) is closed"
        }
    }

    /// One line that says what would help.
    public var remedy: String {
        switch reason {
        case .away: "try again when the relocation has ended, or wait longer: patience"
        case .notOpened(let error):
            (error as? any ActionableError)?.remedy ?? "remove the cause: the database keeps trying to open the store"
        case .closed: "open the store again: SharedDatabase.load"
        }
    }

    /// The message, with the remedy in parentheses.
    public var description: String { messageWithRemedy }

    /// The last error of an attempt to open the store; nil for other reasons.
    public var underlyingError: (any Error)? {
        if case .notOpened(let error) = reason { error } else { nil }
    }
}

/// The error when the agent doesn't serve the store's group, or can't know the store at its location.
public struct SharedDatabaseNotFollowed: ActionableError {
    /// `not_followed`.
    public var errorCode: String { "not_followed" }
    /// One sentence that says why.
    public let message: String
    /// One line that says what would help.
    public let remedy: String
    /// The message, with the remedy in parentheses.
    public var description: String { messageWithRemedy }
}

extension SharedDatabase {
    /// The error of an access while the database is closed.
    public typealias Unavailable = SharedDatabaseUnavailable
    /// The error when the agent doesn't serve the store's group, or can't know the store at its location.
    public typealias NotFollowed = SharedDatabaseNotFollowed
}
