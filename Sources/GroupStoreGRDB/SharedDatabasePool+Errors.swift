extension SharedDatabasePool {
    /// The error of an access while the database is closed.
    public struct Unavailable: Error, CustomStringConvertible {
        /// The reason why the database is closed.
        public enum Reason: Sendable {
            /// Another process is using the store, or waits for it, and the store didn't come back in time.
            case away
            /// The store couldn't be opened again in time; the payload is the last error.
            case notOpened(any Error)
            /// The pool was closed with ``SharedDatabasePool/close()``.
            case closed
        }

        /// The store's name.
        public let store: String
        /// The reason why the database is closed.
        public let reason: Reason

        /// One sentence with the store's name and the reason.
        public var description: String {
            switch reason {
            case .away: "\(store) is being relocated and did not come back in time"
            case .notOpened(let error): "\(store) could not be opened again in time: \(error)"
            case .closed: "\(store) is closed"
            }
        }
    }

    /// The error when the agent doesn't serve the store's group, or can't know the store at its location.
    public struct NotFollowed: Error, CustomStringConvertible {
        /// One sentence that says why.
        public let description: String
    }
}
