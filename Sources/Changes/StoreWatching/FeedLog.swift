/// A log for the messages of followed stores. The agent connects it to its logger. The library, which apps use, drops
/// the messages, and so builds no logging package.
package struct FeedLog: Sendable {
    /// The level of a message.
    package enum Level: Sendable { case notice, warning, error }

    /// A log that drops every message.
    package static let none = FeedLog { _, _ in }

    let write: @Sendable (Level, String) -> Void

    /// - Parameter write: Called with each message, on the thread that follows the stores.
    package init(_ write: @escaping @Sendable (Level, String) -> Void) { self.write = write }
}
